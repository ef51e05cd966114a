//! `ottla groups`: what is not known is not 0, and offsets change only on request.

use std::time::Duration;

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use ottla_client::{Client, Config, TopicPartition};

use crate::support::{PATIENCE, Running, at, broker, command, fill};

fn row(text: &str, partition: &str) -> Vec<String> {
    let rows = text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let row = rows.filter(|row| row.len() > 2).find(|row| row[0] == "orders" && row[1] == partition);
    row.unwrap_or_else(|| panic!("no row of partition {partition} in {text}"))
}

/// A member that has read and has not committed.
fn member(broker: &BrokerThread) -> Running {
    let servers = broker.bootstrap_servers();
    let args = ["consume", "orders", "--group", "readers", "-b", &servers, "-X", "enable.auto.commit=false"];
    let mut member = Running::start(&mut command(&args), "");
    member.until("assigned", PATIENCE, |_| {
        at(broker, &["groups", "describe", "readers"], "").stdout.contains("Stable")
    });
    member
}

/// It printed `total lag 0`, as for a group that has read everything.
#[test]
fn a_group_without_commits_has_an_unknown_lag() {
    let broker = broker(1);
    fill(&broker, "1\n2\n");
    let _member = member(&broker);
    let described = at(&broker, &["groups", "describe", "readers"], "").succeeded();
    assert!(described.stdout.contains("total lag unknown"), "{}", described.stdout);
    assert_eq!(row(&described.stdout, "0")[2..5], ["-", "2", "-"]);
    let described = at(&broker, &["groups", "describe", "readers", "--json"], "").succeeded();
    let json: serde_json::Value = serde_json::from_str(&described.stdout).expect("JSON");
    assert!(json["total_lag"].is_null() && json["partitions"][0]["lag"].is_null(), "{json}");
    assert_eq!(json["partitions"][0]["end"], 2);
}

#[test]
fn a_group_that_has_read_everything_has_no_lag() {
    let broker = broker(1);
    fill(&broker, "1\n2\n");
    at(&broker, &["consume", "orders", "--group", "readers", "-e"], "").succeeded();
    let described = at(&broker, &["groups", "describe", "readers"], "").succeeded();
    assert!(described.stdout.contains("total lag 0\n"), "{}", described.stdout);
    at(&broker, &["groups", "describe", "raeders"], "")
        .failed(1, &["group `raeders` does not exist", "groups list"]);
}

/// They were set at once.
#[test]
fn offsets_are_reset_with_execute_only() {
    let broker = broker(1);
    fill(&broker, "1\n2\n3\n4\n");
    at(&broker, &["consume", "orders", "--group", "readers", "-e"], "").succeeded();
    let reset = ["groups", "reset-offsets", "readers", "--to", "beginning"];
    let before = at(&broker, &["groups", "describe", "readers"], "").stdout;
    for extra in [&[][..], &["--dry-run"]] {
        let planned = at(&broker, &[&reset[..], extra].concat(), "").succeeded();
        assert!(planned.stderr.contains("dry run: add --execute"), "{}", planned.stderr);
        let header: Vec<&str> =
            planned.stdout.lines().next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(header, ["TOPIC", "PARTITION", "CURRENT", "NEW", "LOG-START", "LOG-END", "NOTE"]);
        let end = row(&before, "0")[3].clone();
        assert_eq!(row(&planned.stdout, "0")[2..], [&*end, "0", "0", &*end]);
        assert_eq!(at(&broker, &["groups", "describe", "readers"], "").stdout, before);
    }
    at(&broker, &[&reset[..], &["--execute"]].concat(), "").succeeded();
    let described = at(&broker, &["groups", "describe", "readers"], "").stdout;
    assert!(described.contains("total lag 4\n"), "{described}");
}

/// `--to 99999999` was clamped without a word.
#[test]
fn an_offset_that_is_clamped_is_reported_for_each_partition() {
    let broker = broker(1);
    fill(&broker, "1\n2\n");
    at(&broker, &["consume", "orders", "--group", "readers", "-e"], "").succeeded();
    let reset =
        ["groups", "reset-offsets", "readers", "--topic", "orders:0", "--to", "99999999", "--execute"];
    let done = at(&broker, &reset, "").succeeded();
    assert!(done.stdout.contains("clamped: 99999999 is past the log end"), "{}", done.stdout);
    let reset = ["groups", "reset-offsets", "readers", "--topic", "orders:7", "--to", "1"];
    at(&broker, &reset, "").failed(1, &["topic `orders` has no partition 7: it has 1"]);
}

/// A misspelled name created a group.
#[test]
fn an_unknown_group_is_refused_unless_it_is_to_be_created() {
    let broker = broker(1);
    let reset = ["groups", "reset-offsets", "raeders", "--topic", "orders", "--to", "beginning", "--execute"];
    at(&broker, &reset, "").failed(1, &["group `raeders` does not exist", "--create"]);
    assert_eq!(at(&broker, &["groups", "list"], "").succeeded().stdout.lines().count(), 1, "the header only");
    at(&broker, &[&reset[..], &["--create"]].concat(), "").succeeded();
    assert!(at(&broker, &["groups", "list"], "").stdout.contains("raeders"));
}

#[test]
fn a_group_with_members_is_refused_with_their_number() {
    let broker = broker(1);
    let member = member(&broker);
    let reset = ["groups", "reset-offsets", "readers", "--topic", "orders", "--to", "beginning"];
    for more in [&["--execute"][..], &["--execute", "--create"], &[]] {
        at(&broker, &[&reset[..], more].concat(), "").failed(1, &["has 1 active member: stop it first"]);
    }
    drop(member);
}

/// The records of an open transaction did not count, and the lag was 0.
#[test]
fn the_lag_counts_the_records_of_open_transactions() {
    let broker = broker(1);
    fill(&broker, "1\n");
    at(&broker, &["consume", "orders", "--group", "readers", "-e"], "").succeeded();
    let producer = crate::administration::open_transaction(&broker, "billing");
    let described = at(&broker, &["groups", "describe", "readers"], "").succeeded();
    let end = broker.cluster().offsets_of("orders", 0).expect("a topic").1;
    assert!(end > 1, "{end}");
    assert_eq!(row(&described.stdout, "0")[2..5], ["1".to_owned(), end.to_string(), (end - 1).to_string()]);
    let partitions = at(&broker, &["topics", "partitions", "orders", "--output", "json"], "").succeeded();
    assert!(partitions.stdout.contains(&format!("\"end\":{end}")), "{}", partitions.stdout);
    let reset = ["groups", "reset-offsets", "readers", "--to-latest"];
    assert_eq!(row(&at(&broker, &reset, "").succeeded().stdout, "0")[3], end.to_string());
    let committed = [&reset[..], &["-X", "isolation.level=read_committed"]].concat();
    assert_eq!(row(&at(&broker, &committed, "").succeeded().stdout, "0")[3], "1");
    drop(producer);
}

/// The partition without a leader counted as one that does not exist, the others were set, and the command succeeded.
#[test]
fn offsets_are_not_set_if_those_of_a_partition_cannot_be_read() {
    let broker = Broker::builder().memory().topic("gone", 1).topic("orders", 2).spawn().expect("a broker");
    fill(&broker, "1\n2\n3\n");
    at(&broker, &["consume", "orders", "--group", "readers", "-e"], "").succeeded();
    let reset = |more: &[&str]| at(&broker, &[&["groups", "reset-offsets", "readers"], more].concat(), "");
    reset(&["-t", "gone", "-t", "orders", "--to-latest", "--execute"]).succeeded();
    let lag = || {
        let described = at(&broker, &["groups", "describe", "readers", "--output", "json"], "").succeeded();
        let group: serde_json::Value = serde_json::from_str(&described.stdout).expect("JSON");
        group["total_lag"].as_i64()
    };
    assert_eq!(lag(), Some(0));
    // The lookup of all partitions, and one that followed it because of the deleted topic.
    let forbidden = Fault::Fail(ErrorCode::TopicAuthorizationFailed);
    broker.cluster().intercept(ApiKey::ListOffsets, None, 2, forbidden);
    // The group has an offset of the topic, which is deleted before its offsets are looked up.
    broker.cluster().intercept(ApiKey::OffsetFetch, Some(1), 1, Fault::AnswerAfter(Duration::from_secs(3)));
    let servers = broker.bootstrap_servers();
    let execute = ["groups", "reset-offsets", "readers", "--to-earliest", "--execute", "-b", &servers];
    let mut resetting = Running::start(&mut command(&execute), "");
    resetting.until("asked", PATIENCE, |_| broker.cluster().intercepts_left(ApiKey::OffsetFetch, 1) == 0);
    at(&broker, &["topics", "delete", "gone"], "").succeeded();
    resetting.wait().failed(1, &["TOPIC_AUTHORIZATION_FAILED"]);
    broker.cluster().clear_intercepts_of(ApiKey::ListOffsets);
    assert_eq!(lag(), Some(0), "nothing was set");
}

/// It waited for an assignment: a rebalance need not bring one to a member that only loses a partition.
#[test]
fn a_member_ends_when_a_rebalance_takes_its_last_unread_partition() {
    let soon = ["-X", "heartbeat.interval.ms=100", "-X"];
    let cooperative = [&soon[..], &["partition.assignment.strategy=cooperative-sticky"]].concat();
    let kip_848 = vec!["-X", "group.protocol=consumer"];
    // One of the two partitions is taken.
    for (partition, protocol) in [("0", &cooperative), ("1", &cooperative), ("0", &kip_848), ("1", &kip_848)]
    {
        let broker = broker(2);
        let lines = format!("{partition:0>999}\n").repeat(1000);
        at(&broker, &["produce", "orders", "-p", partition, "-X", "batch.size=5000"], &lines).succeeded();
        let servers = broker.bootstrap_servers();
        let args = ["consume", "orders", "-G", "readers", "-b", &servers];
        let small = ["-e", "-X", "fetch.message.max.bytes=10000"];
        let first = [&args[..], protocol, &small].concat();
        let (mut first, _stdin, mut stdout) = Running::start_with_pipes(&mut command(&first));
        let is_full = || rustix::io::ioctl_fionread(&stdout).expect("a pipe") >= 32 << 10;
        first.until("stuck", PATIENCE, |_| is_full());
        let mut second = Running::start(&mut command(&[&args[..], protocol].concat()), "");
        second.until("a member", PATIENCE, |_| {
            let described = at(&broker, &["groups", "describe", "readers"], "").stdout;
            described.contains("2 members") && !described.contains("PreparingRebalance")
        });
        // The first member gets its new assignment with a heartbeat.
        std::thread::sleep(Duration::from_millis(1500));
        let reader = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        first.wait().succeeded();
        reader.join().expect("no panic").expect("read");
    }
}

/// Later batches of a partition at its end were not printed, and each commit was the start of the last one.
#[test]
fn a_finished_partition_commits_no_more_than_its_end_while_another_one_is_read() {
    let small = ["-X", "batch.size=5000"];
    // With records at the start, and without any.
    for first in ["1\n2\n3\n", ""] {
        let broker = broker(2);
        let produce = |partition: &str, lines: &str| {
            at(&broker, &[&["produce", "orders", "-p", partition], &small[..]].concat(), lines).succeeded();
        };
        produce("0", first);
        produce("1", &format!("{:0>999}\n", "large").repeat(1000));
        let servers = broker.bootstrap_servers();
        let args = ["consume", "orders", "-G", "readers", "-e", "-f", "%p %s\n", "-b", &servers];
        let few = ["-X", "fetch.message.max.bytes=10000", "-X", "auto.commit.interval.ms=50"];
        let (mut reader, _stdin, mut stdout) =
            Running::start_with_pipes(&mut command(&[&args[..], &few].concat()));
        let is_full = || rustix::io::ioctl_fionread(&stdout).expect("a pipe") >= 32 << 10;
        reader.until("stuck", PATIENCE, |_| is_full());
        // More batches than one fetch returns, and fewer than those of the other partition.
        produce("0", &format!("{:0>999}\n", "later").repeat(100));
        let mut printed = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut printed).expect("UTF-8");
        reader.wait().succeeded();
        assert_eq!(printed.lines().filter(|line| line.starts_with("1 ")).count(), 1000);
        let of_small = printed.lines().filter(|line| line.starts_with("0 ")).count();
        assert_eq!(of_small, first.lines().count(), "only the records before the end");
        let next = at(&broker, &args[..args.len() - 2], "").succeeded();
        let later = next.stdout.lines().filter(|line| line.starts_with("0 ") && line.ends_with("later"));
        assert_eq!((later.count(), next.stdout.lines().count()), (100, 100), "the next reader gets the rest");
    }
}

/// The warning said that the group is not used, and the records that were read were committed for it.
#[test]
fn a_reader_of_named_partitions_does_not_commit_for_the_group_of_the_properties() {
    let broker = broker(1);
    fill(&broker, "1\n2\n");
    at(&broker, &["consume", "orders", "--group", "readers", "-e"], "").succeeded();
    fill(&broker, "3\n4\n");
    let servers = broker.bootstrap_servers();
    let args = ["consume", "orders", "-p", "0", "-b", &servers, "-X", "group.id=readers"];
    let often = ["-X", "auto.commit.interval.ms=50"];
    let mut reader = Running::start(&mut command(&[&args[..], &often].concat()), "");
    reader.until("printed", PATIENCE, |it| it.stdout() == "1\n2\n3\n4\n");
    // Time for several commits.
    std::thread::sleep(Duration::from_millis(500));
    reader.signal(rustix::process::Signal::INT);
    let ended = reader.wait().succeeded();
    assert!(ended.stderr.contains("group.id `readers` is not used"), "{}", ended.stderr);
    let described = at(&broker, &["groups", "describe", "readers"], "").succeeded();
    assert_eq!(row(&described.stdout, "0")[2..5], ["2", "4", "2"]);
}

/// It ended after the revocation, although the same rebalance had a partition for it, and before its first partition.
#[test]
fn a_member_waits_for_the_partitions_that_a_rebalance_still_assigns() {
    let broker = broker(2);
    for partition in ["0", "1"] {
        let lines = format!("{partition:0>999}\n").repeat(300);
        at(&broker, &["produce", "orders", "-p", partition, "-X", "batch.size=5000"], &lines).succeeded();
    }
    let servers = broker.bootstrap_servers();
    // Ranges in the order of the names: a new first member moves the partitions of all others.
    let start = |name: &str, more: &[&str]| {
        let args = ["consume", "orders", "-G", "readers", "-b", &servers, "-f", "%p %s\n"];
        let protocol = ["-X", "group.protocol=consumer", "-X", "group.remote.assignor=range"];
        let name = format!("group.instance.id={name}");
        let small = ["-X", "fetch.message.max.bytes=10000", "-X", &name];
        Running::start_with_pipes(&mut command(&[&args[..], &protocol, &small, more].concat()))
    };
    let members = |count: usize| {
        let described = at(&broker, &["groups", "describe", "readers"], "").stdout;
        described.contains(&format!("{count} member"))
    };
    // The other members commit nothing.
    let silent = ["-X", "enable.auto.commit=false", "--filter", "none"];
    let (mut last, _stdin, _last_output) = start("c", &silent);
    last.until("a member", PATIENCE, |_| members(1));
    let (mut reader, _stdin, mut stdout) = start("b", &["-e"]);
    let is_full = || rustix::io::ioctl_fionread(&stdout).expect("a pipe") >= 32 << 10;
    reader.until("stuck", PATIENCE, |_| is_full());
    let (mut first, _stdin, _first_output) = start("a", &silent);
    first.until("a member", PATIENCE, |_| members(3));
    let mut printed = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut printed).expect("UTF-8");
    reader.wait().succeeded();
    let of = |partition: &str| printed.lines().filter(|line| line.starts_with(partition)).count();
    assert!(of("0 ") > 0, "its first partition");
    assert_eq!(of("1 "), 300, "and the one that came for it");
}

/// Commits an offset of `orders`, partition 0, that the log need not have.
fn commit(broker: &BrokerThread, group: &str, offset: i64) {
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let offsets = [(TopicPartition::new("orders", 0), offset)].into();
    runtime.block_on(client.admin().alter_group_offsets(group, &offsets)).expect("committed");
}

/// It ended at once, with success and without a record: the same command without `-e` reads from where the reset leads.
#[test]
fn a_group_without_a_valid_offset_reads_to_the_end_from_where_the_reset_leads() {
    let broker = broker(1);
    fill(&broker, "1\n2\n3\n");
    for committed in [None, Some(99)] {
        let read = |reset: &str| {
            let group = format!("{committed:?}-{reset}");
            if let Some(offset) = committed {
                commit(&broker, &group, offset);
            }
            let reset = format!("auto.offset.reset={reset}");
            at(&broker, &["consume", "orders", "-G", &group, "-e", "-X", &reset], "")
        };
        for (reset, printed) in [("earliest", "1\n2\n3\n"), ("by_duration:PT1H", "1\n2\n3\n"), ("latest", "")]
        {
            assert_eq!(read(reset).succeeded().stdout, printed, "{committed:?} {reset}");
        }
        read("error").failed(1, &["topic `orders` partition 0", "auto.offset.reset is `error`"]);
    }
}
