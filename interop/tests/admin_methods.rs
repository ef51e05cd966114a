//! Every method of Java's Admin client 4.3.1, and Kafka's administrative tools, against the broker.
//!
//! `java/admin-methods.tsv` has the outcomes of Apache Kafka 4.3. `cargo xtask soak admin-methods` compares it with a running
//! Apache Kafka.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ottla_interop::{
    Failure, KafkaCluster, KafkaOptions, OttlaBroker, Output, Peer, newest_jars, require, run, workspace_root,
};

/// The program takes 10 s on a busy machine; some methods of Kafka wait until their time is over.
const METHODS_WITHIN: Duration = Duration::from_secs(120);
const TOOL_WITHIN: Duration = Duration::from_secs(60);

/// Calls whose outcomes differ, with the broker's outcome and the reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("describeStreamsGroups", "{missing=UnsupportedVersionException}", STREAMS_GROUPS),
    ("deleteStreamsGroups", "{missing=GroupIdNotFoundException}", MISSING_GROUP),
];
const STREAMS_GROUPS: &str = "the broker has no streams groups";
const MISSING_GROUP: &str = "calls of other kinds of groups have created it in Kafka only";

/// The outcome of each call.
fn outcomes(bootstrap: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut java = newest_jars()?.java(256);
    java.arg(workspace_root().join("interop/java/AdminMethods.java")).arg(bootstrap);
    let printed = run("AdminMethods", &mut java, b"", METHODS_WITHIN)?.succeeded()?.stdout_text();
    Ok(parsed(&printed))
}

fn parsed(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    lines.map(|(call, outcome)| (call.to_owned(), outcome.to_owned())).collect()
}

fn kafkas() -> Result<BTreeMap<String, String>, Failure> {
    let path = workspace_root().join("interop/java/admin-methods.tsv");
    let text =
        fs::read_to_string(&path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    Ok(parsed(&text))
}

#[test]
fn every_method_has_the_outcome_of_apache_kafka() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let mut expected = kafkas()?;
    if std::env::var_os("OTTLA_SOAK_ADMIN_METHODS").is_some() {
        let options = KafkaOptions { newest: true, ..KafkaOptions::default() };
        let kafka = KafkaCluster::start_with(1, &options)?;
        assert_eq!(outcomes(&kafka.bootstrap())?, expected, "the file is not up to date");
    }
    assert!(expected.len() > 130, "{}", expected.len());
    for (call, ours, why) in DIFFERENCES {
        let kafkas = expected.insert((*call).to_owned(), (*ours).to_owned());
        assert!(kafkas.is_some_and(|kafkas| kafkas != *ours), "{call} does not differ: {why}");
    }
    let broker = OttlaBroker::start(&[])?;
    assert_eq!(outcomes(&broker.bootstrap())?, expected);
    Ok(())
}

fn tool(bootstrap: &str, class: &str, args: &[&str]) -> Result<Output, Failure> {
    let mut java = newest_jars()?.java(256);
    java.args([class, "--bootstrap-server", bootstrap]).args(args);
    run(class, &mut java, b"", TOOL_WITHIN)
}

const LOG_DIRS: &str = "org.apache.kafka.tools.LogDirsCommand";
const REASSIGN: &str = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";
const QUORUM: &str = "org.apache.kafka.tools.MetadataQuorumCommand";
const CLUSTER: &str = "org.apache.kafka.tools.ClusterTool";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const ACLS: &str = "org.apache.kafka.tools.AclCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const AUTHORIZER: &str = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer";

#[test]
fn kafkas_administrative_tools_work() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let broker = OttlaBroker::start(&["--nodes", "3", "--topic", "orders:2"])?;
    let bootstrap = broker.bootstrap();
    let printed = |class: &str, args: &[&str]| -> Result<String, Failure> {
        Ok(tool(&bootstrap, class, args)?.succeeded()?.stdout_text())
    };
    let dirs = printed(LOG_DIRS, &["--describe", "--topic-list", "orders"])?;
    assert!(dirs.contains(r#""partition":"orders-0""#) && dirs.contains(r#""offsetLag":0"#), "{dirs}");

    let plan = tempfile::NamedTempFile::new().map_err(|error| Failure::new(error.to_string()))?;
    let json = r#"{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[3,2]}]}"#;
    fs::write(plan.path(), json).map_err(|error| Failure::new(error.to_string()))?;
    let file = plan.path().to_string_lossy().into_owned();
    let executed = printed(REASSIGN, &["--reassignment-json-file", &file, "--execute"])?;
    assert!(executed.contains("Successfully started partition reassignment"), "{executed}");
    let verified = printed(REASSIGN, &["--reassignment-json-file", &file, "--verify"])?;
    assert!(verified.contains("Reassignment of partition orders-0 is completed"), "{verified}");
    let listed = printed(REASSIGN, &["--list"])?;
    assert!(listed.contains("No partition reassignments found"), "{listed}");

    let down = ["downgrade", "--feature", "transaction.version=1"];
    let lowered = printed(FEATURES, &down)?;
    assert!(lowered.contains("transaction.version was downgraded to 1"), "{lowered}");
    let features = printed(FEATURES, &["describe"])?;
    assert!(features.contains("FinalizedVersionLevel: 1"), "{features}");
    let quorum = printed(QUORUM, &["describe", "--status"])?;
    assert!(quorum.contains("LeaderId:") && quorum.contains("CurrentVoters:"), "{quorum}");
    let replicas = printed(QUORUM, &["describe", "--replication"])?;
    assert!(replicas.contains("Leader") && replicas.contains("Observer"), "{replicas}");
    // This tool takes the address after its verb.
    let mut java = newest_jars()?.java(256);
    java.args([CLUSTER, "unregister", "--bootstrap-server", &bootstrap, "--id", "9"]);
    let refused = run(CLUSTER, &mut java, b"", TOOL_WITHIN)?;
    let refused = refused.stdout_text() + &refused.stderr_text();
    assert!(refused.contains("there is no node 9"), "{refused}");

    let user = ["--entity-type", "users", "--entity-name", "anna"];
    for setting in ["producer_byte_rate=1024", "SCRAM-SHA-256=[password=secret]"] {
        printed(CONFIGS, &[&["--alter", "--add-config", setting][..], &user].concat())?;
    }
    let described = printed(CONFIGS, &[&["--describe"][..], &user].concat())?;
    assert!(described.contains("producer_byte_rate=1024.0"), "{described}");
    assert!(described.contains("SCRAM-SHA-256=iterations=4096"), "{described}");
    Ok(())
}

/// ACLs that Kafka's tool has made apply to Java's clients, also after kill -9.
#[test]
fn kafkas_acl_tool_works_and_java_clients_are_denied() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let data = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let with_super_user = ["--topic", "orders:1", "-X", AUTHORIZER, "-X", "super.users=User:ANONYMOUS"];
    let broker = OttlaBroker::start_on(data.path(), &with_super_user)?;
    let bootstrap = broker.bootstrap();
    let printed = |class: &str, args: &[&str]| -> Result<String, Failure> {
        Ok(tool(&bootstrap, class, args)?.succeeded()?.stdout_text())
    };
    let anna = ["--allow-principal", "User:anna", "--producer", "--topic", "ord"];
    printed(ACLS, &[&["--add", "--resource-pattern-type", "prefixed"][..], &anna].concat())?;
    let everyone =
        ["--allow-principal", "User:*", "--operation", "Read", "--topic", "orders", "--group", "g"];
    printed(ACLS, &[&["--add"][..], &everyone].concat())?;
    let listed = printed(ACLS, &["--list", "--topic", "orders", "--resource-pattern-type", "match"])?;
    for words in [
        "resourceType=TOPIC, name=ord, patternType=PREFIXED",
        "principal=User:anna, host=*, operation=WRITE, permissionType=ALLOW",
        "principal=User:*, host=*, operation=READ, permissionType=ALLOW",
    ] {
        assert!(listed.contains(words), "no {words}: {listed}");
    }
    let remove = ["--remove", "--force", "--topic", "ord", "--resource-pattern-type", "prefixed"];
    printed(ACLS, &remove)?;
    let listed = printed(ACLS, &["--list"])?;
    assert!(!listed.contains("User:anna") && listed.contains("User:*"), "{listed}");
    let produce = |bootstrap: &str, text: &[u8]| -> Result<Output, Failure> {
        let mut java = newest_jars()?.java(256);
        java.args([PRODUCER, "--bootstrap-server", bootstrap, "--topic", "orders"]);
        java.args(["--command-property", "enable.idempotence=false"]);
        run(PRODUCER, &mut java, text, TOOL_WITHIN)
    };
    produce(&bootstrap, b"first\n")?.succeeded()?;
    broker.kill()?;

    let broker = OttlaBroker::start_on(data.path(), &["-X", AUTHORIZER])?;
    let bootstrap = broker.bootstrap();
    let said = produce(&bootstrap, b"second\n")?;
    let said = said.stdout_text() + &said.stderr_text();
    assert!(
        said.contains("TopicAuthorizationException: Not authorized to access topics: [orders]"),
        "{said}"
    );
    let consume = |group: &str| -> Result<String, Failure> {
        let wait = ["--from-beginning", "--max-messages", "1", "--timeout-ms", "30000"];
        let output =
            tool(&bootstrap, CONSUMER, &[&["--topic", "orders", "--group", group][..], &wait].concat())?;
        Ok(output.stdout_text() + &output.stderr_text())
    };
    let read = consume("g")?;
    assert!(read.contains("first"), "{read}");
    let denied = consume("other")?;
    assert!(
        denied.contains("GroupAuthorizationException: Not authorized to access group: other"),
        "{denied}"
    );
    let acls = tool(&bootstrap, ACLS, &["--list"])?;
    let acls = acls.stdout_text() + &acls.stderr_text();
    assert!(acls.contains("ClusterAuthorizationException"), "{acls}");
    Ok(())
}
