//! The commands that administer a cluster, and their JSON.

use std::collections::BTreeMap;
use std::path::Path;

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use ottla_client::{Client, Config, Producer, Record};
use serde_json::{Value, json};

use crate::support::{PATIENCE, at, broker, fill};

/// The objects that a command prints as JSON.
fn objects(broker: &BrokerThread, args: &[&str]) -> Vec<Value> {
    let printed = at(broker, &[args, &["--output", "json"]].concat(), "").succeeded();
    printed.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A producer with an open transaction that has one record in `orders`.
pub(crate) fn open_transaction(broker: &BrokerThread, id: &str) -> Producer {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("transactional.id", id).expect("valid");
    let producer = Client::new(config).expect("a client").producer();
    producer.init_transactions_blocking(PATIENCE).expect("initialized");
    producer.begin_transaction().expect("begun");
    producer.send_unobserved_blocking(Record::to("orders").value("1")).expect("taken");
    producer.flush_blocking(PATIENCE).expect("written");
    producer
}

/// A broker with ACLs, in which the tests may do everything.
fn with_authorizer() -> BrokerThread {
    let broker = Broker::builder().memory().topic("orders", 2).topic("other", 1).configure(|config| {
        let standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        config.set("authorizer.class.name", standard).expect("an authorizer");
        config.set("super.users", "User:ANONYMOUS").expect("a super user");
    });
    broker.spawn().expect("a broker")
}

/// The header of a table was on standard output, as if there were an empty result.
#[test]
fn a_command_that_finds_nothing_prints_no_header() {
    let broker = with_authorizer();
    for (args, words) in [
        ("topics configs nope", "topic `nope` does not exist"),
        ("topics partitions nope", "topic `nope` does not exist"),
        ("transactions describe nope", "transactional id `nope` does not exist"),
    ] {
        let failed = at(&broker, &args.split(' ').collect::<Vec<_>>(), "").failed(1, &[words]);
        assert_eq!(failed.stdout, "", "{args}");
    }
    let some = at(&broker, &["topics", "partitions", "other", "nope"], "").failed(1, &["`nope`"]);
    assert_eq!(some.stdout.lines().count(), 2, "{some:?}");
}

/// It failed: scripts that remove ACLs which may be gone expect the exit code of `kafka-acls.sh --remove`.
#[test]
fn a_deletion_that_matches_no_acl_succeeds_and_reports_it() {
    let broker = with_authorizer();
    for (condition, word) in [("--topic=nope", "no ACL matches"), ("--all", "there are no ACLs")] {
        for output in ["table", "json"] {
            let args = ["acls", "delete", condition, "--output", output];
            let deleted = at(&broker, &args, "").succeeded();
            assert_eq!(deleted.stdout, "", "{args:?}");
            assert!(deleted.stderr.contains(word), "{deleted:?}");
        }
    }
}

#[test]
fn acls_are_added_listed_and_deleted() {
    let broker = with_authorizer();
    let add = |args: &str| at(&broker, &args.split(' ').collect::<Vec<_>>(), "");
    add("acls add --principal User:anna --operation read --operation write -t orders --group g").succeeded();
    add("acls add --principal User:* --operation describe -t or --prefixed").succeeded();
    add("acls add --principal User:bo --operation alter-configs --cluster --deny --host 10.0.0.1")
        .succeeded();
    let names = |args: &[&str]| -> Vec<String> {
        let acls = objects(&broker, args).into_iter();
        let text = |acl: Value| {
            format!("{} {} {} {}", acl["permission"], acl["operation"], acl["name"], acl["principal"])
        };
        acls.map(|acl| text(acl).replace('"', "")).collect()
    };
    assert_eq!(names(&["acls", "list"]).len(), 6);
    assert_eq!(
        names(&["acls", "list", "-t", "orders", "--matching"]),
        ["ALLOW DESCRIBE or User:*", "ALLOW READ orders User:anna", "ALLOW WRITE orders User:anna"]
    );
    assert_eq!(
        names(&["acls", "delete", "--principal", "User:bo"]),
        ["DENY ALTER_CONFIGS kafka-cluster User:bo"]
    );
    add("acls delete").failed(2, &["give a condition", "--all"]);
    add("acls add --principal User:anna --operation read").failed(2, &["give a resource"]);
    add("acls add --principal User:anna --operation reed -t orders").failed(2, &["reed", "describe_configs"]);
    add("acls add --principal anna --operation read -t orders").failed(1, &["`anna` is no principal"]);
    assert_eq!(names(&["acls", "delete", "--all"]).len(), 5);
    assert!(names(&["acls", "list"]).is_empty());
}

/// A deletion took the ACLs of a prefix along, and denials with what they restrict.
#[test]
fn a_deletion_of_acls_is_limited_to_literal_names_and_to_a_permission() {
    let broker = with_authorizer();
    let run = |args: &str| at(&broker, &args.split(' ').collect::<Vec<_>>(), "");
    run("acls add --principal User:anna --operation read -t orders").succeeded();
    run("acls add --principal User:anna --operation read -t orders --prefixed").succeeded();
    run("acls add --principal User:bo --operation read -t orders --deny").succeeded();
    let left = || -> Vec<String> {
        let acls = objects(&broker, &["acls", "list"]).into_iter();
        let text = |acl: Value| format!("{} {}", acl["permission"], acl["pattern"]).replace('"', "");
        let mut left: Vec<String> = acls.map(text).collect();
        left.sort_unstable();
        left
    };
    run("acls list -t orders --literal --prefixed").failed(2, &["--literal", "--prefixed"]);
    assert_eq!(objects(&broker, &["acls", "list", "-t", "orders", "--literal"]).len(), 2);
    run("acls delete -t orders --allow").succeeded();
    assert_eq!(left(), ["ALLOW PREFIXED", "DENY LITERAL"]);
    run("acls delete -t orders --deny").succeeded();
    assert_eq!(left(), ["ALLOW PREFIXED"]);
    let none = run("acls delete -t orders").succeeded();
    assert!(none.stderr.contains("no ACL matches"), "{none:?}");
    assert_eq!(left(), ["ALLOW PREFIXED"]);
    run("acls delete -t orders --prefixed").succeeded();
    assert!(left().is_empty());
}

#[test]
fn quotas_are_set_listed_and_deleted() {
    let broker = broker(1);
    let run = |args: &str| at(&broker, &args.split(' ').collect::<Vec<_>>(), "");
    run("quotas set --user anna producer_byte_rate=1048576 request_percentage=12.5").succeeded();
    run("quotas set --user <default> --client-id till consumer_byte_rate=1000").succeeded();
    run("quotas set --ip 10.0.0.1 connection_creation_rate=5").succeeded();
    let found = objects(&broker, &["quotas", "list"]);
    assert_eq!(found.len(), 4, "{found:?}");
    let of_till = objects(&broker, &["quotas", "list", "--client-id", "till"]);
    let expected = json!({
        "user": "<default>", "client_id": "till", "ip": null, "quota": "consumer_byte_rate", "value": 1000.0
    });
    assert_eq!(of_till, [expected]);
    run("quotas delete --user anna producer_byte_rate").succeeded();
    assert_eq!(objects(&broker, &["quotas", "list", "--user", "anna"]).len(), 1);
    run("quotas set producer_byte_rate=1").failed(2, &["--user, --client-id or --ip"]);
    run("quotas set --user anna bytes=1").failed(1, &["`bytes` is no quota of this entity"]);
}

#[test]
fn clients_are_asked_for_metrics_and_a_selector_is_checked() {
    let broker = broker(1);
    let run = |args: &str| at(&broker, &args.split(' ').collect::<Vec<_>>(), "");
    run("clients subscribe tills --metrics org.apache.kafka.producer --interval-ms 1000 --match client_id=till-.*")
        .succeeded();
    run("clients subscribe tills --metrics * --match color=red")
        .failed(1, &["color", "client_software_name"]);
    run("clients subscribe tills --metrics * --interval-ms 1").failed(1, &["interval.ms", "100"]);
    run("clients subscribe tills").failed(2, &["--metrics"]);
    run("clients unsubscribe tills").succeeded();
}

#[test]
fn the_documented_keys_of_each_command_are_those_that_it_prints() {
    let broker = with_authorizer();
    at(&broker, &["acls", "add", "--principal", "User:anna", "--operation", "read", "-t", "orders"], "")
        .succeeded();
    at(&broker, &["quotas", "set", "--user", "anna", "request_percentage=50"], "").succeeded();
    fill(&broker, "1\n2\n3\n");
    at(&broker, &["consume", "orders", "-G", "readers", "-e"], "").succeeded();
    let _producer = open_transaction(&broker, "billing");
    let password = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(password.path(), "secret").expect("written");
    let password = password.path().to_str().expect("UTF-8");
    at(&broker, &["users", "add", "alice", "--password-file", password], "").succeeded();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/COMMANDS.md");
    let document = std::fs::read_to_string(path).expect("readable");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `ottla ")?.strip_suffix(" |"));
    let documented: BTreeMap<&str, Vec<&str>> = rows
        .filter_map(|row| {
            let mut cells = row.split(" | ");
            let (command, _, keys) = (cells.next()?, cells.next()?, cells.next()?);
            Some((command.trim_end_matches('`'), keys.split(' ').map(|key| key.trim_matches('`')).collect()))
        })
        .collect();
    let commands = [
        ("topics list", "topics list"),
        ("topics describe", "topics describe orders"),
        ("topics partitions", "topics partitions"),
        ("topics configs", "topics configs orders --all"),
        ("topics delete-records", "topics delete-records orders:0 --before 0"),
        ("groups list", "groups list"),
        ("groups describe", "groups describe readers"),
        ("groups delete-offsets", "groups delete-offsets readers --topic orders"),
        ("transactions list", "transactions list"),
        ("users list", "users list"),
        ("transactions describe", "transactions describe billing"),
        ("cluster", "cluster"),
        ("acls list", "acls list"),
        ("acls delete", "acls delete --topic orders"),
        ("quotas list", "quotas list"),
        ("logdirs", "logdirs"),
        ("logdirs --replicas", "logdirs --replicas"),
    ];
    // `interop/tests/metrics.rs` has those of the control address.
    let documented: BTreeMap<&str, Vec<&str>> =
        documented.into_iter().filter(|(name, _)| !name.starts_with("clients ")).collect();
    assert_eq!(documented.len(), commands.len(), "{documented:?}");
    for (name, command) in commands {
        let printed = objects(&broker, &command.split(' ').collect::<Vec<_>>());
        let first = printed.first().unwrap_or_else(|| panic!("ottla {command} prints nothing"));
        let keys: Vec<&String> = first.as_object().expect("an object").keys().collect();
        assert_eq!(keys, documented[name], "ottla {name}");
    }
}

#[test]
fn partitions_are_added_and_never_removed() {
    let broker = broker(1);
    let alter = |partitions, more: &[&str]| {
        at(&broker, &[&["topics", "alter", "orders", "--partitions", partitions], more].concat(), "")
    };
    assert_eq!(alter("3", &["--dry-run"]).succeeded().stdout, "dry run: orders can have 3 partitions\n");
    assert_eq!(objects(&broker, &["topics", "partitions"]).len(), 1);
    assert_eq!(alter("3", &[]).succeeded().stdout, "orders has 3 partitions\n");
    assert_eq!(objects(&broker, &["topics", "partitions", "orders"]).len(), 3);
    alter("2", &[]).failed(1, &["orders", "INVALID_PARTITIONS"]);
    // The earlier name.
    at(&broker, &["topics", "grow", "orders", "--partitions", "4"], "").succeeded();
}

#[test]
fn configs_are_listed_with_their_sources_and_changed_one_by_one() {
    let broker = broker(1);
    let configs = |more: &[&str]| at(&broker, &[&["topics", "configs", "orders"], more].concat(), "");
    assert_eq!(configs(&[]).succeeded().stdout.lines().count(), 1, "the header only");
    configs(&["--set", "retention.ms=1000", "--set", "cleanup.policy=delete"]).succeeded();
    configs(&["--append", "cleanup.policy=compact"]).succeeded();
    let listed = objects(&broker, &["topics", "configs", "orders"]);
    let values: Vec<_> = listed.iter().map(|it| (&it["config"], &it["value"], &it["source"])).collect();
    let source = json!("DYNAMIC_TOPIC_CONFIG");
    let (policy, retention) = (json!("cleanup.policy"), json!("retention.ms"));
    assert_eq!(values, [(&policy, &json!("delete,compact"), &source), (&retention, &json!("1000"), &source)]);
    configs(&["--delete", "retention.ms", "--subtract", "cleanup.policy=delete"]).succeeded();
    let listed = objects(&broker, &["topics", "configs", "orders"]);
    assert_eq!((listed.len(), &listed[0]["value"]), (1, &json!("compact")));

    let dry = configs(&["--set", "retention.ms=5", "--dry-run"]).succeeded();
    assert!(dry.stderr.contains("dry run: the changes of orders are valid"), "{}", dry.stderr);
    assert_eq!(objects(&broker, &["topics", "configs", "orders"]).len(), 1);
    configs(&["--dry-run"]).failed(2, &["--dry-run without a change"]);
    configs(&["--set", "retention.ms=soon"]).failed(1, &["orders", "retention.ms"]);
    at(&broker, &["topics", "configs", "ordres"], "").failed(1, &["topic `ordres` does not exist"]);
    let all = objects(&broker, &["topics", "configs", "orders", "--all"]);
    assert!(all.iter().any(|it| it["config"] == "segment.bytes" && it["source"] == "DEFAULT_CONFIG"));
}

#[test]
fn records_before_an_offset_or_a_time_are_deleted() {
    let broker = broker(1);
    fill(&broker, "1\n2\n3\n4\n");
    let delete = |before, more: &[&str]| {
        at(&broker, &[&["topics", "delete-records", "orders", "--before", before], more].concat(), "")
    };
    let dry = delete("2", &["--dry-run", "--output", "json"]).succeeded();
    let expected = json!({ "topic": "orders", "partition": 0, "first_before": 0, "first": 2 });
    assert_eq!(serde_json::from_str::<Value>(&dry.stdout).expect("JSON"), expected);
    assert_eq!(at(&broker, &["consume", "orders", "-e"], "").stdout.lines().count(), 4);
    delete("2", &[]).succeeded();
    assert_eq!(at(&broker, &["consume", "orders", "-e"], "").stdout, "3\n4\n");
    // The plan promised what is refused.
    for more in [&["--dry-run"][..], &[]] {
        delete("9", more).failed(1, &["topic `orders` partition 0: cannot delete before 9", "ends at 4"]);
    }
    // No record is so young: all are older.
    delete("2100-01-01", &[]).succeeded();
    assert_eq!(at(&broker, &["consume", "orders", "-e"], "").stdout, "");
    delete("end", &[]).succeeded();
    at(&broker, &["topics", "delete-records", "orders:7", "--before", "end"], "")
        .failed(1, &["topic `orders` has no partition 7: it has 1"]);
}

#[test]
fn only_partitions_with_a_problem_are_printed() {
    let broker = broker(2);
    assert_eq!(objects(&broker, &["topics", "partitions", "--problems"]), Vec::<Value>::new());
    assert!(broker.cluster().set_leader("orders", 1, -1));
    let problems = objects(&broker, &["topics", "partitions", "--problems"]);
    assert_eq!((problems.len(), &problems[0]["partition"]), (1, &json!(1)));
    assert_eq!((&problems[0]["leader"], &problems[0]["end"]), (&Value::Null, &Value::Null));
}

#[test]
fn groups_are_listed_with_their_lag() {
    let broker = broker(2);
    fill(&broker, "1\n2\n3\n");
    at(&broker, &["consume", "orders", "-G", "done", "-e"], "").succeeded();
    let reset =
        ["groups", "reset-offsets", "late", "-t", "orders", "--to", "beginning", "--execute", "--create"];
    at(&broker, &reset, "").succeeded();
    let groups = objects(&broker, &["groups", "list"]);
    let lags: Vec<_> = groups.iter().map(|group| (&group["group"], &group["lag"])).collect();
    assert_eq!(lags, [(&json!("done"), &json!(0)), (&json!("late"), &json!(3))]);
    assert!(groups.iter().all(|group| group["state"] == "Empty" && group["type"] == "classic"), "{groups:?}");
    let without = objects(&broker, &["groups", "list", "--no-lag"]);
    assert!(without.iter().all(|group| group["lag"].is_null()));
    assert_eq!(objects(&broker, &["groups", "list", "--state", "Stable"]), Vec::<Value>::new());
    assert_eq!(objects(&broker, &["groups", "list", "--type", "classic"]).len(), 2);
}

/// After 30 seconds, the commands failed and printed no group.
#[test]
fn a_partition_without_a_leader_hides_no_group() {
    let broker = Broker::builder().memory().topic("orders", 2).topic("other", 1).spawn().expect("a broker");
    fill(&broker, "1\n2\n3\n");
    at(&broker, &["consume", "orders", "-G", "readers", "-e"], "").succeeded();
    at(&broker, &["produce", "other"], "1\n").succeeded();
    at(&broker, &["consume", "other", "-G", "sound", "-e"], "").succeeded();
    // Both partitions have a committed offset.
    let reset = ["groups", "reset-offsets", "readers", "-t", "orders", "--to", "beginning", "--execute"];
    at(&broker, &reset, "").succeeded();
    assert!(broker.cluster().set_leader("orders", 1, -1));
    let unknown = "topic `orders` partition 1 has no leader: its end offset is unknown";
    let listed = at(&broker, &["groups", "list", "--output", "json"], "").failed(1, &[unknown]);
    let groups = listed.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lags: BTreeMap<String, Value> =
        groups.map(|group| (group["group"].to_string(), group["lag"].clone())).collect();
    let expected = [("\"readers\"".to_owned(), Value::Null), ("\"sound\"".to_owned(), json!(0))];
    assert_eq!(lags, BTreeMap::from(expected));
    let described = at(&broker, &["groups", "describe", "sound", "readers"], "").failed(1, &[unknown]);
    assert!(described.stdout.contains("total lag 0\n"), "{}", described.stdout);
    assert!(described.stdout.contains(" in 1 of 2 partitions; unknown in 1\n"), "{}", described.stdout);
}

#[test]
fn committed_offsets_of_a_topic_are_deleted() {
    let broker = broker(2);
    let reset =
        ["groups", "reset-offsets", "readers", "-t", "orders", "--to", "end", "--execute", "--create"];
    at(&broker, &reset, "").succeeded();
    let delete = |topic| at(&broker, &["groups", "delete-offsets", "readers", "--topic", topic], "");
    delete("orders:0").succeeded();
    let left = objects(&broker, &["groups", "describe", "readers"]).remove(0);
    let partitions: Vec<_> =
        left["partitions"].as_array().expect("a list").iter().map(|it| &it["partition"]).collect();
    assert_eq!(partitions, [&json!(1)]);
    delete("orders").succeeded();
    delete("orders").failed(1, &["group `readers`"]);
    at(&broker, &["groups", "delete-offsets", "raeders", "-t", "orders"], "")
        .failed(1, &["group `raeders` does not exist"]);
}

/// The partition was in the request twice, and had two rows.
#[test]
fn an_offset_that_is_named_twice_is_deleted_once() {
    let broker = broker(2);
    let reset =
        ["groups", "reset-offsets", "readers", "-t", "orders", "--to", "end", "--execute", "--create"];
    at(&broker, &reset, "").succeeded();
    let deleted =
        objects(&broker, &["groups", "delete-offsets", "readers", "-t", "orders", "-t", "orders:0"]);
    let rows: Vec<_> = deleted.iter().map(|row| (&row["partition"], &row["deleted"])).collect();
    assert_eq!(rows, [(&json!(0), &json!(true)), (&json!(1), &json!(true))]);
}

#[test]
fn an_open_transaction_is_shown_and_aborted() {
    let broker = broker(1);
    let producer = open_transaction(&broker, "billing");
    let listed = objects(&broker, &["transactions", "list", "--state", "Ongoing"]);
    assert_eq!((listed.len(), &listed[0]["transactional_id"]), (1, &json!("billing")));
    let described = objects(&broker, &["transactions", "describe", "billing"]).remove(0);
    assert_eq!(described["partitions"], json!(["orders:0"]));
    assert!(described["age_ms"].as_i64().is_some_and(|age| age >= 0), "{described}");
    assert_eq!(at(&broker, &["consume", "orders", "-e"], "").stdout, "", "it is not committed");
    let aborted = at(&broker, &["transactions", "abort", "billing"], "").succeeded();
    assert_eq!(aborted.stdout, "aborted the transaction of billing\n");
    producer.commit_transaction_blocking(PATIENCE).expect_err("the producer is fenced");
    at(&broker, &["transactions", "abort", "billing"], "").failed(1, &["`billing` has no open transaction"]);
    at(&broker, &["transactions", "abort", "biling"], "").failed(1, &["`biling` does not exist"]);
    at(&broker, &["transactions", "describe", "biling"], "").failed(1, &["ottla transactions list"]);
    assert_eq!(objects(&broker, &["transactions", "list", "--state", "Ongoing"]), Vec::<Value>::new());
}

#[test]
fn a_transaction_that_hangs_is_aborted_in_its_partition() {
    let broker = broker(1);
    // The coordinator does not learn of the partition.
    broker.cluster().set_transactions_approved(true);
    let producer = open_transaction(&broker, "lost");
    let id = objects(&broker, &["transactions", "list"])[0]["producer_id"].to_string();
    let hanging = |id, partition| {
        at(&broker, &["transactions", "abort", "--hanging", partition, "--producer-id", id], "")
    };
    hanging("4711", "orders:0").failed(1, &["producer 4711 has no open transaction there"]);
    hanging(&id, "orders").failed(2, &["name the partition"]);
    let aborted = hanging(&id, "orders:0").succeeded();
    assert!(aborted.stdout.contains("which started at offset 0"), "{}", aborted.stdout);
    hanging(&id, "orders:0").failed(1, &["has no open transaction there"]);
    at(&broker, &["transactions", "abort"], "").failed(2, &["required"]);
    drop(producer);
}

/// Its records were aborted in one partition, and its producer committed the rest.
#[test]
fn a_transaction_that_its_coordinator_knows_does_not_hang() {
    let broker = broker(1);
    let producer = open_transaction(&broker, "billing");
    let id = objects(&broker, &["transactions", "list"])[0]["producer_id"].to_string();
    at(&broker, &["transactions", "abort", "--hanging", "orders:0", "--producer-id", &id], "").failed(
        1,
        &["does not hang", "`billing`, whose state is Ongoing", "ottla transactions abort billing"],
    );
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
    assert!(!at(&broker, &["consume", "orders", "-e"], "").succeeded().stdout.is_empty());
}

#[test]
fn the_cluster_and_its_log_directories_are_described() {
    let broker = Broker::builder().memory().nodes(2).topic("orders", 2).spawn().expect("a broker");
    let cluster = objects(&broker, &["cluster"]).remove(0);
    assert_eq!((&cluster["cluster_id"], &cluster["controller"]), (&json!(broker.cluster().id()), &json!(1)));
    assert_eq!(cluster["nodes"].as_array().expect("a list").len(), 2);
    assert_eq!(cluster["quorum"]["leader"], 1);
    let text = at(&broker, &["cluster"], "").succeeded().stdout;
    for word in [broker.cluster().id(), "transaction.version", "quorum  leader 1"] {
        assert!(text.contains(word), "no {word}: {text}");
    }
    let dirs = objects(&broker, &["logdirs"]);
    assert_eq!(dirs.iter().map(|dir| &dir["node"]).collect::<Vec<_>>(), [&json!(1), &json!(2)]);
    assert_eq!(objects(&broker, &["logdirs", "--node", "2"]).len(), 1);
    assert_eq!(objects(&broker, &["logdirs", "--replicas", "-t", "orders"]).len(), 2);
    assert!(broker.cluster().take_down(2));
    at(&broker, &["logdirs", "--node", "2"], "")
        .failed(1, &["there is no node 2, or it is down: the cluster has 1"]);
}

/// Only the first of the nodes was named, so that the listing seemed to have the transactions of the others.
#[test]
fn each_node_whose_transactions_are_missing_is_named() {
    let broker = Broker::builder().memory().nodes(3).topic("orders", 1).spawn().expect("a broker");
    for node in [1, 3] {
        let refused = Fault::Fail(ErrorCode::ClusterAuthorizationFailed);
        broker.cluster().intercept(ApiKey::ListTransactions, Some(node), 1, refused);
    }
    at(&broker, &["transactions", "list"], "")
        .failed(1, &["the transactions of node 1 are missing", "the transactions of node 3 are missing"]);
}

#[test]
fn a_group_whose_offsets_cannot_be_fetched_does_not_hide_the_others() {
    let broker = broker(1);
    fill(&broker, "1\n2\n");
    for group in ["readers", "writers"] {
        at(&broker, &["consume", "orders", "-G", group, "-e"], "").succeeded();
    }
    let refused = Fault::Fail(ErrorCode::GroupAuthorizationFailed);
    broker.cluster().intercept(ApiKey::OffsetFetch, None, 1, refused);
    let listed = at(&broker, &["groups", "list", "--output", "json"], "");
    let listed = listed.failed(1, &["the lag of group `", "is unknown", "GROUP_AUTHORIZATION_FAILED"]);
    let groups = listed.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut lags: Vec<Option<i64>> = groups.map(|group| group["lag"].as_i64()).collect();
    lags.sort_unstable();
    assert_eq!(lags, [None, Some(0)], "{}", listed.stdout);
}
