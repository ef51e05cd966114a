//! The effects of settings here, as the documents tell them, the settings of this broker alone, and its own defaults.

use super::Kind;
use crate::config::dead_letter_queues::{COPIES_RECORDS, TOPIC_NAME};

/// The settings that Kafka does not have, and those of its authorizer.
pub(super) const OWN: &[(&str, Kind, &str, &str)] = &[
    (
        "allow.everyone.if.no.acl.found",
        Kind::Boolean,
        "false",
        "With an authorizer, everyone may use a resource that has no ACLs.",
    ),
    (
        "group.consumer.rebalance.heartbeat.interval.ms",
        Kind::Long,
        "1000",
        "The heartbeat interval, if it is less, of a group of the new protocol while it changes.",
    ),
    (
        "log.scrub.bytes.per.second",
        Kind::Long,
        "8388608",
        "The rate at which closed segments are read and checked; 0 disables the check.",
    ),
    (
        "memory.max.bytes",
        Kind::Long,
        "268435456",
        "The memory for requests and responses; requests wait while it is used up.",
    ),
    ("partitions.total.max", Kind::Long, "20000", "The partitions of all topics together."),
    (
        "super.users",
        Kind::String,
        "",
        "With an authorizer, principals that may do everything: `User:admin;User:operator`.",
    ),
];

/// The broker settings whose effect has a text of its own. Most are those of a process, which `ottla broker --config` reads: an
/// embedded broker has methods for them.
pub(super) const BROKER_EFFECTS: &[(&str, &str)] = &[
    (
        "advertised.listeners",
        "The addresses that clients connect to: the entries of the listeners that `listeners` names.",
    ),
    ("broker.id", "As `node.id`. With both, they must be the same; -1 is none."),
    (
        "auto.leader.rebalance.enable",
        "A node that starts leads its preferred partitions again, at once; `false`: those without a leader only.",
    ),
    (
        "broker.rack",
        "The rack of all nodes; or a list with the rack of each node, such as `a,b,c` with `--nodes 3`.",
    ),
    ("connection.failed.authentication.delay.ms", "The time until a failed login is answered."),
    ("connections.max.reauth.ms", "A session that is not renewed in this time ends."),
    ("controller.listener.names", "Listeners of these names are ignored."),
    (
        "controller.quorum.voters",
        "The id of the first voter is the name of the controller in the errors of UpdateFeatures.",
    ),
    (
        "default.replication.factor",
        "The replicas of topics that are created without a number; at most as many as there are nodes.",
    ),
    (
        "errors.deadletterqueue.auto.create.topics.enable",
        "Apache Kafka 4.4: the dead-letter topic of a share group is created for its first record.",
    ),
    (
        "errors.deadletterqueue.topic.name.prefix",
        "Apache Kafka 4.4: names of dead-letter topics must begin with it; an empty one allows every name.",
    ),
    (
        "group.coordinator.rebalance.protocols",
        "Without `consumer`, requests of the new protocol get UNSUPPORTED_VERSION. `classic` is required; others have no effect.",
    ),
    ("listener.security.protocol.map", "The security protocol of each listener."),
    (
        "listeners",
        "The listeners that are not a controller's; `--listen` wins. Without both, the broker listens on 127.0.0.1:9092.",
    ),
    ("log.dir", "As `log.dirs`. There is no default: `--data` or one of the two is needed."),
    ("log.dirs", "The data directory, one; `--data` wins."),
    (
        "max.connections.per.ip.overrides",
        "As in Apache Kafka, with IP addresses instead of names of hosts: `10.0.0.1:100,10.0.0.2:5`.",
    ),
    ("node.id", "The id of the first node, 1 without it; further nodes of `--nodes` have the ids after it."),
    (
        "offsets.topic.replication.factor",
        "The replicas of `__consumer_offsets`; at most as many as there are nodes.",
    ),
    (
        "replica.selector.class",
        "With `org.apache.kafka.common.replica.RackAwareReplicaSelector`, the leader redirects consumers to a replica in their rack.",
    ),
    ("sasl.enabled.mechanisms", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER."),
    ("sasl.jaas.config", "The users of PLAIN; best as `listener.name.NAME.plain.sasl.jaas.config`."),
    ("sasl.oauthbearer.clock.skew.seconds", "The difference between clocks that is accepted."),
    ("sasl.oauthbearer.expected.audience", "Required for OAUTHBEARER."),
    ("sasl.oauthbearer.expected.issuer", "Required for OAUTHBEARER."),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "The time between two reads of the URL below."),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "The longest time until a failed read is tried again, and the shortest between two reads for unknown keys.",
    ),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "The first such time."),
    (
        "sasl.oauthbearer.jwks.endpoint.url",
        "The issuer's keys: an `https` URL, or a file as `file:///PATH`, which is read again when it changes.",
    ),
    ("sasl.oauthbearer.sub.claim.name", "The claim that names the user."),
    (
        "sasl.server.max.receive.size",
        "The largest request before authentication, and the largest token after it.",
    ),
    (
        "share.coordinator.state.topic.replication.factor",
        "The replicas of `__share_group_state`; at most as many as there are nodes.",
    ),
    (
        "ssl.cipher.suites",
        "The only cipher suites that clients may use, of both versions of TLS, by Java's names. Those that rustls lacks are left out.",
    ),
    ("ssl.client.auth", "Requests for client certificates."),
    ("ssl.enabled.protocols", "The versions of TLS that clients may use: TLSv1.2 and TLSv1.3."),
    ("ssl.key.password", "The password of an encrypted private key (PKCS#8)."),
    ("ssl.keystore.certificate.chain", "The server's certificates, in PEM."),
    ("ssl.keystore.key", "The server's private key, in PEM."),
    ("ssl.keystore.location", "A file with both, in PEM; read again when it changes."),
    ("ssl.keystore.type", "Must be PEM."),
    ("ssl.principal.mapping.rules", "The names of clients with certificates."),
    ("ssl.truststore.certificates", "The authorities of client certificates, in PEM."),
    ("ssl.truststore.location", "The same in a file; read again when it changes."),
    ("ssl.truststore.type", "Must be PEM."),
    (
        "transaction.state.log.replication.factor",
        "The replicas of `__transaction_state`; at most as many as there are nodes.",
    ),
    (
        "unstable.feature.versions.enable",
        "The nodes have the levels of features that Kafka has for tests; or a list with one value for each node.",
    ),
];

/// The settings of groups that have an effect. Values outside the broker's limits are refused; stored ones count as the limit.
pub(super) const GROUP_EFFECTS: &[(&str, &str)] = &[
    ("consumer.assignment.interval.ms", "The least time between two target assignments of the group."),
    ("consumer.heartbeat.interval.ms", "The time between two heartbeats of a member of the group."),
    ("consumer.session.timeout.ms", "A member without a heartbeat for this time is removed."),
    (
        COPIES_RECORDS,
        "Apache Kafka 4.4: records in the dead-letter topic have the key and the value of the original.",
    ),
    (
        TOPIC_NAME,
        "Apache Kafka 4.4: the topic for records that were rejected or delivered too often. Without it they are archived only.",
    ),
    ("share.assignment.interval.ms", "The least time between two target assignments of the share group."),
    ("share.heartbeat.interval.ms", "The time between two heartbeats of a member of the share group."),
    ("share.session.timeout.ms", "A member of the share group without a heartbeat for this time is removed."),
    (
        "share.auto.offset.reset",
        "Where a share group begins a partition: latest, earliest or by_duration:<duration>.",
    ),
    ("share.delivery.count.limit", "A record that was delivered so often is not delivered again."),
    ("share.isolation.level", "With read_committed, the records of aborted transactions are not delivered."),
    ("share.partition.max.record.locks", "The records of a partition that the group may have in flight."),
    (
        "share.record.lock.duration.ms",
        "The time in which a record must be acknowledged; then it is delivered again.",
    ),
    ("share.renew.acknowledge.enable", "Members may renew their locks."),
];

/// The settings of subscriptions to clients' metrics (KIP-714).
pub(super) const CLIENT_METRICS_EFFECTS: &[(&str, &str)] = &[
    ("interval.ms", "The time between two pushes of a client, from 100 to 3600000."),
    ("match", "The clients that push: all that match each KEY=REGEX of the list."),
    ("metrics", "Prefixes of the names of metrics that clients push; `*` is all."),
];

/// The defaults of this broker that differ from Kafka's.
pub(super) const OWN_DEFAULTS: &[(&str, &str)] = &[
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.consumer.max.size", "10000"),
    ("group.max.size", "10000"),
    ("group.min.session.timeout.ms", "10"),
    ("fetch.max.bytes", "57671680"),
    ("log.cleaner.dedupe.buffer.size", "67108864"),
    ("max.connections", "10000"),
];
