/*
 * A cluster of brokers inside the process, for tests: librdkafka's interface to its mock cluster, on Ottla's embedded
 * broker, which keeps records in memory. `test.mock.num.brokers` starts one for a client without further ado.
 *
 * librdkafka promises no stability for this interface.
 */

#ifndef _RDKAFKA_MOCK_H_
#define _RDKAFKA_MOCK_H_

#ifndef _RDKAFKA_H_
#error "include rdkafka.h before rdkafka_mock.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** A cluster. */
typedef struct rd_kafka_mock_cluster_s rd_kafka_mock_cluster_t;
/** A request that a broker got. */
typedef struct rd_kafka_mock_request_s rd_kafka_mock_request_t;
/** Who is to have what in a group. */
typedef struct rd_kafka_mock_cgrp_consumer_target_assignment_s
    rd_kafka_mock_cgrp_consumer_target_assignment_t;

/* ---- The cluster ---- */

/**
 * Starts a cluster of `broker_cnt` brokers with ids from 1 on, which listen on loopback. `rk` is
 * needed for its logs, and goes on as it is; destroy the cluster before it.
 */
RD_EXPORT rd_kafka_mock_cluster_t *rd_kafka_mock_cluster_new(rd_kafka_t *rk, int broker_cnt);

/** Stops the brokers and frees the cluster. */
RD_EXPORT void rd_kafka_mock_cluster_destroy(rd_kafka_mock_cluster_t *mcluster);

/** The client that the cluster was made with. */
RD_EXPORT rd_kafka_t *rd_kafka_mock_cluster_handle(const rd_kafka_mock_cluster_t *mcluster);

/** The cluster that a client started because of `test.mock.num.brokers`; NULL if it has none. */
RD_EXPORT rd_kafka_mock_cluster_t *rd_kafka_handle_mock_cluster(const rd_kafka_t *rk);

/** The addresses of the brokers, for `bootstrap.servers`; they live as long as the cluster. */
RD_EXPORT const char *rd_kafka_mock_cluster_bootstraps(const rd_kafka_mock_cluster_t *mcluster);

/** Says which broker is the controller. */
RD_EXPORT void rd_kafka_mock_set_controller_id(
    rd_kafka_mock_cluster_t *mcluster, int32_t controller_id);

/* ---- Errors on demand ---- */

/**
 * Has the next `cnt` requests of this kind fail with the errors that follow, whichever broker
 * gets them. RD_KAFKA_RESP_ERR__TRANSPORT closes the connection, RD_KAFKA_RESP_ERR_NO_ERROR lets
 * one pass.
 */
RD_EXPORT void rd_kafka_mock_push_request_errors(
    rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey, size_t cnt, ...);

/** As rd_kafka_mock_push_request_errors(), with the errors in an array. */
RD_EXPORT void rd_kafka_mock_push_request_errors_array(
    rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey, size_t cnt,
    const rd_kafka_resp_err_t *errors);

/** Forgets the errors that are left for requests of this kind. */
RD_EXPORT void rd_kafka_mock_clear_request_errors(
    rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey);

/**
 * Has the next `cnt` requests of this kind at this broker answered by the pairs that follow: an
 * error and a delay in milliseconds (int).
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_push_request_error_rtts(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id, int16_t ApiKey, size_t cnt, ...);

/** Gives how many errors are left for requests of this kind at this broker. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_error_stack_cnt(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id, int16_t ApiKey, size_t *cntp);

/**
 * Has the next `cnt` requests of this kind fail for this partition with the errors that follow:
 * Produce, Fetch, ShareFetch or ShareAcknowledge. Others have no errors of partitions.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_partition_push_request_errors(
    rd_kafka_mock_cluster_t *mcluster, const char *topic, int32_t partition, int16_t ApiKey,
    size_t cnt, ...);

/** Has metadata say this error of the topic. */
RD_EXPORT void rd_kafka_mock_topic_set_error(
    rd_kafka_mock_cluster_t *mcluster, const char *topic, rd_kafka_resp_err_t err);

/* ---- Topics and partitions ---- */

/** Creates a topic. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_topic_create(
    rd_kafka_mock_cluster_t *mcluster, const char *topic, int partition_cnt,
    int replication_factor);

/** Deletes a topic with its records. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_topic_delete(
    rd_kafka_mock_cluster_t *mcluster, const char *topic);

/** Makes this broker the partition's leader; -1 is none. Creates the topic if need be. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_partition_set_leader(
    rd_kafka_mock_cluster_t *mcluster, const char *topic, int32_t partition, int32_t broker_id);

/** Makes this broker the one that consumers are sent to for the partition. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_partition_set_follower(
    rd_kafka_mock_cluster_t *mcluster, const char *topic, int32_t partition, int32_t broker_id);

/** Limits what the partition's follower has to these offsets; -1 is as the leader. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_partition_set_follower_wmarks(
    rd_kafka_mock_cluster_t *mcluster, const char *topic, int32_t partition, int64_t lo,
    int64_t hi);

/** Has the next metadata answer name this leader and epoch for the partition, whatever is true. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_partition_push_leader_response(
    rd_kafka_mock_cluster_t *mcluster, const char *topic, int partition, int32_t leader_id,
    int32_t leader_epoch);

/** Deletes the partition's records before this offset. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_partition_delete_records(
    rd_kafka_mock_cluster_t *mcluster, const char *topic, int32_t partition, int64_t before_offset);

/* ---- Brokers ---- */

/**
 * Closes a broker's connections and takes no more; -1 is all brokers. Leaders stay what they
 * are.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_set_down(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id);

/** Takes connections again; -1 is all brokers. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_set_up(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id);

/** Delays a broker's answers by this time; -1 is all brokers. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_set_rtt(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id, int rtt_ms);

/** Sets a broker's rack. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_set_rack(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id, const char *rack);

/** Has metadata name this address for a broker. */
RD_EXPORT void rd_kafka_mock_broker_set_host_port(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id, const char *host, int port);

/** Takes a broker out of the cluster; its partitions go to others. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_decommission(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id);

/** Has metadata no longer name a broker, which goes on. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_remove_from_metadata(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id);

/** Adds a broker with this id. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_broker_add(
    rd_kafka_mock_cluster_t *mcluster, int32_t broker_id);

/** Sets the coordinator of a "group" or "transaction" by its id. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_coordinator_set(
    rd_kafka_mock_cluster_t *mcluster, const char *key_type, const char *key, int32_t broker_id);

/** Sets which versions of a kind of request the brokers say they know; -1 and -1 are none. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_set_apiversion(
    rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey, int16_t MinVersion, int16_t MaxVersion);

/* ---- Groups ---- */

/** How long a new group waits for members before its first rebalance. */
RD_EXPORT void rd_kafka_mock_group_initial_rebalance_delay_ms(
    rd_kafka_mock_cluster_t *mcluster, int32_t delay_ms);

/** Sets `group.consumer.session.timeout.ms`. */
RD_EXPORT void rd_kafka_mock_set_group_consumer_session_timeout_ms(
    rd_kafka_mock_cluster_t *mcluster, int group_consumer_session_timeout_ms);

/** Sets `group.consumer.heartbeat.interval.ms`. */
RD_EXPORT void rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(
    rd_kafka_mock_cluster_t *mcluster, int group_consumer_heartbeat_interval_ms);

/** Makes an assignment of `member_cnt` members, each with its list. Both arrays are copied. */
RD_EXPORT rd_kafka_mock_cgrp_consumer_target_assignment_t *rd_kafka_mock_cgrp_consumer_target_assignment_new(
    char **member_ids, int member_cnt, rd_kafka_topic_partition_list_t **assignment);

/** Frees it. */
RD_EXPORT void rd_kafka_mock_cgrp_consumer_target_assignment_destroy(
    rd_kafka_mock_cgrp_consumer_target_assignment_t *target_assignment);

/** Makes this the next target assignment of a group of the consumer protocol. */
RD_EXPORT void rd_kafka_mock_cgrp_consumer_target_assignment(
    rd_kafka_mock_cluster_t *mcluster, const char *group_id,
    rd_kafka_mock_cgrp_consumer_target_assignment_t *target_assignment);

/* ---- Share groups ---- */

/** Gives a group's members in a new array; free each with rd_kafka_mem_free(), and the array. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_sharegroup_get_member_ids(
    rd_kafka_mock_cluster_t *mcluster, const char *group_id, char ***member_ids_out,
    size_t *member_cnt_out);

/** Sets what each of these members has. */
RD_EXPORT void rd_kafka_mock_sharegroup_target_assignment(
    rd_kafka_mock_cluster_t *mcluster, const char *group_id, const char **member_ids,
    rd_kafka_topic_partition_list_t **assignment, size_t member_cnt);

/** After how many milliseconds without heartbeat a member is gone. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_session_timeout(
    rd_kafka_mock_cluster_t *mcluster, int session_timeout_ms);

/** How often members are to send heartbeats, in milliseconds. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_heartbeat_interval(
    rd_kafka_mock_cluster_t *mcluster, int heartbeat_interval_ms);

/** How often a record is delivered at most. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_max_delivery_attempts(
    rd_kafka_mock_cluster_t *mcluster, int max_attempts);

/** For how many milliseconds a record is a member's before another gets it. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_record_lock_duration(
    rd_kafka_mock_cluster_t *mcluster, int lock_duration_ms);

/** 1 for committed records only, 0 for all. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_isolation_level(
    rd_kafka_mock_cluster_t *mcluster, int level);

/** How many members a group takes. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_max_size(
    rd_kafka_mock_cluster_t *mcluster, int max_size);

/** How many sessions a broker takes. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_max_fetch_sessions(
    rd_kafka_mock_cluster_t *mcluster, int max_fetch_sessions);

/** How many records of a partition may be delivered and not acknowledged at a time. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_max_record_locks(
    rd_kafka_mock_cluster_t *mcluster, int max_record_locks);

/** Where a new group begins: 0 at the end, 1 at the beginning. */
RD_EXPORT void rd_kafka_mock_sharegroup_set_auto_offset_reset(
    rd_kafka_mock_cluster_t *mcluster, int auto_offset_reset);

/* ---- What was asked ---- */

/** Keeps a list of the requests from now on. */
RD_EXPORT void rd_kafka_mock_start_request_tracking(rd_kafka_mock_cluster_t *mcluster);

/** Keeps no more; the list stays. */
RD_EXPORT void rd_kafka_mock_stop_request_tracking(rd_kafka_mock_cluster_t *mcluster);

/**
 * The requests so far, `*cntp` of them. Free each with rd_kafka_mock_request_destroy(), and the
 * array; or all with rd_kafka_mock_request_destroy_array().
 */
RD_EXPORT rd_kafka_mock_request_t **rd_kafka_mock_get_requests(
    rd_kafka_mock_cluster_t *mcluster, size_t *cntp);

/** Empties the list. */
RD_EXPORT void rd_kafka_mock_clear_requests(rd_kafka_mock_cluster_t *mcluster);

/** Frees a request. */
RD_EXPORT void rd_kafka_mock_request_destroy(rd_kafka_mock_request_t *mreq);

/** Frees `mreq_cnt` requests and their array. */
RD_EXPORT void rd_kafka_mock_request_destroy_array(
    rd_kafka_mock_request_t **mreqs, size_t mreq_cnt);

/** The broker that got the request. */
RD_EXPORT int32_t rd_kafka_mock_request_id(rd_kafka_mock_request_t *mreq);

/** What kind of request it was. */
RD_EXPORT int16_t rd_kafka_mock_request_api_key(rd_kafka_mock_request_t *mreq);

/** When it came, in microseconds. */
RD_EXPORT int64_t rd_kafka_mock_request_timestamp(rd_kafka_mock_request_t *mreq);

/* ---- Telemetry ---- */

/** Which metrics the brokers ask clients for, by prefixes; NULL is none, "" is all. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_telemetry_set_requested_metrics(
    rd_kafka_mock_cluster_t *mcluster, char **metrics, size_t metrics_cnt);

/** How often clients are to send them, in milliseconds. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_mock_telemetry_set_push_interval(
    rd_kafka_mock_cluster_t *mcluster, int64_t push_interval_ms);

#ifdef __cplusplus
}
#endif

#endif
