//! The share consumer.

unimplemented_functions! {
    zero rd_kafka_message_delivery_count;
    zero rd_kafka_messages_count;
    nothing rd_kafka_messages_destroy;
    null rd_kafka_messages_get;
    code rd_kafka_share_acknowledge;
    code rd_kafka_share_acknowledge_offset;
    code rd_kafka_share_acknowledge_type;
    error rd_kafka_share_commit_async;
    error rd_kafka_share_commit_sync;
    error rd_kafka_share_consumer_close;
    error rd_kafka_share_consumer_close_queue;
    zero rd_kafka_share_consumer_closed;
    text_and_null rd_kafka_share_consumer_new (a);
    error rd_kafka_share_destroy;
    error rd_kafka_share_destroy_flags;
    text_and_code rd_kafka_share_oauthbearer_set_token (a, b, c, d, e, f);
    code rd_kafka_share_oauthbearer_set_token_failure;
    zero rd_kafka_share_partition_offsets_list_count;
    nothing rd_kafka_share_partition_offsets_list_destroy;
    null rd_kafka_share_partition_offsets_list_get;
    null rd_kafka_share_partition_offsets_offsets;
    zero rd_kafka_share_partition_offsets_offsets_cnt;
    null rd_kafka_share_partition_offsets_partition;
    error rd_kafka_share_poll;
    null rd_kafka_share_queue_get_sasl;
    error rd_kafka_share_sasl_background_callbacks_enable;
    error rd_kafka_share_sasl_set_credentials;
    error rd_kafka_share_set_acknowledgement_commit_cb;
    error rd_kafka_share_set_log_queue;
    code rd_kafka_share_subscribe;
    code rd_kafka_share_subscription;
    code rd_kafka_share_unsubscribe;
}
