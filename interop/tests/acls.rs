//! ACLs: the same calls of several principals get the same errors from Ottla and from Apache Kafka 4.3 with its StandardAuthorizer.

#[path = "acls/calls.rs"]
mod calls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use calls::{Caller, acl_count, create_acls, login};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions, OttlaBroker, Peer, require, wait_until};
use ottla_protocol::messages as m;
use ottla_protocol::messages::create_acls::AclCreation;
use ottla_protocol::{ApiKey, ErrorCode, Uuid};

use crate::common::sound::in_every_version;
use crate::common::{Heard, Raw};

const STANDARD: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
const PASSWORD: &str = "secret";
/// Usually milliseconds; longer on a loaded machine.
const APPLIED_WITHIN: Duration = Duration::from_secs(60);

/// The principals. `stranger` has no ACL of its own.
const PRINCIPALS: [&str; 4] = ["anna", "bo", "dora", "stranger"];
const EXISTING: [&str; 7] = ["orders", "an-list", "an-secret", "public", "elsewhere", "closed", "gone"];
const MISSING: [&str; 2] = ["missing", "an-missing"];
const GROUPS: [&str; 4] = ["billing", "an-group", "an-hidden", "other"];
const TRANSACTIONAL_IDS: [&str; 3] = ["an-id", "an-closed", "other"];

/// Types of resources, patterns, operations and permissions by their numbers.
const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const CLUSTER: i8 = 4;
const ID: i8 = 5;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const ALL: i8 = 2;
const READ: i8 = 3;
const WRITE: i8 = 4;
const CREATE: i8 = 5;
const DELETE: i8 = 6;
const ALTER: i8 = 7;
const DESCRIBE: i8 = 8;
const DESCRIBE_CONFIGS: i8 = 10;
const ALTER_CONFIGS: i8 = 11;
const DENY: i8 = 2;
const ALLOW: i8 = 3;

/// A principal, a resource, an operation, a permission, and a host.
type Rule = (&'static str, (i8, i8, &'static str), i8, i8, &'static str);

const RULES: &[Rule] = &[
    ("anna", (TOPIC, LITERAL, "orders"), READ, ALLOW, "*"),
    ("anna", (TOPIC, LITERAL, "orders"), WRITE, ALLOW, "*"),
    ("anna", (TOPIC, PREFIXED, "an-"), ALL, ALLOW, "*"),
    ("anna", (TOPIC, LITERAL, "an-secret"), READ, DENY, "*"),
    ("anna", (TOPIC, LITERAL, "closed"), READ, ALLOW, "127.0.0.1"),
    ("anna", (GROUP, PREFIXED, "an-"), READ, ALLOW, "*"),
    ("anna", (GROUP, LITERAL, "an-hidden"), DESCRIBE, DENY, "*"),
    ("anna", (GROUP, LITERAL, "billing"), DESCRIBE, ALLOW, "*"),
    ("anna", (GROUP, LITERAL, "billing"), DELETE, ALLOW, "*"),
    ("anna", (ID, PREFIXED, "an-"), WRITE, ALLOW, "*"),
    ("anna", (ID, LITERAL, "an-closed"), ALL, DENY, "127.0.0.1"),
    ("bo", (TOPIC, LITERAL, "*"), DESCRIBE, ALLOW, "*"),
    ("bo", (TOPIC, PREFIXED, "or"), READ, ALLOW, "*"),
    ("bo", (TOPIC, LITERAL, "orders"), READ, DENY, "*"),
    ("bo", (TOPIC, LITERAL, "gone"), DELETE, ALLOW, "*"),
    ("bo", (CLUSTER, LITERAL, "kafka-cluster"), CREATE, ALLOW, "*"),
    ("bo", (CLUSTER, LITERAL, "kafka-cluster"), DESCRIBE, ALLOW, "*"),
    ("bo", (GROUP, LITERAL, "*"), READ, ALLOW, "*"),
    ("bo", (GROUP, PREFIXED, "an"), READ, DENY, "*"),
    ("bo", (ID, LITERAL, "*"), DESCRIBE, ALLOW, "*"),
    ("dora", (TOPIC, LITERAL, "*"), ALTER, ALLOW, "*"),
    ("dora", (TOPIC, LITERAL, "*"), ALTER_CONFIGS, ALLOW, "*"),
    ("dora", (TOPIC, PREFIXED, "o"), DESCRIBE_CONFIGS, DENY, "127.0.0.1"),
    ("dora", (TOPIC, PREFIXED, "an"), DELETE, ALLOW, "127.0.0.1"),
    ("dora", (TOPIC, PREFIXED, "an-s"), DESCRIBE, DENY, "*"),
    ("dora", (CLUSTER, LITERAL, "kafka-cluster"), ALTER_CONFIGS, ALLOW, "*"),
    ("dora", (GROUP, LITERAL, "other"), ALL, ALLOW, "*"),
    ("dora", (GROUP, LITERAL, "*"), DELETE, ALLOW, "10.0.0.1"),
    ("dora", (ID, LITERAL, "other"), ALL, ALLOW, "10.0.0.1"),
    ("*", (TOPIC, LITERAL, "public"), READ, ALLOW, "*"),
    ("*", (TOPIC, LITERAL, "public"), WRITE, ALLOW, "127.0.0.1"),
    ("*", (TOPIC, LITERAL, "public"), READ, DENY, "10.0.0.1"),
    ("*", (TOPIC, LITERAL, "elsewhere"), READ, ALLOW, "10.0.0.1"),
    ("*", (TOPIC, LITERAL, "closed"), ALL, DENY, "*"),
    ("*", (GROUP, LITERAL, "billing"), READ, ALLOW, "10.0.0.1"),
];

/// A broker with an authorizer: an open listener, whose clients are super users, and one with PLAIN.
struct World {
    name: &'static str,
    open: SocketAddr,
    login: SocketAddr,
    _kafka: Option<KafkaCluster>,
    _ottla: Option<OttlaBroker>,
}

fn properties() -> Vec<(&'static str, String)> {
    let users: Vec<String> = PRINCIPALS.iter().map(|user| format!("user_{user}=\"{PASSWORD}\"")).collect();
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    vec![
        ("authorizer.class.name", STANDARD.to_owned()),
        ("super.users", "User:ANONYMOUS".to_owned()),
        ("listener.name.login.sasl.enabled.mechanisms", "PLAIN".to_owned()),
        ("listener.name.login.plain.sasl.jaas.config", format!("{module} required {};", users.join(" "))),
    ]
}

fn kafka() -> Result<World, Failure> {
    let properties = properties();
    let properties: Vec<_> = properties.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let kafka = KafkaCluster::start_with(
        1,
        &KafkaOptions {
            properties: &properties,
            listeners: &[("LOGIN", "SASL_PLAINTEXT")],
            newest: true,
            ..KafkaOptions::default()
        },
    )?;
    let (open, login) = (kafka.addresses()[0], kafka.listener("LOGIN"));
    Ok(World { name: "Kafka", open, login, _kafka: Some(kafka), _ottla: None })
}

fn ottla() -> Result<World, Failure> {
    let listeners = [
        ("listeners", "OPEN://127.0.0.1:0,LOGIN://127.0.0.1:0".to_owned()),
        ("listener.security.protocol.map", "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT".to_owned()),
        // Those of the harness of Kafka: lists have the partitions of all topics.
        ("offsets.topic.num.partitions", "4".to_owned()),
        ("transaction.state.log.num.partitions", "4".to_owned()),
    ];
    let all = listeners.into_iter().chain(properties());
    let args: Vec<String> =
        all.flat_map(|(key, value)| ["-X".to_owned(), format!("{key}={value}")]).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ottla = OttlaBroker::start(&args)?;
    let [open, login] = *ottla.addresses() else { return Err(Failure::new("not two listeners")) };
    Ok(World { name: "Ottla", open, login, _kafka: None, _ottla: Some(ottla) })
}

impl World {
    fn client(&self, user: &str) -> Raw {
        let mut raw = Raw::connect(self.login);
        login(&mut raw, user, PASSWORD);
        raw
    }

    /// Creates the topics that do not exist, and returns the ids of all.
    fn topics(&self) -> Result<BTreeMap<String, Uuid>, Failure> {
        let mut raw = Raw::connect(self.open);
        let topics = EXISTING.map(|name| m::create_topics::CreatableTopic {
            name: name.into(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        });
        let request =
            m::CreateTopicsRequest { topics: topics.into(), timeout_ms: 30_000, validate_only: false };
        let made = raw.ask(7, &request).expect("an answer");
        let mut new: BTreeMap<String, Uuid> = BTreeMap::new();
        for topic in made.topics {
            match topic.error_code {
                ErrorCode::None => drop(new.insert(topic.name, topic.topic_id)),
                code => assert_eq!(code, ErrorCode::TopicAlreadyExists, "{}", topic.name),
            }
        }
        wait_until(&format!("the topics of {}", self.name), APPLIED_WITHIN, || {
            let all = m::MetadataRequest { topics: None, ..Default::default() };
            let described = raw.ask(12, &all).expect("an answer").topics;
            let has_leader = |topic: &m::metadata::MetadataResponseTopic| {
                topic.partitions.first().is_some_and(|partition| partition.leader_id >= 0)
            };
            let ids = described
                .iter()
                .filter(|topic| has_leader(topic))
                .map(|topic| (topic.name.clone().unwrap_or_default(), topic.topic_id));
            let ids: BTreeMap<String, Uuid> = ids.collect();
            // Metadata can have the topic that was deleted before.
            let is_current = |name: &&str| {
                ids.get(*name).is_some_and(|id| new.get(*name).is_none_or(|created| created == id))
            };
            EXISTING.iter().all(is_current).then_some(ids)
        })
    }

    /// Offsets of each group and an id of each transaction, so that the coordinators have loaded.
    fn use_coordinators(&self) -> Result<(), Failure> {
        let mut raw = Raw::connect(self.open);
        for group in GROUPS {
            wait_until(&format!("the group {group} of {}", self.name), APPLIED_WITHIN, || {
                let find = m::FindCoordinatorRequest { key: group.into(), ..Default::default() };
                raw.ask(3, &find)?;
                let committed = raw.ask(8, &crate::common::commit_request(group, 7))?;
                (committed.topics[0].partitions[0].error_code == ErrorCode::None).then_some(())
            })?;
        }
        for id in TRANSACTIONAL_IDS {
            wait_until(&format!("the transactional id {id} of {}", self.name), APPLIED_WITHIN, || {
                let find = m::FindCoordinatorRequest { key: id.into(), key_type: 1, ..Default::default() };
                raw.ask(3, &find)?;
                let init = m::InitProducerIdRequest {
                    transactional_id: Some(id.into()),
                    transaction_timeout_ms: 60_000,
                    ..Default::default()
                };
                (raw.ask(4, &init)?.error_code == ErrorCode::None).then_some(())
            })?;
        }
        Ok(())
    }

    fn create_acls(&self) -> Result<(), Failure> {
        let mut raw = Raw::connect(self.open);
        let acl = |&(user, (resource_type, pattern, name), operation, permission, host): &Rule| AclCreation {
            resource_type,
            resource_name: name.into(),
            resource_pattern_type: pattern,
            principal: format!("User:{user}"),
            host: host.into(),
            operation,
            permission_type: permission,
        };
        create_acls(&mut raw, RULES.iter().map(acl).collect());
        // Kafka's broker learns of them from the controller's log.
        wait_until(&format!("the ACLs of {}", self.name), APPLIED_WITHIN, || {
            (acl_count(&mut raw) == RULES.len()).then_some(())
        })
    }

    /// The errors of all calls of all principals.
    fn errors(&self) -> Result<Vec<(String, String)>, Failure> {
        let ids = self.topics()?;
        self.use_coordinators()?;
        self.create_acls()?;
        let mut errors = Vec::new();
        for principal in PRINCIPALS {
            let mut caller = Caller::new(principal, self.client(principal));
            for topic in EXISTING.iter().chain(&MISSING) {
                caller.use_topic(topic, ids.get(*topic).copied().unwrap_or(Uuid::ZERO));
            }
            for group in GROUPS {
                caller.use_group(group, &["orders", "an-list", "closed", "missing"]);
            }
            for id in TRANSACTIONAL_IDS {
                caller.use_transactional_id(id, &["orders", "an-list", "closed", "missing"], &GROUPS);
            }
            caller.use_cluster();
            if principal != "bo" {
                caller.create_by_metadata("missing");
            }
            errors.append(&mut caller.errors);
        }
        // Deletions at the end: another principal's calls need the topics.
        for principal in PRINCIPALS {
            let ids = self.topics()?;
            let mut caller = Caller::new(principal, self.client(principal));
            for (topic, id) in &ids {
                caller.delete_topic(topic, *id);
            }
            for topic in MISSING {
                caller.delete_topic(topic, Uuid::ZERO);
            }
            self.topics()?;
            for topic in EXISTING {
                caller.delete_topic(topic, Uuid::ZERO);
            }
            errors.append(&mut caller.errors);
        }
        Ok(errors)
    }
}

#[test]
fn the_calls_of_several_principals_get_kafkas_errors() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let ours = ottla()?.errors()?;
    assert!(ours.iter().any(|(_, codes)| codes.contains("AuthorizationFailed")));
    let theirs = kafka()?.errors()?;
    let differences: Vec<String> = ours
        .iter()
        .zip(&theirs)
        .filter(|(ours, theirs)| ours != theirs)
        .map(|((call, ours), (other, theirs))| format!("{call}: Ottla {ours}; Kafka {theirs} ({other})"))
        .collect();
    assert_eq!(ours.len(), theirs.len());
    assert!(
        differences.is_empty(),
        "{} of {} calls:\n{}",
        differences.len(),
        ours.len(),
        differences.join("\n")
    );
    Ok(())
}

/// The codes of a printed response, and whether each message is absent, empty or a text.
fn codes_and_messages(response: &str) -> String {
    let mut shown = Vec::new();
    for (at, field) in response.match_indices("error_") {
        let value = &response[at + field.len()..];
        if let Some(code) = value.strip_prefix("code: ") {
            shown.push(code.split([',', ' ', '}']).next().unwrap_or_default());
        } else if let Some(message) = value.strip_prefix("message: ") {
            let is_empty = message.starts_with("Some(\"\")");
            let is_absent = message.starts_with("None");
            shown.push(if is_absent {
                "without a message"
            } else if is_empty {
                "with an empty message"
            } else {
                "with a message"
            });
        }
    }
    shown.join(" ")
}

/// The errors of a client without rights: codes, and whether there is a message.
fn refusals(world: &World, chosen: &[crate::common::sound::Sound]) -> BTreeMap<String, String> {
    let mut refusals = BTreeMap::new();
    for sound in chosen {
        let mut raw = world.client("stranger");
        raw.send(&sound.frame);
        let text = match raw.hear() {
            Heard::Answer(answer) => (sound.response_text)(answer, sound.version),
            Heard::Closed => "closed".to_owned(),
        };
        refusals.insert(sound.name(), codes_and_messages(&text));
    }
    refusals
}

#[test]
fn a_client_without_rights_gets_kafkas_error_from_every_api() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let (ours, theirs) = (ottla()?, kafka()?);
    for world in [&ours, &theirs] {
        world.topics()?;
        world.use_coordinators()?;
    }
    let listed = crate::common::sound::listed(theirs.open);
    let mut newest: BTreeMap<i16, i16> = BTreeMap::new();
    let mut all = in_every_version(ours.open);
    // Kafka refuses a second login within a second of the first one.
    all.retain(|sound| sound.api != ApiKey::SaslHandshake);
    for sound in &all {
        let has_it =
            listed.get(&sound.api.code()).is_some_and(|(min, max)| (*min..=*max).contains(&sound.version));
        if has_it {
            newest
                .entry(sound.api.code())
                .and_modify(|max| *max = sound.version.max(*max))
                .or_insert(sound.version);
        }
    }
    let chosen: Vec<_> =
        all.into_iter().filter(|sound| newest.get(&sound.api.code()) == Some(&sound.version)).collect();
    let (ours, theirs) = (refusals(&ours, &chosen), refusals(&theirs, &chosen));
    let differences: Vec<String> = ours
        .iter()
        .filter(|(name, codes)| theirs.get(*name) != Some(codes))
        .map(|(name, codes)| format!("{name}: Ottla {codes}; Kafka {:?}", theirs.get(name)))
        .collect();
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), ours.len(), differences.join("\n"));
    Ok(())
}
