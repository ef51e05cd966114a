//! Property names of Java's client, and their counterparts.

const SERIALIZERS: &str = "records are bytes: serialise them yourself";
const TRUST: &str = "trusted certificates are PEM: ssl.ca.location or ssl.ca.pem";
const PLAIN_CLASSES: &str = "there are no classes to load";
const TLS_CHOICES: &str = "TLS 1.2 and 1.3 are spoken, with rustls' own choice";
const METRICS: &str = "there is no JMX";
const LEVEL: &str = "compression.level is the level of whichever codec is chosen";
const STICKY: &str = "the partitioner property chooses among whole partitioners";

const NAMES: &[(&str, &str)] = &[
    ("auto.include.jmx.reporter", METRICS),
    ("compression.gzip.level", LEVEL),
    ("compression.lz4.level", LEVEL),
    ("compression.zstd.level", LEVEL),
    ("config.providers", PLAIN_CLASSES),
    ("default.api.timeout.ms", "calls take as long as request.timeout.ms and their own arguments say"),
    ("exclude.internal.topics", "a subscription by pattern takes every topic that matches"),
    ("interceptor.classes", PLAIN_CLASSES),
    ("key.deserializer", SERIALIZERS),
    ("key.serializer", SERIALIZERS),
    ("max.block.ms", "the `try_` calls never wait, `send` waits as long as delivery.timeout.ms"),
    ("metadata.max.idle.ms", "a topic is kept fresh as long as its producer handle or consumer lives"),
    ("metric.reporters", METRICS),
    ("metrics.num.samples", METRICS),
    ("metrics.recording.level", METRICS),
    ("metrics.sample.window.ms", METRICS),
    ("partitioner.adaptive.partitioning.enable", STICKY),
    ("partitioner.availability.timeout.ms", STICKY),
    ("partitioner.class", "use partitioner, or `Partitioner::Custom`"),
    ("partitioner.ignore.keys", STICKY),
    ("sasl.client.callback.handler.class", PLAIN_CLASSES),
    ("sasl.jaas.config", "use sasl.mechanism, sasl.username and sasl.password"),
    ("sasl.login.callback.handler.class", PLAIN_CLASSES),
    ("sasl.login.class", PLAIN_CLASSES),
    ("security.providers", PLAIN_CLASSES),
    ("ssl.enabled.protocols", TLS_CHOICES),
    ("ssl.keystore.certificate.chain", "use ssl.certificate.pem"),
    ("ssl.keystore.key", "use ssl.key.pem"),
    (
        "ssl.keystore.type",
        "ssl.keystore.location is PKCS#12; PEM has ssl.key.location and ssl.certificate.location",
    ),
    ("ssl.protocol", TLS_CHOICES),
    ("ssl.truststore.certificates", TRUST),
    ("ssl.truststore.location", TRUST),
    ("ssl.truststore.password", TRUST),
    ("ssl.truststore.type", TRUST),
    ("value.deserializer", SERIALIZERS),
    ("value.serializer", SERIALIZERS),
];

/// The alternative to Java's property `name`, if it has no counterpart.
pub(super) fn instead_of(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(java, _)| *java == name).map(|(_, instead)| *instead)
}
