//! `ottla groups` for share groups: start offsets take the place of committed ones, and no group is shown as one of another kind.

use ottla_broker::BrokerThread;
use serde_json::{Value, json};

use crate::support::{PATIENCE, Running, at, broker, command, fill};

const SHARERS: &str = "sharers";

/// The only object that a command prints as JSON.
fn object(broker: &BrokerThread, args: &[&str]) -> Value {
    let printed = at(broker, &[args, &["--output", "json"]].concat(), "").succeeded();
    serde_json::from_str(&printed.stdout).expect("one object")
}

fn reset(broker: &BrokerThread, more: &[&str]) -> crate::support::Ended {
    at(broker, &[&["groups", "reset-offsets", SHARERS], more].concat(), "")
}

/// Creates the group, from the first record of `orders` on.
fn create(broker: &BrokerThread) {
    let done =
        reset(broker, &["-t", "orders", "--to-earliest", "--create", "--share", "--execute"]).succeeded();
    assert!(done.stdout.contains("set the offsets of 2 partitions of group `sharers`"), "{}", done.stdout);
}

/// Reads the records that there are, and stays in the group.
fn member(broker: &BrokerThread, records: usize) -> Running {
    let servers = broker.bootstrap_servers();
    let args = ["consume", "orders", "--group", SHARERS, "--share", "-b", &servers];
    let mut member = Running::start(&mut command(&args), "");
    member.until("read", PATIENCE, |member| member.stdout().lines().count() == records);
    member
}

/// `describe` reported that the group does not exist.
#[test]
fn a_share_group_is_described_with_its_members_start_offsets_and_lag() {
    let broker = broker(2);
    fill(&broker, "1\n2\n3\n");
    create(&broker);
    let described = object(&broker, &["groups", "describe", SHARERS]);
    assert_eq!((&described["type"], &described["state"]), (&json!("share"), &json!("Empty")));
    assert_eq!((&described["total_lag"], &described["members"]), (&json!(3), &json!([])));
    let partitions = described["partitions"].as_array().expect("a list");
    assert_eq!(partitions.len(), 2);
    assert!(partitions.iter().all(|it| it["start"] == 0 && it["lag"] == it["end"]), "{partitions:?}");

    let mut member = member(&broker, 3);
    // The last acknowledgements are sent with the next poll.
    member
        .until("accepted", PATIENCE, |_| object(&broker, &["groups", "describe", SHARERS])["total_lag"] == 0);
    let described = object(&broker, &["groups", "describe", SHARERS]);
    assert_eq!(described["state"], "Stable");
    let members = described["members"].as_array().expect("a list");
    assert_eq!(members.len(), 1);
    for partition in described["partitions"].as_array().expect("a list") {
        assert_eq!(partition["start"], partition["end"], "{described}");
        assert_eq!(partition["members"], json!([members[0]["member"]]), "{described}");
    }
    let text = at(&broker, &["groups", "describe", SHARERS], "").succeeded().stdout;
    let header: Vec<&str> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["TOPIC", "PARTITION", "START", "END", "LAG", "MEMBER", "CLIENT", "HOST"]);
    assert!(text.starts_with("sharers  share group  Stable  1 member  "), "{text}");
    assert!(text.ends_with("total lag 0\n"), "{text}");
    at(&broker, &["groups", "describe", "sharres"], "").failed(1, &["group `sharres` does not exist"]);
}

#[test]
fn share_groups_are_listed_with_type_state_and_lag() {
    let broker = broker(2);
    fill(&broker, "1\n2\n3\n");
    create(&broker);
    at(&broker, &["consume", "orders", "-G", "readers", "-e"], "").succeeded();
    let listed = at(&broker, &["groups", "list", "--output", "json"], "").succeeded().stdout;
    let groups: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let columns: Vec<_> = groups.iter().map(|it| (&it["group"], &it["type"], &it["lag"])).collect();
    let (readers, sharers) = (json!("readers"), json!(SHARERS));
    assert_eq!(columns, [(&readers, &json!("classic"), &json!(0)), (&sharers, &json!("share"), &json!(3))]);
    let of_type = object(&broker, &["groups", "list", "--type", "share"]);
    assert_eq!((&of_type["group"], &of_type["state"]), (&sharers, &json!("Empty")));
}

#[test]
fn start_offsets_are_reset_with_execute_only_and_never_below_members() {
    let broker = broker(2);
    fill(&broker, "1\n2\n3\n");
    reset(&broker, &["-t", "orders", "--to-latest"])
        .failed(1, &["group `sharers` does not exist", "--create"]);
    create(&broker);
    let lag = || object(&broker, &["groups", "describe", SHARERS])["total_lag"].clone();
    for target in [&["--to-latest"][..], &["--to", "end", "--dry-run"]] {
        let planned = reset(&broker, target).succeeded();
        assert!(planned.stderr.contains("dry run: add --execute"), "{}", planned.stderr);
        assert!(planned.stdout.starts_with("TOPIC"), "{}", planned.stdout);
        assert_eq!(lag(), 3, "{target:?}");
    }
    for (target, expected) in [
        (&["--to-latest"][..], 0),
        (&["--to-earliest"], 3),
        (&["--to-time", "2100-01-01"], 0),
        (&["--to-time", "@0"], 3),
        (&["-t", "orders", "--to-offset", "99"], 0),
        (&["--to-offset", "0"], 3),
    ] {
        reset(&broker, &[target, &["--execute"]].concat()).succeeded();
        assert_eq!(lag(), expected, "{target:?}");
    }
    let member = member(&broker, 3);
    reset(&broker, &["--to-earliest", "--execute"]).failed(1, &["has 1 active member: stop it first"]);
    drop(member);
}

#[test]
fn start_offsets_are_deleted_by_topic_and_the_group_without_members() {
    let broker = broker(2);
    fill(&broker, "1\n2\n3\n");
    create(&broker);
    let delete = |topic| at(&broker, &["groups", "delete-offsets", SHARERS, "-t", topic], "");
    delete("orders:0").failed(1, &["`sharers` is a share group", "use --topic orders without :0"]);
    delete("other").failed(1, &["share group `sharers` has no start offset of topic `other`"]);
    let deleted = delete("orders").succeeded().stdout;
    assert_eq!(deleted.lines().count(), 3, "a row for each partition: {deleted}");
    assert_eq!(object(&broker, &["groups", "describe", SHARERS])["partitions"], json!([]));
    create(&broker);
    let member = member(&broker, 3);
    at(&broker, &["groups", "delete", SHARERS], "")
        .failed(1, &["group `sharers` has 1 active member: stop it first"]);
    drop(member);
}

#[test]
fn a_group_of_one_kind_is_not_taken_for_the_other() {
    let broker = broker(2);
    fill(&broker, "1\n2\n3\n");
    create(&broker);
    at(&broker, &["consume", "orders", "-G", "readers", "-e"], "").succeeded();
    let reset = ["groups", "reset-offsets", "readers", "--to-earliest", "--create", "--share"];
    at(&broker, &reset, "").failed(1, &["group `readers` is not a share group", "leave out --share"]);
    at(&broker, &["groups", "delete", SHARERS], "").succeeded();
    at(&broker, &["groups", "describe", SHARERS], "").failed(1, &["group `sharers` does not exist"]);
}
