//! Handles, queues, events, producer and consumer.

unimplemented_functions! {
    zero rd_kafka_brokers_add;
    null rd_kafka_brokers_learned_ids;
    null rd_kafka_default_topic_conf_dup;
    nothing rd_kafka_dump;
    error rd_kafka_sasl_set_credentials;
    nothing rd_kafka_set_log_level;
    nothing rd_kafka_set_logger;
    zero rd_kafka_wait_destroyed;
}
