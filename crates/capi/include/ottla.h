/*
 * What this library has beyond librdkafka's interface: the Processor, a member of a consumer group that has records
 * handled by many threads and commits nothing that is not done.
 *
 *     ottla_processor_settings_t *settings = ottla_processor_settings_new();
 *     ottla_processor_settings_set(settings, "mode", "multi-async", errstr, sizeof(errstr));
 *     ottla_processor_settings_set(settings, "topics", "orders", errstr, sizeof(errstr));
 *     ottla_processor_settings_set_handler(settings, handle, NULL);
 *     ottla_processor_t *processor = ottla_processor_start(conf, settings, errstr, sizeof(errstr));
 *     ...
 *     ottla_processor_destroy(processor);
 *
 * Rules that hold for all functions, beside those of rdkafka.h:
 * - Handlers run on threads of the library, several at once, and may block as long as they like. They may call
 *   everything but ottla_processor_wait() and ottla_processor_destroy() of their own processor, which answer with
 *   RD_KAFKA_RESP_ERR__STATE. They must not throw.
 * - A processor and settings are names, not addresses: NULL, one that was never given out, and one that is destroyed
 *   are answered with RD_KAFKA_RESP_ERR__INVALID_ARG, and so is another process's, after a fork().
 */

#ifndef _OTTLA_H_
#define _OTTLA_H_

#include "rdkafka.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A processor. */
typedef struct ottla_processor_s ottla_processor_t;
/** How a processor works. */
typedef struct ottla_processor_settings_s ottla_processor_settings_t;
/** One call of a handler; it ends with the call, and belongs to the thread of the call. */
typedef struct ottla_processor_call_s ottla_processor_call_t;

/* ---- Handlers ---- */

/** What became of a record, or of a batch. */
typedef enum ottla_processor_verdict_t {
    /** It is done. */
    OTTLA_PROCESSOR_DONE = 0,
    /** It failed, and is tried again as the settings say. Any number that is not named here means the same. */
    OTTLA_PROCESSOR_FAILED = 1,
    /** It failed, and trying again does not help: it is given up at once. */
    OTTLA_PROCESSOR_REFUSED = 2,
    /** It cannot be decoded: it is given up at once. */
    OTTLA_PROCESSOR_UNDECODABLE = 3
} ottla_processor_verdict_t;

/**
 * Handles one record, in the modes `sync` and `multi-async`. The message and all that it points to live until the
 * handler returns; the accessors of rdkafka.h that take a message work on it, and it is not to be destroyed.
 */
typedef ottla_processor_verdict_t (*ottla_processor_handler_t)(ottla_processor_call_t *call,
                                                               const rd_kafka_message_t *message,
                                                               void *opaque);

/**
 * Handles `cnt` records of one partition, in order, in the modes `batch` and `multi-batch`; at least one. The verdict is
 * that of the whole batch: if only some records failed, name them with ottla_processor_fail() and return
 * OTTLA_PROCESSOR_DONE.
 */
typedef ottla_processor_verdict_t (*ottla_processor_batch_handler_t)(ottla_processor_call_t *call,
                                                                     const rd_kafka_message_t *const *messages,
                                                                     size_t cnt,
                                                                     void *opaque);

/** 1 when the record or batch is handled for the first time since this process has it; 0 without a call. */
RD_EXPORT uint32_t ottla_processor_attempt(const ottla_processor_call_t *call);

/** Says why the verdict is what it will be: errors and dead letters carry the text, which is copied. */
RD_EXPORT void ottla_processor_set_reason(ottla_processor_call_t *call, const char *reason);

/**
 * The batch's record at `index` failed, for `reason` (copied; NULL for none); all others are done if the handler returns
 * OTTLA_PROCESSOR_DONE. RD_KAFKA_RESP_ERR__INVALID_ARG if there is no such record, or the call is not about a batch.
 */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_fail(ottla_processor_call_t *call,
                                                   size_t index,
                                                   ottla_processor_verdict_t verdict,
                                                   const char *reason);

/**
 * Produces a record that belongs to what is handled: it is written if the handler succeeds, and only then, and what is
 * handled is not done before that is acknowledged. With `transactional.id` both happen, or neither. Everything is copied;
 * `key`, `value` and `headers` may be NULL, and a `partition` of RD_KAFKA_PARTITION_UA leaves it to the partitioner.
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

/** Settings with the defaults that ottla_processor_settings_set() names. */
RD_EXPORT ottla_processor_settings_t *ottla_processor_settings_new(void);

/** Frees settings that ottla_processor_start() has not taken over. */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_settings_destroy(ottla_processor_settings_t *settings);

/**
 * Sets one by name; what it does not take is explained in `errstr`.
 *
 * | Name                | Default      | Meaning                                                                     |
 * |---------------------|--------------|-----------------------------------------------------------------------------|
 * | mode                | multi-async  | `sync`, `batch`, `multi-async` or `multi-batch`                             |
 * | topics              |              | names, with commas; one that begins with ^ is a regular expression          |
 * | order               | of the mode  | `partition`, `key` or `none`; else `partition` with one worker, `none` with more |
 * | workers             | 8            | threads that call the handler, in the modes that fan out                    |
 * | queue               | 1000         | pieces of work that wait for a worker at most                               |
 * | batch               | 1000         | records of a batch at most                                                  |
 * | batch.wait.ms       | 1000         | how long a batch waits for more records                                     |
 * | records.in.flight   | 100000       | records under way at most; partitions that have their share are paused      |
 * | bytes.in.flight     | 67108864     | their memory at most                                                        |
 * | drain.ms            | 10000        | how long handlers have when partitions are taken back or the processor stops |
 * | retries             | 3            | how often a failed record is tried again; -1 for ever                       |
 * | retry.delay.ms      | 100          | before the first time; twice as long before each further one                |
 * | retry.delay.max.ms  | 10000        | at most                                                                     |
 * | retry.holds         | false        | whether what follows a failed record in its order waits for it              |
 * | on.failure          | stop         | what becomes of a record that is given up: `stop`, `dead-letter` or `skip`  |
 * | dead.letter.topic   |              | where `dead-letter` writes it, with headers that say why and from where     |
 * | breaker.failures    | 0            | after so many failures in a row nothing is handled for a while; 0 for never |
 * | breaker.pause.ms    | 10000        | for how long; then one record is tried                                      |
 * | transactional.id    |              | exactly once: outputs and offsets are committed in transactions of this id  |
 * | transaction.ms      | 100          | how long a transaction takes in records                                     |
 */
RD_EXPORT rd_kafka_conf_res_t ottla_processor_settings_set(ottla_processor_settings_t *settings,
                                                           const char *name,
                                                           const char *value,
                                                           char *errstr,
                                                           size_t errstr_size);

/** The handler for single records, and the pointer that it is given with each. */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_settings_set_handler(ottla_processor_settings_t *settings,
                                                                   ottla_processor_handler_t handler,
                                                                   void *opaque);

/** The handler for batches, and the pointer that it is given with each. */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_settings_set_batch_handler(ottla_processor_settings_t *settings,
                                                                         ottla_processor_batch_handler_t handler,
                                                                         void *opaque);

/* ---- The processor ---- */

/**
 * Starts a processor. It takes over `conf` and `settings`; if it fails, which NULL and `errstr` say, both stay the
 * caller's. `conf` is one of rd_kafka_conf_new() with `group.id` at least; of the functions that are set on it only the
 * one for logs is called, with NULL for the client. Offsets are committed every `auto.commit.interval.ms`.
 */
RD_EXPORT ottla_processor_t *ottla_processor_start(rd_kafka_conf_t *conf,
                                                   ottla_processor_settings_t *settings,
                                                   char *errstr,
                                                   size_t errstr_size);

/**
 * Asks it to stop, and returns at once: what is being handled is waited for up to `drain.ms`, what is done is committed,
 * and the group is left.
 */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_stop(ottla_processor_t *processor);

/** 1 if it has stopped, for whatever reason; 0 if it runs, and for what is no processor. */
RD_EXPORT int ottla_processor_is_stopped(const ottla_processor_t *processor);

/**
 * Waits until it has stopped. NULL if it was told to; else why, to be destroyed with rd_kafka_error_destroy():
 * RD_KAFKA_RESP_ERR__TIMED_OUT if it runs still, RD_KAFKA_RESP_ERR__APPLICATION if a record was given up. May be called
 * again, by any number of threads.
 */
RD_EXPORT rd_kafka_error_t *ottla_processor_wait(ottla_processor_t *processor, int timeout_ms);

/**
 * Stops it, waits for that, and frees it: afterwards no handler is running, and none is called any more. If one is still
 * running although `drain.ms` are over, it answers RD_KAFKA_RESP_ERR__IN_PROGRESS and can be called again.
 */
RD_EXPORT rd_kafka_resp_err_t ottla_processor_destroy(ottla_processor_t *processor);

/* ---- Statistics ---- */

/** A partition that the processor has. */
typedef struct ottla_processor_partition_s {
    const char *topic;
    int32_t partition;
    /** 1 while it is paused because as much is under way as may be. */
    int paused;
    /** What was committed last by this process; -1001 if nothing was. */
    int64_t committed;
    /** Everything before it is done; -1001 as long as nothing was fetched. */
    int64_t finished;
    /** The offset that keeps the commit where it is; -1001 if none does. */
    int64_t blocking;
    /** For how many milliseconds it has: what grows here is stuck. */
    int64_t blocking_ms;
    /** Records under way, and the memory that they take. */
    uint64_t in_flight;
    uint64_t in_flight_bytes;
} ottla_processor_partition_t;

/** A look at a processor. Later versions append fields. */
typedef struct ottla_processor_stats_s {
    /** Records that are done. */
    uint64_t handled;
    /** Failures of handlers, and those after which the record was to be tried again. */
    uint64_t failures;
    uint64_t retries;
    /** Records written to the dead-letter topic, and records given up and skipped. */
    uint64_t dead_letters;
    uint64_t skipped;
    /** Results that came when the partition was already somebody else's, and were dropped. */
    uint64_t late;
    /** Records that wait for a worker. */
    uint64_t queued;
    /** How often the circuit breaker has opened, and 1 while it is open. */
    uint64_t breaker_opened;
    int breaker_is_open;
    /** The partitions, by topic and number. */
    size_t partition_cnt;
    const ottla_processor_partition_t *const *partitions;
} ottla_processor_stats_t;

/** What it has done and what it waits for; NULL for what is no processor. */
RD_EXPORT const ottla_processor_stats_t *ottla_processor_stats(const ottla_processor_t *processor);

/** Frees statistics. */
RD_EXPORT void ottla_processor_stats_destroy(const ottla_processor_stats_t *stats);

/**
 * The same in Prometheus' text format, to be freed with rd_kafka_mem_free(NULL, ..); NULL for what is no processor.
 */
RD_EXPORT char *ottla_processor_metrics(const ottla_processor_t *processor);

#ifdef __cplusplus
}
#endif

#endif
