//! Messages to people who use a command for the first time: nothing is ignored or repeated without a word.

use std::fs::File;
use std::process::Stdio;

use ottla_broker::{Broker, BrokerConfig};
use rustix::process::Signal;

use crate::support::{PATIENCE, Running, at, broker, command, fill, ottla};

/// The variable won over `-X` and `--config`.
#[test]
fn the_command_line_wins_over_the_environment() {
    let broker = broker(1);
    let given = format!("bootstrap.servers={}", broker.bootstrap_servers());
    let args = ["topics", "list", "-X", &given];
    let mut list = command(&args);
    let listed = Running::start(list.env("OTTLA_BROKERS", "127.0.0.1:1"), "").wait().succeeded();
    assert_eq!(listed.stdout, "orders\n");
}

/// The names of Kafka's tools were unknown.
#[test]
fn the_servers_may_be_given_by_the_names_of_kafkas_tools() {
    let broker = broker(1);
    for name in ["--bootstrap-server", "--bootstrap-servers"] {
        let listed = ottla(&["topics", "list", name, &broker.bootstrap_servers()], "").succeeded();
        assert_eq!(listed.stdout, "orders\n", "{name}");
    }
}

#[test]
fn records_without_acknowledgements_are_not_called_acknowledged() {
    let broker = broker(1);
    let sent = at(&broker, &["produce", "orders", "--acks", "0"], "1\n2\n").succeeded();
    assert!(sent.stderr.contains("2 records sent, not acknowledged"), "{sent:?}");
}

/// The options had no effect, without a word.
#[test]
fn options_that_exclude_each_other_are_usage_errors() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    ottla(&["produce", "orders", "-K", ":", "--whole-file", path], "").failed(2, &["--whole-file"]);
    ottla(&["topics", "list", "--sasl-password-file", path], "").failed(2, &["--sasl-user"]);
    let fault = |args: &str| {
        let words: Vec<&str> = args.split(' ').collect();
        ottla(&[&["fault"], &words[..], &["--control", "unix:/nowhere"]].concat(), "")
    };
    fault("move --to 1 --group billing --partition 1").failed(2, &["--partition"]);
    fault("node 1 stop --lag-ms 5").failed(2, &["--lag-ms"]);
}

/// `-G "$GROUP"` with an unset variable read the topic without a group, and committed nothing.
#[test]
fn a_group_without_a_name_is_a_usage_error() {
    ottla(&["consume", "orders", "-e", "-G", ""], "").failed(2, &["--group"]);
    ottla(&["run", "-t", "orders", "-G", "", "--", "cat"], "").failed(2, &["--group"]);
    let create = ["groups", "reset-offsets", "", "--create", "-t", "orders", "--to-earliest", "--execute"];
    ottla(&create, "").failed(2, &["no name"]);
}

/// It named a directory for records that were in memory only, and ignored that of `--data`.
#[test]
fn a_demo_in_memory_names_no_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let (lines, data) = (dir.path().join("lines"), dir.path().join("data"));
    std::fs::write(&lines, "1\n2\n").expect("written");
    let (lines, data) = (lines.to_str().expect("UTF-8"), data.to_str().expect("UTF-8"));
    let in_memory = ["demo", "--durability", "memory", lines];
    let ended = ottla(&in_memory, "").succeeded();
    assert!(ended.stdout.contains("with its data in memory (acknowledged: "), "{}", ended.stdout);
    ottla(&[&in_memory[..], &["--data", data]].concat(), "")
        .failed(2, &["--data", "nothing would be stored"]);
}

/// The demo failed in a directory with a minified script.
#[test]
fn a_demo_of_a_directory_splits_long_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("a.js"), "x".repeat(2_000_000) + "\nend\n").expect("written");
    let mut demo = command(&["demo", "--durability", "memory"]);
    let ended = Running::start(demo.current_dir(dir.path()), "").wait().succeeded();
    assert!(ended.stdout.contains("acknowledged: "), "{ended:?}");
}

/// The levels of a new data directory, as in `kafka-storage.sh format`.
#[test]
fn levels_of_features_that_do_not_exist_are_refused() {
    let start = ["broker", "--durability", "memory", "--listen", "127.0.0.1:0"];
    for (flag, value, words) in [
        ("--release-version", "3.3-IV1", "Unknown metadata.version '3.3-IV1'"),
        ("--feature", "no.such.version=1", "Unsupported feature: no.such.version"),
        ("--feature", "group.version=2", "No feature:group.version with feature level 2"),
        ("--feature", "group.version=on", "use a number"),
        ("--feature", "group.version", "key=value"),
    ] {
        ottla(&[&start[..], &[flag, value]].concat(), "").failed(2, &[words]);
    }
}

/// Shells offered the names of files for values that are known.
#[test]
fn shells_complete_known_values() {
    let script = ottla(&["completions", "bash"], "").succeeded().stdout;
    for values in [
        "disk os memory",
        "0.11 2.8 3.9 4.1 4.3",
        "none gzip snappy lz4 zstd",
        "none partition key",
        "all read write",
        "Empty PreparingRebalance",
        "Empty Ongoing",
    ] {
        assert!(script.contains(&format!("compgen -W \"{values}")), "{values}");
    }
    // The errors are those of the parsers, for other spellings as well.
    ottla(&["broker", "--durability", "disc"], "").failed(2, &["use disk, os or memory"]);
    ottla(&["groups", "list", "--state", "stabel"], "").failed(2, &["is no state of a group"]);
}

/// The bytes of the refused records counted: `0 records acknowledged, 7 bytes`.
#[test]
fn a_summary_has_the_bytes_of_the_acknowledged_records() {
    let broker = broker(1);
    at(&broker, &["produce", "orders", "-p", "9"], "refused\n")
        .failed(1, &["0 records acknowledged, 0 bytes", "no such partition"]);
    let sent = at(&broker, &["produce", "orders", "-k", "key"], "written\n").succeeded();
    assert!(sent.stderr.contains("1 record acknowledged, 10 bytes"), "{}", sent.stderr);
}

/// `-1` was an unknown option, although it is the value of Kafka's `acks` for `all`.
#[test]
fn all_acknowledgements_may_be_minus_one() {
    let broker = broker(1);
    let sent = at(&broker, &["produce", "orders", "--acks", "-1"], "1\n").succeeded();
    assert!(sent.stderr.contains("acknowledged") && !sent.stderr.contains("not acknowledged"), "{sent:?}");
    at(&broker, &["produce", "orders", "--acks", "-2"], "1\n").failed(2, &["-2"]);
}

#[test]
fn a_tab_is_a_delimiter_and_nothing_is_none() {
    let broker = broker(1);
    at(&broker, &["produce", "orders", "-K", r"\t"], "key\tvalue\n").succeeded();
    let read = at(&broker, &["consume", "orders", "-e", "-f", "%k=%s"], "").succeeded();
    assert_eq!(read.stdout, "key=value");
    at(&broker, &["produce", "orders", "-K", ""], "").failed(2, &["empty"]);
}

/// The partition was printed again from its beginning.
#[test]
fn an_offset_out_of_range_is_reported_and_repeats_no_record() {
    let broker = broker(1);
    fill(&broker, "1\n2\n3\n4\n");
    let beyond = at(&broker, &["consume", "orders", "-p", "0", "-o", "99", "-e"], "").succeeded();
    assert!(beyond.stderr.contains("offset 99 is out of range, the log has 0 to 4"), "{beyond:?}");
    assert_eq!(beyond.stdout, "");
    at(&broker, &["topics", "delete-records", "orders:0", "--before", "2"], "").succeeded();
    let below = at(&broker, &["consume", "orders", "-p", "0", "-o", "1", "-e"], "").succeeded();
    assert!(below.stderr.contains("offset 1 is out of range, the log has 2 to 4"), "{below:?}");
    assert_eq!(below.stdout, "3\n4\n");
    // There was nothing to read, so the command succeeded without a word.
    let error = ["-o", "99", "-e", "-X", "auto.offset.reset=error"];
    at(&broker, &[&["consume", "orders"], &error[..]].concat(), "")
        .failed(1, &["topic `orders` partition 0: offset 99 is out of range"]);
}

/// It was out of range, and the command began at the first record of the transaction.
#[test]
fn an_offset_within_an_open_transaction_is_in_the_log() {
    let broker = broker(1);
    fill(&broker, "1\n");
    let producer = crate::administration::open_transaction(&broker, "billing");
    let end = broker.cluster().offsets_of("orders", 0).expect("a topic").1;
    assert!(end > 1, "{end}");
    let read = at(&broker, &["consume", "orders", "-o", &end.to_string(), "-e"], "").succeeded();
    assert!(!read.stderr.contains("out of range") && read.stdout.is_empty(), "{read:?}");
    drop(producer);
}

/// The command waited for ever.
#[test]
fn a_topic_that_is_deleted_ends_its_reader() {
    let broker = broker(1);
    fill(&broker, "1\n");
    let servers = broker.bootstrap_servers();
    let mut alone = Running::start(&mut command(&["consume", "orders", "-b", &servers]), "");
    let mut member = Running::start(&mut command(&["consume", "orders", "-G", "g", "-b", &servers]), "");
    alone.until("reading", PATIENCE, |it| it.stdout() == "1\n");
    member.until("reading", PATIENCE, |it| it.stdout() == "1\n");
    at(&broker, &["topics", "delete", "orders"], "").succeeded();
    alone.wait().failed(1, &["topic `orders` was deleted"]);
    member.until("warned", PATIENCE, |it| it.stderr().contains("topic `orders` was deleted"));
}

#[test]
fn a_group_of_the_other_kind_is_named() {
    let broker = broker(1);
    fill(&broker, "1\n");
    at(&broker, &["consume", "orders", "-G", "committing", "-e"], "").succeeded();
    let create =
        ["groups", "reset-offsets", "sharing", "-t", "orders", "--to-earliest", "--create", "--share"];
    at(&broker, &[&create[..], &["--execute"]].concat(), "").succeeded();
    at(&broker, &["consume", "orders", "-G", "sharing"], "").failed(1, &["is a share group", "--share"]);
    at(&broker, &["consume", "orders", "--share", "-G", "committing"], "")
        .failed(1, &["is a consumer group", "--share"]);
    at(&broker, &["run", "-t", "orders", "-G", "sharing", "--", "cat"], "").failed(1, &["is a share group"]);
}

/// Three limits were reported, one after the other.
#[test]
fn a_large_record_names_the_limits_to_raise() {
    let broker = broker(1);
    let line = "a".repeat(1_200_000);
    let limits = ["message.max.bytes", "max.message.bytes"];
    let refused = at(&broker, &["produce", "orders"], &line).failed(1, &limits);
    assert!(!refused.stderr.contains("partition -1"), "{refused:?}");
    let raised = ["produce", "orders", "-z", "none", "-X", "message.max.bytes=2000000"];
    at(&broker, &raised, &line)
        .failed(1, &["MESSAGE_TOO_LARGE", "`ottla topics configs orders --set max.message.bytes=BYTES`"]);
    at(&broker, &["topics", "configs", "orders", "--set", "max.message.bytes=2000000"], "").succeeded();
    at(&broker, &raised, &line).succeeded();
}

/// The first failure ended the command.
#[test]
fn a_command_for_several_topics_continues_after_a_failure() {
    let broker = broker(1);
    let created = at(&broker, &["topics", "create", "orders", "bills", "orders:2"], "");
    let created = created.failed(1, &["`orders`"]);
    assert_eq!((&*created.stdout, created.stderr.lines().count()), ("created bills\n", 2), "{created:?}");
    let deleted = at(&broker, &["topics", "delete", "bils", "bills"], "").failed(1, &["topic `bils`"]);
    assert_eq!(deleted.stdout, "deleted bills\n");
    at(&broker, &["consume", "orders", "-G", "a", "-e"], "").succeeded();
    let deleted = at(&broker, &["groups", "delete", "b", "a"], "").failed(1, &["group `b`"]);
    assert_eq!(deleted.stdout, "deleted a\n");
}

#[test]
fn a_topic_that_the_broker_does_not_create_is_reported_as_unknown() {
    let mut config = BrokerConfig::default();
    config.set("auto.create.topics.enable", "false").expect("a property");
    let broker = Broker::builder().config(config).memory().spawn().expect("a broker in memory");
    at(&broker, &["produce", "orders"], "1\n").failed(1, &["topic `orders` does not exist"]);
}

#[test]
fn filters_name_things_that_exist() {
    let broker = broker(1);
    at(&broker, &["groups", "list", "--state", "stabel"], "").failed(2, &["`stabel`", "Stable"]);
    at(&broker, &["groups", "list", "--type", "foo"], "").failed(2, &["`foo`", "consumer"]);
    at(&broker, &["transactions", "list", "--state", "foo"], "").failed(2, &["`foo`", "Ongoing"]);
    at(&broker, &["logdirs", "--node", "7"], "").failed(1, &["there is no node 7"]);
    at(&broker, &["logdirs", "--topic", "nope"], "").failed(1, &["topic `nope` does not exist"]);
    at(&broker, &["clients", "unsubscribe", "nope"], "").failed(1, &["no subscription `nope`"]);
    let delete = ["quotas", "delete", "--user", "anna", "producer_byte_rate"];
    at(&broker, &delete, "").failed(1, &["user `anna` has no quota `producer_byte_rate`"]);
}

/// The group was ignored.
#[test]
fn the_property_with_the_group_is_used() {
    let broker = broker(1);
    fill(&broker, "1\n");
    let read = ["consume", "orders", "-e", "-X", "group.id=readers"];
    assert_eq!(at(&broker, &read, "").succeeded().stdout, "1\n");
    assert_eq!(at(&broker, &read, "").succeeded().stdout, "", "the group has committed");
}

#[test]
fn usage_errors_and_help_have_their_exit_codes() {
    ottla(&["topics", "list", "--config", "/nonexistent/file"], "").failed(2, &["/nonexistent/file"]);
    let negative = ottla(&["consume", "orders", "-c", "-1"], "").failed(2, &["'-1'", "from 1 to"]);
    let count = ["fault", "add", "Fetch", "cut", "--count", "99999999999", "--control", "unix:/nowhere"];
    ottla(&count, "").failed(2, &["'99999999999'", "'--count <N>'", "from 0 to 4294967295"]);
    ottla(&["topics", "create", "a:99999999999"], "").failed(2, &["a:99999999999", "from 1 to 2147483647"]);
    assert!(!negative.stderr.contains("'-- -1'"), "{negative:?}");
    let full = File::options().write(true).open("/dev/full").expect("a device");
    let help = command(&["--help"]).stdout(full).stderr(Stdio::piped()).output().expect("it runs");
    assert_eq!(help.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&help.stderr).contains("standard output: no space left"), "{help:?}");
}

/// One of the two arguments was ignored.
#[test]
fn a_broker_refuses_arguments_that_exclude_each_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let data = data.to_str().expect("UTF-8");
    for (args, word) in [
        (&["--data", data, "--durability", "memory"][..], "memory"),
        (&["--data", data, "-X", "log.dirs=elsewhere"], "log.dirs"),
        (&["--data", data, "--listen", "127.0.0.1:0", "-X", "listeners=PLAINTEXT://:0"], "listeners"),
        (
            &["--advertise", "b", "-X", "listeners=A://:0", "-X", "advertised.listeners=A://a:1"],
            "--advertise and -X advertised.listeners",
        ),
        (&["--data", data, "--topic", "a:3", "--topic", "a:5"], "--topic a"),
    ] {
        ottla(&[&["broker"], args].concat(), "").failed(2, &[word]);
    }
}

/// The topic was created, and reported as missing.
#[test]
fn a_program_does_not_create_the_topic_that_it_waits_for() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    let args = ["run", "-t", "oders", "-G", "workers", "-b", &servers, "--", "cat"];
    let mut run = Running::start(&mut command(&args), "");
    run.until("waiting", PATIENCE, |it| it.stderr().contains("topic `oders` does not exist"));
    // The group is joined and has asked for its topics.
    let describe = ["groups", "describe", "workers"];
    run.until("a member", PATIENCE, |_| at(&broker, &describe, "").stdout.contains("1 member"));
    run.signal(Signal::INT);
    run.wait().succeeded();
    assert_eq!(at(&broker, &["topics", "list"], "").succeeded().stdout, "orders\n");
}

#[test]
fn results_of_changes_are_on_standard_output() {
    let broker = broker(1);
    let set = at(&broker, &["topics", "configs", "orders", "--set", "retention.ms=1000"], "").succeeded();
    assert!(set.stdout.starts_with("changed orders\n"), "{set:?}");
    let quota = ["quotas", "set", "--user", "anna", "producer_byte_rate=1048576"];
    assert_eq!(at(&broker, &quota, "").succeeded().stdout, "set producer_byte_rate=1048576\n");
}

/// The broker refused the changes, or which value applied was up to it.
#[test]
fn of_a_key_that_comes_twice_the_last_value_applies() {
    let broker = broker(1);
    let twice = ["--set", "retention.ms=1000", "--set", "retention.ms=2000"];
    at(&broker, &[&["topics", "create", "other"], &twice[..]].concat(), "").succeeded();
    for topic in ["orders", "other"] {
        let more = if topic == "orders" { &twice[..] } else { &[] };
        let configs = at(&broker, &[&["topics", "configs", topic], more].concat(), "").succeeded();
        assert!(configs.stdout.contains(" 2000 ") && !configs.stdout.contains("1000"), "{configs:?}");
    }
    let quota = ["quotas", "set", "--user", "anna", "producer_byte_rate=1", "producer_byte_rate=2"];
    assert_eq!(at(&broker, &quota, "").succeeded().stdout, "set producer_byte_rate=2\n");
    let delete = ["quotas", "delete", "--user", "anna", "producer_byte_rate", "producer_byte_rate"];
    assert_eq!(at(&broker, &delete, "").succeeded().stdout, "deleted producer_byte_rate\n");
    let two = ["topics", "configs", "orders", "--set", "retention.ms=1", "--delete", "retention.ms"];
    at(&broker, &two, "").failed(2, &["`retention.ms` has two changes"]);
}

/// The number of partitions was ignored without a word.
#[test]
fn a_topic_that_exists_is_reported_with_its_number_of_partitions() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("UTF-8");
    let start = |topic: &str| {
        let args =
            ["broker", "--data", data, "--durability", "os", "--listen", "127.0.0.1:0", "--topic", topic];
        let mut broker = Running::start(&mut command(&args), "");
        broker.until("listening", PATIENCE, |it| it.stdout().ends_with('\n'));
        let servers = broker.stdout().trim_start_matches("listening on ").trim_end().to_owned();
        (broker, servers)
    };
    for (topic, warning) in [
        ("orders:2", ""),
        ("orders:5", "--topic orders:5: the topic exists and has 2 partitions"),
        ("orders:2", ""),
        ("orders", ""),
    ] {
        let (broker, servers) = start(topic);
        let create = ["topics", "create", "orders:5", "-b", &servers];
        ottla(&create, "").failed(1, &["topic `orders` exists and has 2 partitions"]);
        let tolerant = ottla(&[&create[..], &["--if-not-exists"]].concat(), "").succeeded();
        assert_eq!(tolerant.stdout, "orders exists and has 2 partitions\n");
        broker.signal(Signal::TERM);
        let stderr = broker.wait().succeeded().stderr;
        assert!(stderr.contains(warning), "{stderr}");
        assert_eq!(stderr.contains("exists"), !warning.is_empty(), "{stderr}");
    }
}

#[test]
fn a_data_directory_in_use_names_the_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let data = data.to_str().expect("UTF-8");
    let args = ["broker", "--data", data, "--durability", "os", "--listen", "127.0.0.1:0"];
    let mut first = Running::start(&mut command(&args), "");
    first.until("listening", PATIENCE, |it| it.stdout().contains("listening on"));
    ottla(&args, "").failed(1, &["in use by another process", &format!("(process {})", first.id())]);
    first.signal(Signal::TERM);
    first.wait().succeeded();
}

#[test]
fn a_file_is_no_data_directory() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    ottla(&["broker", "--data", path, "--listen", "127.0.0.1:0"], "")
        .failed(1, &["is a file, not a directory"]);
}

#[test]
fn a_port_in_use_points_to_the_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    ottla(&["broker", "--durability", "memory", "--listen", &address], "").failed(1, &[&address, "--listen"]);
}

/// clap advised to pass such an option as a value, or offered one with a similar name.
#[test]
fn an_option_of_another_tool_is_answered_with_that_of_this_one() {
    for (line, tip) in [
        ("consume orders --max-messages 5", "--count N"),
        ("consume orders -K :", "-f '%k:%s\\n'"),
        ("topics list --command-config client.properties", "--config FILE"),
        ("topics --list", "ottla topics list"),
        ("cluster --json", "--output json"),
        ("broker --data data --port 9092", "--listen HOST:PORT"),
    ] {
        let refused = ottla(&line.split(' ').collect::<Vec<_>>(), "").failed(2, &[tip]);
        assert_eq!(refused.stderr.matches("tip:").count(), 1, "{line}: {}", refused.stderr);
    }
}

/// `--topic` was an option of every command of a topic but this one.
#[test]
fn a_topic_to_create_may_be_named_as_in_kafkas_tool() {
    let broker = broker(1);
    let created = at(&broker, &["topics", "create", "-t", "a:2", "--topic", "b"], "").succeeded();
    assert_eq!(created.stdout, "created a\ncreated b\n");
    let described = at(&broker, &["topics", "describe", "a"], "").succeeded();
    assert!(described.stdout.contains("2 partitions"), "{described:?}");
    ottla(&["topics", "create"], "").failed(2, &["NAME[:PARTITIONS]"]);
    ottla(&["topics", "create", "a", "--topic", "b"], "").failed(2, &["--topic"]);
}

/// It was `retention.ms=1: no such file or directory`.
#[test]
fn a_config_of_a_topic_in_place_of_a_file_is_answered_with_its_option() {
    let words = ["--config is for a file", "--set retention.ms=1"];
    ottla(&["topics", "create", "a", "--config", "retention.ms=1"], "").failed(2, &words);
    ottla(&["topics", "list", "--config", "no-such-file"], "").failed(2, &["no-such-file: no such file"]);
}

/// It was "in use by another broker", which was the same one.
#[test]
fn the_data_directory_is_no_secure_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8");
    for secure in [path.to_owned(), format!("{path}/.")] {
        let args = ["broker", "--listen", "127.0.0.1:0", "--data", path, "--secure", &secure];
        ottla(&args, "").failed(2, &["this is the data directory", "/secure"]);
    }
}

/// The error had no remedy.
#[test]
fn a_property_that_no_client_has_is_answered_with_what_there_is() {
    for (property, words) in [
        ("print.key=true", ["Kafka's console tools", "-f '%k:%s\\n'"]),
        ("no.such.thing.at.all=1", ["no property is called", "`ottla properties`"]),
        ("enable.auto.comit=1", ["no property is called", "did you mean `enable.auto.commit`?"]),
    ] {
        ottla(&["consume", "orders", "--property", property], "").failed(2, &words);
    }
}

/// They were ignored without a word: clients found a listener without security.
#[test]
fn properties_of_listeners_need_listeners() {
    let start = ["broker", "--durability", "memory"];
    for property in
        ["ssl.client.auth=required", "sasl.enabled.mechanisms=PLAIN", "advertised.listeners=A://a:1"]
    {
        let name = property.split('=').next().unwrap_or_default();
        let problem = format!("`{name}` has no effect without `listeners`");
        ottla(&[&start[..], &["-X", property]].concat(), "").failed(2, &[&*problem]);
        let listening = [&start[..], &["--listen", "127.0.0.1:0", "-X", property]].concat();
        let mut broker = Running::start(&mut command(&listening), "");
        broker.until("listening", PATIENCE, |it| it.stdout().contains("listening on"));
        assert!(broker.stderr().contains(&format!("warning: {problem}")), "{}", broker.stderr());
    }
}

/// Each record failed, because "producing cannot be called before init_transactions".
#[test]
fn a_transactional_id_is_refused_before_records_are_read() {
    let args = ["produce", "orders", "-b", "127.0.0.1:1", "-X", "transactional.id=till"];
    ottla(&args, "1\n").failed(2, &["transactional.id", "without transactions"]);
}

/// There were "1 nodes".
#[test]
fn a_replication_factor_above_the_number_of_nodes_is_explained() {
    let broker = broker(1);
    let words = ["replication factor 3, but there is 1 node; start the broker with --nodes 3"];
    at(&broker, &["topics", "create", "a", "-r", "3"], "").failed(1, &words);
}
