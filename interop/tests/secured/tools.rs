//! `kafka-configs` and `kafka-acls` at both clusters with security: the printed lines are the same.

use ottla_interop::{Failure, Output, Peer, console, require};

use super::cluster::{ADMIN, Login, SecuredCluster};
use crate::both_brokers::{Kind, on_both};
use crate::peers::PASSWORD;

on_both! {
    on_kafka: #[cfg(feature = "soaks")],
    kafka_configs_makes_shows_and_deletes_credentials,
    kafka_configs_makes_shows_and_deletes_quotas,
    kafka_configs_refuses_wrong_credentials_and_quotas,
    a_quota_of_kafka_configs_throttles_its_user,
    kafka_acls_makes_shows_and_deletes_acls,
}

/// `kafka-acls.sh`
pub(super) const ACLS: &str = "org.apache.kafka.tools.AclCommand";

/// The lines that a tool prints, without stack traces, log messages and the reasons of errors, whose words are each broker's own.
/// Entries below a line and in a line come from a set: they and the lines are sorted.
pub(super) fn printed(output: &Output) -> Vec<String> {
    let text = output.stdout_text() + "\n" + &output.stderr_text();
    let mut blocks: Vec<Vec<String>> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| is_result(line)) {
        match blocks.last_mut() {
            Some(block) if line.starts_with('(') => block.push(line.to_owned()),
            _ => blocks.push(vec![in_order(without_reason(line))]),
        }
    }
    for block in &mut blocks {
        block[1..].sort();
    }
    blocks.sort();
    blocks.concat()
}

fn without_reason(line: &str) -> &str {
    line.rfind("Exception: ").map_or(line, |at| &line[..at + "Exception".len()])
}

/// The line with sorted properties.
fn in_order(line: &str) -> String {
    let Some((entity, properties)) = line.split_once(" are ") else { return line.to_owned() };
    let mut properties: Vec<&str> = properties.split(", ").collect();
    properties.sort_unstable();
    format!("{entity} are {}", properties.join(", "))
}

fn is_result(line: &str) -> bool {
    // Log messages begin with the time. The arguments have the names of temporary files.
    let is_log = line.starts_with(|first: char| first.is_ascii_digit());
    !line.is_empty() && !is_log && !line.starts_with("at ") && !line.starts_with("Error while executing")
}

/// The lines of `kafka-configs`.
fn configs(cluster: &SecuredCluster, args: &[&str]) -> Result<Vec<String>, Failure> {
    Ok(printed(&cluster.tool(&ADMIN, console::CONFIGS, args, "")?))
}

fn kafka_configs_makes_shows_and_deletes_credentials(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    let of_user = ["--entity-type", "users", "--entity-name", "erin"];
    let configs = |args: &[&str]| configs(&cluster, &[args, &of_user[..]].concat());
    let logins = |mechanism| -> Result<bool, Failure> {
        let login = Login { user: "erin", mechanism, secret: PASSWORD };
        Ok(cluster.tool(&login, console::TOPICS, &["--list"], "")?.status.success())
    };
    const UPDATED: [&str; 1] = ["Completed updating config for user erin."];
    let sha_256 = format!("SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]");
    assert_eq!(configs(&["--alter", "--add-config", &sha_256])?, UPDATED);
    assert_eq!(
        configs(&["--describe"])?,
        ["SCRAM credential configs for user-principal 'erin' are SCRAM-SHA-256=iterations=8192"]
    );
    assert!(logins("SCRAM-SHA-256")?);
    assert!(!logins("SCRAM-SHA-512")?);
    let sha_512 = format!("SCRAM-SHA-512=[password={PASSWORD}]");
    assert_eq!(configs(&["--alter", "--add-config", &sha_512])?, UPDATED);
    assert_eq!(
        configs(&["--describe"])?,
        [
            "SCRAM credential configs for user-principal 'erin' are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
        ]
    );
    assert!(logins("SCRAM-SHA-512")?);
    assert_eq!(configs(&["--alter", "--delete-config", "SCRAM-SHA-256"])?, UPDATED);
    assert_eq!(
        configs(&["--describe"])?,
        ["SCRAM credential configs for user-principal 'erin' are SCRAM-SHA-512=iterations=4096"]
    );
    assert!(!logins("SCRAM-SHA-256")?);
    assert!(logins("SCRAM-SHA-512")?);
    assert_eq!(configs(&["--alter", "--delete-config", "SCRAM-SHA-512"])?, UPDATED);
    assert_eq!(configs(&["--describe"])?, Vec::<String>::new());
    assert!(!logins("SCRAM-SHA-512")?);
    Ok(())
}

/// The entities of quotas in the order of the story, the quotas of each, the line that `kafka-configs` prints when it has changed
/// them, and their line in the description.
const QUOTAS: [(&[&str], &str, &str, &str); 6] = [
    (
        &["--entity-type", "users", "--entity-name", "quentin"],
        "producer_byte_rate=104857600,consumer_byte_rate=209715200,request_percentage=400",
        "Completed updating config for user quentin.",
        "Quota configs for user-principal 'quentin' are consumer_byte_rate=2.097152E8, \
         producer_byte_rate=1.048576E8, request_percentage=400.0",
    ),
    (
        &["--entity-type", "users", "--entity-default"],
        "request_percentage=500.5,controller_mutation_rate=1000",
        "Completed updating default config for users in the cluster.",
        "Quota configs for the default user-principal are controller_mutation_rate=1000.0, request_percentage=500.5",
    ),
    (
        &["--entity-type", "clients", "--entity-name", "quotas-app"],
        "consumer_byte_rate=300000000",
        "Completed updating config for client quotas-app.",
        "Quota configs for client-id 'quotas-app' are consumer_byte_rate=3.0E8",
    ),
    (
        &["--entity-type", "clients", "--entity-default"],
        "producer_byte_rate=400000000",
        "Completed updating default config for clients in the cluster.",
        "Quota configs for the default client-id are producer_byte_rate=4.0E8",
    ),
    (
        &[
            "--entity-type",
            "users",
            "--entity-name",
            "quentin",
            "--entity-type",
            "clients",
            "--entity-name",
            "quotas-app",
        ],
        "producer_byte_rate=1048576",
        "Completed updating config for user quentin.",
        "Quota configs for user-principal 'quentin', client-id 'quotas-app' are producer_byte_rate=1048576.0",
    ),
    (
        &[
            "--entity-type",
            "users",
            "--entity-name",
            "quentin",
            "--entity-type",
            "clients",
            "--entity-default",
        ],
        "consumer_byte_rate=1048577",
        "Completed updating config for user quentin.",
        "Quota configs for user-principal 'quentin', the default client-id are consumer_byte_rate=1048577.0",
    ),
];

fn kafka_configs_makes_shows_and_deletes_quotas(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    for (entity, quotas, updated, line) in QUOTAS {
        let alter = [&["--alter", "--add-config", quotas], entity].concat();
        assert_eq!(configs(&cluster, &alter)?, [updated], "{entity:?}");
        assert_eq!(configs(&cluster, &[&["--describe"], entity].concat())?, [line], "{entity:?}");
    }
    // Other tests have users, too.
    let mut of_users = configs(&cluster, &["--describe", "--entity-type", "users"])?;
    of_users.retain(|line| line.contains("quentin") || line.contains("the default user-principal"));
    assert_eq!(of_users, [QUOTAS[1].3, QUOTAS[0].3]);
    let of_clients = configs(&cluster, &["--describe", "--entity-type", "clients"])?;
    assert_eq!(of_clients, [QUOTAS[2].3, QUOTAS[3].3]);
    let of_pairs =
        ["--describe", "--entity-type", "users", "--entity-name", "quentin", "--entity-type", "clients"];
    assert_eq!(configs(&cluster, &of_pairs)?, [QUOTAS[4].3, QUOTAS[5].3]);

    let (user, _, updated, _) = QUOTAS[0];
    let one = [&["--alter", "--delete-config", "request_percentage"], user].concat();
    assert_eq!(configs(&cluster, &one)?, [updated]);
    assert_eq!(
        configs(&cluster, &[&["--describe"], user].concat())?,
        [
            "Quota configs for user-principal 'quentin' are consumer_byte_rate=2.097152E8, producer_byte_rate=1.048576E8"
        ]
    );
    assert_eq!(configs(&cluster, &one)?, ["Invalid config(s): request_percentage"]);
    for (entity, quotas, updated, _) in QUOTAS {
        let names = quotas.split(',').filter_map(|quota| quota.split('=').next());
        let is_left = |name: &&str| entity != user || *name != "request_percentage";
        let names: Vec<&str> = names.filter(is_left).collect();
        let alter = ["--alter", "--delete-config", &names.join(",")];
        assert_eq!(configs(&cluster, &[&alter, entity].concat())?, [updated], "{entity:?}");
        assert_eq!(configs(&cluster, &[&["--describe"], entity].concat())?, Vec::<String>::new());
    }
    Ok(())
}

/// The longest pause of a user's producer of 400 kB, in milliseconds.
fn pause_ms(cluster: &SecuredCluster, user: &str) -> Result<f64, Failure> {
    let load =
        ["--topic", "throttled", "--num-records", "400", "--record-size", "1000", "--throughput", "-1"];
    let args = [&load[..], &["--print-metrics"]].concat();
    let measured = cluster.tool(&Login::scram(user), console::PRODUCER_PERF, &args, "")?.succeeded()?;
    let printed = measured.stdout_text();
    let line = printed.lines().find(|line| line.contains("produce-throttle-time-max"));
    let number = line.and_then(|line| line.rsplit(':').next()?.trim().parse().ok());
    number.ok_or_else(|| measured.failure("does not print its pause"))
}

fn a_quota_of_kafka_configs_throttles_its_user(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    cluster.create_topic("throttled", 1);
    for user in ["tess", "fred"] {
        cluster.add_user(user)?;
        let allow =
            ["--add", "--producer", "--topic", "throttled", "--allow-principal", &format!("User:{user}")];
        acls(&cluster, &allow)?;
        cluster.wait_for_acls(user, 3)?;
    }
    let quota = ["--alter", "--entity-type", "users", "--entity-name", "tess"];
    let quota = [&quota[..], &["--add-config", "producer_byte_rate=30000"]].concat();
    assert_eq!(configs(&cluster, &quota)?, ["Completed updating config for user tess."]);
    assert!(pause_ms(&cluster, "tess")? > 0.0);
    assert!(pause_ms(&cluster, "fred")? == 0.0);
    Ok(())
}

/// Changes that are refused, with their error.
const REFUSED: [(&str, &str, &str); 5] = [
    ("--delete-config", "SCRAM-SHA-256", "ResourceNotFoundException"),
    ("--add-config", "SCRAM-SHA-256=[password=x],SCRAM-SHA-512=[password=x]", "DuplicateResourceException"),
    ("--add-config", "SCRAM-SHA-256=[iterations=20000,password=x]", "UnacceptableCredentialException"),
    ("--add-config", "consumer_byte_rate=0.5", "InvalidRequestException"),
    ("--add-config", "consumer_byte_rate=-5", "InvalidRequestException"),
];

fn kafka_configs_refuses_wrong_credentials_and_quotas(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    for (option, change, error) in REFUSED {
        let args = ["--alter", option, change, "--entity-type", "users", "--entity-name", "rita"];
        let line = format!("java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.{error}");
        let cause = format!("Caused by: org.apache.kafka.common.errors.{error}");
        assert_eq!(configs(&cluster, &args)?, [cause, line], "{option} {change}");
    }
    let described = configs(&cluster, &["--describe", "--entity-type", "users", "--entity-name", "rita"])?;
    assert_eq!(described, Vec::<String>::new());
    Ok(())
}

/// The lines of `kafka-acls`.
fn acls(cluster: &SecuredCluster, args: &[&str]) -> Result<Vec<String>, Failure> {
    Ok(printed(&cluster.tool(&ADMIN, ACLS, args, "")?.succeeded()?))
}

/// The steps of the story: options of `kafka-acls`, and the lines that it prints.
const ACL_STEPS: [(&str, &[&str]); 13] = [
    (
        "--add --allow-principal User:anna --producer --topic acl-orders",
        &[
            "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-orders, patternType=LITERAL)`:",
            "(principal=User:anna, host=*, operation=CREATE, permissionType=ALLOW)",
            "(principal=User:anna, host=*, operation=DESCRIBE, permissionType=ALLOW)",
            "(principal=User:anna, host=*, operation=WRITE, permissionType=ALLOW)",
        ],
    ),
    (
        "--add --allow-principal User:anna --consumer --topic acl-orders --group acl-billing",
        &[
            "Acl (pattern=ResourcePattern(resourceType=TOPIC, name=acl-orders, patternType=LITERAL), \
             entry=(principal=User:anna, host=*, operation=DESCRIBE, permissionType=ALLOW)) already exists.",
            "Adding ACLs for resource `ResourcePattern(resourceType=GROUP, name=acl-billing, patternType=LITERAL)`:",
            "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)",
            "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-orders, patternType=LITERAL)`:",
            "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)",
        ],
    ),
    (
        "--add --allow-principal User:anna --allow-host 10.0.0.1 --operation Read --operation Write --topic acl-pre \
         --resource-pattern-type prefixed",
        &[
            "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-pre, patternType=PREFIXED)`:",
            "(principal=User:anna, host=10.0.0.1, operation=READ, permissionType=ALLOW)",
            "(principal=User:anna, host=10.0.0.1, operation=WRITE, permissionType=ALLOW)",
        ],
    ),
    (
        "--add --deny-principal User:bo --operation All --transactional-id acl-id",
        &[
            "Adding ACLs for resource `ResourcePattern(resourceType=TRANSACTIONAL_ID, name=acl-id, patternType=LITERAL)`:",
            "(principal=User:bo, host=*, operation=ALL, permissionType=DENY)",
        ],
    ),
    (
        "--add --allow-principal User:bo --operation Create --cluster",
        &[
            "Adding ACLs for resource `ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)`:",
            "(principal=User:bo, host=*, operation=CREATE, permissionType=ALLOW)",
        ],
    ),
    (
        "--list --topic acl-orders",
        &[
            "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-orders, patternType=LITERAL)`:",
            "(principal=User:anna, host=*, operation=CREATE, permissionType=ALLOW)",
            "(principal=User:anna, host=*, operation=DESCRIBE, permissionType=ALLOW)",
            "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)",
            "(principal=User:anna, host=*, operation=WRITE, permissionType=ALLOW)",
        ],
    ),
    (
        "--list --principal User:bo",
        &[
            "ACLs for principal `User:bo`",
            "Current ACLs for resource `ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)`:",
            "(principal=User:bo, host=*, operation=CREATE, permissionType=ALLOW)",
            "Current ACLs for resource `ResourcePattern(resourceType=TRANSACTIONAL_ID, name=acl-id, patternType=LITERAL)`:",
            "(principal=User:bo, host=*, operation=ALL, permissionType=DENY)",
        ],
    ),
    (
        "--list --topic acl-prefix --resource-pattern-type match",
        &[
            "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-pre, patternType=PREFIXED)`:",
            "(principal=User:anna, host=10.0.0.1, operation=READ, permissionType=ALLOW)",
            "(principal=User:anna, host=10.0.0.1, operation=WRITE, permissionType=ALLOW)",
        ],
    ),
    ("--remove --force --allow-principal User:anna --operation Write --topic acl-orders", &[]),
    ("--remove --force --group acl-billing", &[]),
    ("--remove --force --topic acl-none", &[]),
    (
        "--list --principal User:anna",
        &[
            "ACLs for principal `User:anna`",
            "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-orders, patternType=LITERAL)`:",
            "(principal=User:anna, host=*, operation=CREATE, permissionType=ALLOW)",
            "(principal=User:anna, host=*, operation=DESCRIBE, permissionType=ALLOW)",
            "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)",
            "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-pre, patternType=PREFIXED)`:",
            "(principal=User:anna, host=10.0.0.1, operation=READ, permissionType=ALLOW)",
            "(principal=User:anna, host=10.0.0.1, operation=WRITE, permissionType=ALLOW)",
        ],
    ),
    ("--list --group acl-billing", &[]),
];

fn kafka_acls_makes_shows_and_deletes_acls(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    for (options, lines) in ACL_STEPS {
        let args: Vec<&str> = options.split_whitespace().collect();
        assert_eq!(acls(&cluster, &args)?, lines, "{options}");
    }
    Ok(())
}
