/*
 * The functions that this library adds to librdkafka's interface: the processor, and the embedded broker for tests.
 *
 * A processor is a member of a consumer group. It handles records on several threads and commits only offsets of records
 * that are done.
 *
 *     ottla_processor_settings_t *settings = ottla_processor_settings_new();
 *     ottla_processor_settings_set(settings, "mode", "multi-async", errstr, sizeof(errstr));
 *     ottla_processor_settings_set(settings, "topics", "orders", errstr, sizeof(errstr));
 *     ottla_processor_settings_set_handler(settings, handle, NULL);
 *     ottla_processor_t *processor = ottla_processor_start(conf, settings, errstr, sizeof(errstr));
 *     ...
 *     ottla_processor_destroy(processor);
 *
 * These rules apply to all functions, in addition to those of rdkafka.h:
 * - Handlers run on threads of the library, several at the same time, and may block without a time limit. They may call
 *   all functions except ottla_processor_wait() and ottla_processor_destroy() of their own processor, which return
 *   RD_KAFKA_RESP_ERR__STATE. They must not throw exceptions.
 * - The handles of processors, settings and brokers are ids, not addresses. Functions return RD_KAFKA_RESP_ERR__INVALID_ARG for
 *   NULL, for an unknown or destroyed handle, and, after a fork(), for a handle of the parent process.
 */

#ifndef _OTTLA_H_
#define _OTTLA_H_

#include "rdkafka.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A processor. */
typedef struct ottla_processor_s ottla_processor_t;
/** The settings of a processor. */
typedef struct ottla_processor_settings_s ottla_processor_settings_t;
/** One call of a handler. It is valid until the handler returns, and only in the handler's thread. */
typedef struct ottla_processor_call_s ottla_processor_call_t;

/* ---- Handlers ---- */

/** The result of a handler for a record or a batch. */
typedef enum ottla_processor_verdict_t {
    /** The record is done. */
    OTTLA_PROCESSOR_DONE = 0,
    /** The record failed and is retried according to the settings. Undefined values have the same meaning. */
    OTTLA_PROCESSOR_FAILED = 1,
    /** The record failed permanently and is given up without a retry. */
    OTTLA_PROCESSOR_REFUSED = 2,
    /** The record cannot be decoded and is given up without a retry. */
    OTTLA_PROCESSOR_UNDECODABLE = 3
} ottla_processor_verdict_t;

/**
 * Handles one record, in the modes `sync` and `multi-async`. The message and the memory to which it points are valid
 * until the handler returns. The message accessors of rdkafka.h work on it. The handler must not destroy it.
 */
typedef ottla_processor_verdict_t (*ottla_processor_handler_t)(ottla_processor_call_t *call,
                                                               const rd_kafka_message_t *message,
                                                               void *opaque);

/**
 * Handles `cnt` records of one partition, at least one, in order, in the modes `batch` and `multi-batch`. The verdict
 * applies to the whole batch. If only some records failed, report them with ottla_processor_fail() and return
 * OTTLA_PROCESSOR_DONE.
 */
typedef ottla_processor_verdict_t (*ottla_processor_batch_handler_t)(ottla_processor_call_t *call,
                                                                     const rd_kafka_message_t *const *messages,
                                                                     size_t cnt,
                                                                     void *opaque);

/** Returns the number of the attempt: 1 for the first in this process. Returns 0 if `call` is NULL. */
RD_EXPORT uint32_t ottla_processor_attempt(const ottla_processor_call_t *call);

/** Sets the reason for the verdict. The text is copied; errors and dead letters contain it. */
RD_EXPORT void ottla_processor_set_reason(ottla_processor_call_t *call, const char *reason);

/**
 * Reports that the batch's record at `index` failed for `reason`, which is copied and may be NULL. The other records
 * are done if the handler returns OTTLA_PROCESSOR_DONE, and all outputs of the call are written. Do not send outputs for
 * a record that failed: it is handled again, and they would be written twice. Returns RD_KAFKA_RESP_ERR__INVALID_ARG if
 * the batch has no such record, or if the call is not for a batch.
 */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_fail(ottla_processor_call_t *call,
                                                   size_t index,
                                                   ottla_processor_verdict_t verdict,
                                                   const char *reason);

/**
 * Produces an output record for the handled record or batch. The output is written only if the handler succeeds; a
 * batch handler succeeds if it returns OTTLA_PROCESSOR_DONE and not all records failed. The handled record is done only
 * when the output is acknowledged. With `transactional.id` the output and the offset
 * are committed in one transaction. All arguments are copied. `key`, `value` and `headers` may be NULL. With
 * RD_KAFKA_PARTITION_UA as `partition` the partitioner selects the partition.
 */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_send(ottla_processor_call_t *call,
                                                   const char *topic,
                                                   int32_t partition,
                                                   const void *key,
                                                   size_t key_len,
                                                   const void *value,
                                                   size_t len,
                                                   const rd_kafka_headers_t *headers);

/* ---- Settings ---- */

/** Returns settings with the defaults that are listed at ottla_processor_settings_set(). */
RD_EXPORT ottla_processor_settings_t *ottla_processor_settings_new(void);

/** Frees settings, unless ottla_processor_start() has taken them over. */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_settings_destroy(ottla_processor_settings_t *settings);

/**
 * Sets a setting by name. On failure `errstr` contains the reason.
 *
 * | Name                | Default      | Meaning                                                                     |
 * |---------------------|--------------|-----------------------------------------------------------------------------|
 * | mode                | multi-async  | `sync`, `batch`, `multi-async` or `multi-batch`                             |
 * | topics              |              | comma-separated names; a name that begins with ^ is a regular expression    |
 * | order               | of the mode  | `partition` (default with one worker), `key` or `none` (default with more)  |
 * | workers             | 8            | threads that call the handler, in the modes `multi-async` and `multi-batch` |
 * | queue               | 1000         | maximum number of work items that wait for a worker                         |
 * | batch               | 1000         | maximum number of records in a batch                                        |
 * | batch.wait.ms       | 1000         | time that a batch waits for more records while all workers are busy         |
 * | records.in.flight   | 100000       | maximum number of records in flight; partitions at their share are paused   |
 * | bytes.in.flight     | 67108864     | maximum memory of records in flight                                         |
 * | commit.interval.ms  | 1000         | time between commits, or auto.commit.interval.ms if that is shorter         |
 * | drain.ms            | 10000        | time limit for handlers when partitions are revoked or the processor stops  |
 * | retries             | 3            | number of retries of a failed record; -1: no limit                          |
 * | retry.delay.ms      | 100          | delay before the first retry; doubled for each further retry                |
 * | retry.delay.max.ms  | 10000        | maximum delay before a retry                                                |
 * | retry.holds         | false        | `true`: later records in the order of a failed record wait for its retries  |
 * | on.failure          | stop         | action for a record that is given up: `stop`, `dead-letter` or `skip`       |
 * | dead.letter.topic   |              | topic for `dead-letter`; headers contain the reason and the record's origin |
 * | breaker.failures    | 0            | consecutive failures that open the circuit breaker; 0: never                |
 * | breaker.pause.ms    | 10000        | time that the breaker stays open; then one record is tried                  |
 * | breaker.pause.max.ms| 10 pauses    | maximum of that time, which doubles with each record that is tried and fails|
 * | transactional.id    |              | exactly once: outputs and offsets are committed in transactions of this id  |
 * | transaction.ms      | 100          | time for which a transaction collects records                               |
 */
RD_EXPORT rd_kafka_conf_res_t ottla_processor_settings_set(ottla_processor_settings_t *settings,
                                                           const char *name,
                                                           const char *value,
                                                           char *errstr,
                                                           size_t errstr_size);

/** Sets the handler for single records and the pointer that it receives with each call. */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_settings_set_handler(ottla_processor_settings_t *settings,
                                                                   ottla_processor_handler_t handler,
                                                                   void *opaque);

/** Sets the handler for batches and the pointer that it receives with each call. */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_settings_set_batch_handler(ottla_processor_settings_t *settings,
                                                                         ottla_processor_batch_handler_t handler,
                                                                         void *opaque);

/* ---- The processor ---- */

/**
 * Starts a processor, which takes over `conf` and `settings`. On failure the function returns NULL and writes the
 * reason to `errstr`, and the caller keeps both. `conf` is from rd_kafka_conf_new() and has at least `group.id`. Of its
 * callbacks only the log callback is called, in a thread of its own and with NULL as the client. A configuration with a
 * callback for certificates is therefore refused. Offsets are committed as the setting `commit.interval.ms` says.
 */
RD_EXPORT ottla_processor_t *ottla_processor_start(rd_kafka_conf_t *conf,
                                                   ottla_processor_settings_t *settings,
                                                   char *errstr,
                                                   size_t errstr_size);

/**
 * Starts to stop the processor and returns at once. The processor waits up to `drain.ms` for running handlers, commits
 * the offsets of records that are done, and leaves the group.
 */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_stop(ottla_processor_t *processor);

/** Returns 1 if the processor has stopped for any reason; 0 if it runs or the handle is invalid. */
RD_EXPORT int ottla_processor_is_stopped(const ottla_processor_t *processor);

/**
 * Waits until the processor has stopped. Returns NULL if it was stopped by a call, otherwise the reason as an error:
 * RD_KAFKA_RESP_ERR__TIMED_OUT if the processor still runs, RD_KAFKA_RESP_ERR__APPLICATION if a record was given up.
 * Destroy the error with rd_kafka_error_destroy(). The function may be called repeatedly and by several threads.
 */
RD_EXPORT rd_kafka_error_t *ottla_processor_wait(ottla_processor_t *processor, int timeout_ms);

/**
 * Stops the processor, waits until it has stopped, and frees it. Afterwards no handler runs, and none is called.
 * Returns RD_KAFKA_RESP_ERR__IN_PROGRESS if a handler still runs after `drain.ms`; call the function again then.
 */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_destroy(ottla_processor_t *processor);

/* ---- Statistics ---- */

/** A partition that is assigned to the processor. */
typedef struct ottla_processor_partition_s {
    const char *topic;
    int32_t partition;
    /** 1 while the partition is paused because its records in flight have reached their limit. */
    int paused;
    /** The last offset that this process committed; -1001 if there is none. */
    int64_t committed;
    /** All records before this offset are done; -1001 before the first fetch. */
    int64_t finished;
    /** The offset that holds back the commit; -1001 if there is none. */
    int64_t blocking;
    /** Milliseconds for which `blocking` has held back the commit. A growing value indicates a stuck record. */
    int64_t blocking_ms;
    /** Records in flight, and their memory in bytes. */
    uint64_t in_flight;
    uint64_t in_flight_bytes;
} ottla_processor_partition_t;

/** Statistics of a processor. Later versions append fields. */
typedef struct ottla_processor_stats_s {
    /** Records that are done. */
    uint64_t handled;
    /** Failures of handlers, and the failures after which the record is retried. */
    uint64_t failures;
    uint64_t retries;
    /** Records written to the dead-letter topic, and records given up and skipped. */
    uint64_t dead_letters;
    uint64_t skipped;
    /** Results that were dropped because the partition was already revoked. */
    uint64_t late;
    /** Records that wait for a worker. */
    uint64_t queued;
    /** Number of times that the circuit breaker has opened, and 1 while it is open. */
    uint64_t breaker_opened;
    int breaker_is_open;
    /** The partitions, by topic and number. */
    size_t partition_cnt;
    const ottla_processor_partition_t *const *partitions;
} ottla_processor_stats_t;

/** Returns statistics of the processor; NULL if the handle is invalid. */
RD_EXPORT const ottla_processor_stats_t *ottla_processor_stats(const ottla_processor_t *processor);

/** Frees statistics. */
RD_EXPORT void ottla_processor_stats_destroy(const ottla_processor_stats_t *stats);

/**
 * Returns the metrics of the processor in Prometheus' text format; NULL if the handle is invalid. Free the text with
 * rd_kafka_mem_free(NULL, ..).
 */
RD_EXPORT char *ottla_processor_metrics(const ottla_processor_t *processor);

/* ---- The embedded broker ---- */

/** A broker in this process, for tests. */
typedef struct ottla_broker_s ottla_broker_t;

/**
 * Starts a broker in a thread of its own. `settings` has a line `name=value` for each setting; NULL and an empty text
 * mean the defaults: one node on an ephemeral port of 127.0.0.1, with its data in memory. On failure the function returns
 * NULL and writes the reason to `errstr`. A library that was built without the mock cluster has no broker.
 *
 *     nodes=3                 brokers that clients see; 1 to 100
 *     listen=127.0.0.1:9092   address of the first node, and the ports after it
 *     data.dir=DIRECTORY      where the data is kept; log.dirs is the same
 *     topics=orders:3,clicks  topics that are created if they do not exist, with their partitions
 *     trace=FILE              a line of JSON for each request is appended to this file
 *     num.partitions=4        and all other settings of server.properties that docs/BROKER.md lists
 */
RD_EXPORT ottla_broker_t *ottla_broker_start(const char *settings, char *errstr, size_t errstr_size);

/**
 * Returns the value of `bootstrap.servers` for clients; NULL if the handle is invalid. Free the text with
 * rd_kafka_mem_free(NULL, ..).
 */
RD_EXPORT char *ottla_broker_bootstrap_servers(const ottla_broker_t *broker);

/**
 * Carries out a request of the control address, which docs/TESTING.md lists: faults, nodes, leaders, periodic work, waits.
 * `method` and `path` are those of HTTP, `body` is JSON or NULL. Returns the status of HTTP, 200 if all is well, and the
 * answer as JSON in `*answer`, unless `answer` is NULL. Free the answer with rd_kafka_mem_free(NULL, ..). Returns 0
 * without an answer if the handle, the method or the path is invalid.
 *
 *     ottla_broker_control(broker, "POST", "/faults",
 *                          "{\"api\": \"Produce\", \"action\": \"fail\", \"error\": \"NOT_ENOUGH_REPLICAS\"}", NULL);
 *     ottla_broker_control(broker, "POST", "/nodes/1", "{\"paused\": true}", NULL);
 */
RD_EXPORT int ottla_broker_control(ottla_broker_t *broker,
                                   const char *method,
                                   const char *path,
                                   const char *body,
                                   char **answer);

/**
 * Stops the broker, closes its logs, and frees it. If another thread is in one of these functions, the broker stops when
 * that call returns.
 */
RD_EXPORT rd_kafka_resp_err_t ottla_broker_destroy(ottla_broker_t *broker);

#ifdef __cplusplus
}
#endif

#endif
