//! Interceptors that the client has no place for.

unimplemented_functions! {
    code rd_kafka_interceptor_add_on_broker_state_change;
    code rd_kafka_interceptor_add_on_request_sent;
    code rd_kafka_interceptor_add_on_response_received;
}
