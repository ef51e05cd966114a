//! Configuration, lists, headers and other plain values.

unimplemented_functions! {
    code rd_kafka_interceptor_add_on_acknowledgement;
    code rd_kafka_interceptor_add_on_broker_state_change;
    code rd_kafka_interceptor_add_on_commit;
    code rd_kafka_interceptor_add_on_consume;
    code rd_kafka_interceptor_add_on_destroy;
    code rd_kafka_interceptor_add_on_request_sent;
    code rd_kafka_interceptor_add_on_response_received;
    code rd_kafka_interceptor_add_on_send;
    code rd_kafka_interceptor_add_on_thread_exit;
    code rd_kafka_interceptor_add_on_thread_start;
}
