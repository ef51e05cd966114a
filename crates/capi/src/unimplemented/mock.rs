//! The mock cluster: what the embedded broker cannot do, and everything in a build without it.

unimplemented_functions! {
    nothing rd_kafka_mock_cgrp_consumer_target_assignment;
    nothing rd_kafka_mock_cgrp_consumer_target_assignment_destroy;
    null rd_kafka_mock_cgrp_consumer_target_assignment_new;
    nothing rd_kafka_mock_set_group_consumer_heartbeat_interval_ms;
    nothing rd_kafka_mock_set_group_consumer_session_timeout_ms;
    code rd_kafka_mock_sharegroup_get_member_ids;
    nothing rd_kafka_mock_sharegroup_set_auto_offset_reset;
    nothing rd_kafka_mock_sharegroup_set_heartbeat_interval;
    nothing rd_kafka_mock_sharegroup_set_isolation_level;
    nothing rd_kafka_mock_sharegroup_set_max_delivery_attempts;
    nothing rd_kafka_mock_sharegroup_set_max_fetch_sessions;
    nothing rd_kafka_mock_sharegroup_set_max_record_locks;
    nothing rd_kafka_mock_sharegroup_set_max_size;
    nothing rd_kafka_mock_sharegroup_set_record_lock_duration;
    nothing rd_kafka_mock_sharegroup_set_session_timeout;
    nothing rd_kafka_mock_sharegroup_target_assignment;
}

#[cfg(not(feature = "mock"))]
unimplemented_functions! {
    null ottla_broker_bootstrap_servers;
    zero ottla_broker_control;
    code ottla_broker_destroy;
    text_and_null ottla_broker_start(settings);
    null rd_kafka_handle_mock_cluster;
    code rd_kafka_mock_broker_add;
    code rd_kafka_mock_broker_decommission;
    code rd_kafka_mock_broker_error_stack_cnt;
    code rd_kafka_mock_broker_remove_from_metadata;
    code rd_kafka_mock_broker_set_down;
    nothing rd_kafka_mock_broker_set_host_port;
    code rd_kafka_mock_broker_set_rack;
    code rd_kafka_mock_broker_set_rtt;
    code rd_kafka_mock_broker_set_up;
    nothing rd_kafka_mock_clear_request_errors;
    nothing rd_kafka_mock_clear_requests;
    null rd_kafka_mock_cluster_bootstraps;
    nothing rd_kafka_mock_cluster_destroy;
    null rd_kafka_mock_cluster_handle;
    null rd_kafka_mock_cluster_new;
    code rd_kafka_mock_coordinator_set;
    null rd_kafka_mock_get_requests;
    nothing rd_kafka_mock_group_initial_rebalance_delay_ms;
    code rd_kafka_mock_partition_delete_records;
    code rd_kafka_mock_partition_push_leader_response;
    code rd_kafka_mock_partition_set_follower;
    code rd_kafka_mock_partition_set_follower_wmarks;
    code rd_kafka_mock_partition_set_leader;
    nothing rd_kafka_mock_push_request_errors_array;
    zero rd_kafka_mock_request_api_key;
    nothing rd_kafka_mock_request_destroy;
    nothing rd_kafka_mock_request_destroy_array;
    zero rd_kafka_mock_request_id;
    zero rd_kafka_mock_request_timestamp;
    code rd_kafka_mock_set_apiversion;
    nothing rd_kafka_mock_set_controller_id;
    nothing rd_kafka_mock_start_request_tracking;
    nothing rd_kafka_mock_stop_request_tracking;
    code rd_kafka_mock_telemetry_set_push_interval;
    code rd_kafka_mock_telemetry_set_requested_metrics;
    code rd_kafka_mock_topic_create;
    code rd_kafka_mock_topic_delete;
    nothing rd_kafka_mock_topic_set_error;
}
