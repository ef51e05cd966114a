/*
 * The functions of the library that run callbacks. Each exported symbol jumps to a function here
 * (ffi/exported_from_c.rs). Rust prepares one callback at a time, the code here calls it, and Rust continues
 * afterwards. A callback that does not return crosses only C frames. The cleanup reports exceptions and pthread_exit to
 * Rust. A call that longjmp left is found by the thread's next poll.
 */

#include "../../include/rdkafka.h"

#define HIDDEN __attribute__((visibility("hidden")))

/* The kinds of callbacks. callbacks/trampoline.rs has the same numbers. */
enum callback_kind {
    CALLBACK_NONE = 0,
    CALLBACK_DR_MSG = 1,
    CALLBACK_DR = 2,
    CALLBACK_PARTITIONS = 3,
    CALLBACK_ERROR = 4,
    CALLBACK_THROTTLE = 5,
    CALLBACK_STATS = 6,
    CALLBACK_LOG = 7,
    CALLBACK_TOKEN_REFRESH = 8,
    CALLBACK_CONSUME = 9,
    CALLBACK_EVENT = 10,
    CALLBACK_ACKNOWLEDGED = 11,
};

/* The messages of one batch of delivery reports. Rust owns it and sets `end` to `next` when another poll takes over. */
struct report_progress {
    size_t next;
    size_t end;
};

/* One call of an exported function. callbacks/trampoline.rs has the same struct. */
struct callback_loop {
    /* The call's number in Rust; 0 while Rust keeps nothing. */
    uint64_t call;
    const void *frame;
    struct report_progress *progress;
    void (*function)(void);
    rd_kafka_t *rk;
    void *opaque;
    void *pointer;
    const void *text;
    size_t size;
    int kind;
    int number;
    int answer;
    int32_t broker;
    /* The return value of the exported function: one of these, depending on its type. */
    ssize_t number_result;
    void *pointer_result;
};

HIDDEN void ottla_next_callback(struct callback_loop *loop);
HIDDEN void ottla_callback_left(struct callback_loop *loop);

HIDDEN void ottla_begin_poll(struct callback_loop *, rd_kafka_t *, int);
HIDDEN void ottla_begin_consumer_poll(struct callback_loop *, rd_kafka_t *, int);
HIDDEN void ottla_begin_queue_poll(struct callback_loop *, rd_kafka_queue_t *, int);
HIDDEN void ottla_begin_queue_poll_callback(struct callback_loop *, rd_kafka_queue_t *, int);
HIDDEN void ottla_begin_consume(struct callback_loop *, rd_kafka_topic_t *, int32_t, int);
HIDDEN void ottla_begin_consume_batch(struct callback_loop *, rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t **,
                                      size_t);
HIDDEN void ottla_begin_consume_callback(struct callback_loop *, rd_kafka_topic_t *, int32_t, int,
                                         void (*)(rd_kafka_message_t *, void *), void *);
HIDDEN void ottla_begin_consume_queue(struct callback_loop *, rd_kafka_queue_t *, int);
HIDDEN void ottla_begin_consume_batch_queue(struct callback_loop *, rd_kafka_queue_t *, int, rd_kafka_message_t **,
                                            size_t);
HIDDEN void ottla_begin_consume_callback_queue(struct callback_loop *, rd_kafka_queue_t *, int,
                                               void (*)(rd_kafka_message_t *, void *), void *);
HIDDEN void ottla_begin_flush(struct callback_loop *, rd_kafka_t *, int);
HIDDEN void ottla_begin_commit_transaction(struct callback_loop *, rd_kafka_t *, int);
HIDDEN void ottla_begin_abort_transaction(struct callback_loop *, rd_kafka_t *, int);
HIDDEN void ottla_begin_commit_queue(struct callback_loop *, rd_kafka_t *, const rd_kafka_topic_partition_list_t *,
                                     rd_kafka_queue_t *,
                                     void (*)(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *,
                                              void *),
                                     void *);
HIDDEN void ottla_begin_consumer_close(struct callback_loop *, rd_kafka_t *);
HIDDEN void ottla_begin_destroy(struct callback_loop *, rd_kafka_t *, int);
HIDDEN void ottla_begin_share_poll(struct callback_loop *, rd_kafka_share_t *, int, rd_kafka_messages_t **);
HIDDEN void ottla_begin_share_commit_sync(struct callback_loop *, rd_kafka_share_t *, int,
                                          rd_kafka_topic_partition_list_t **);
HIDDEN void ottla_begin_share_commit_async(struct callback_loop *, rd_kafka_share_t *);
HIDDEN void ottla_begin_share_consumer_close(struct callback_loop *, rd_kafka_share_t *);
HIDDEN void ottla_begin_share_destroy(struct callback_loop *, rd_kafka_share_t *, int);
HIDDEN void ottla_begin_background(struct callback_loop *, void *);

typedef void dr_msg_cb(rd_kafka_t *, const rd_kafka_message_t *, void *);
typedef void dr_cb(rd_kafka_t *, void *, size_t, rd_kafka_resp_err_t, void *, void *);
typedef void partitions_cb(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *, void *);
typedef void error_cb(rd_kafka_t *, int, const char *, void *);
typedef void throttle_cb(rd_kafka_t *, const char *, int32_t, int, void *);
typedef int stats_cb(rd_kafka_t *, char *, size_t, void *);
typedef void log_cb(const rd_kafka_t *, int, const char *, const char *);
typedef void token_refresh_cb(rd_kafka_t *, const char *, void *);
typedef void consume_cb(rd_kafka_message_t *, void *);
typedef void event_cb(rd_kafka_t *, rd_kafka_event_t *, void *);

typedef void acknowledged_cb(rd_kafka_share_t *, rd_kafka_share_partition_offsets_list_t *, rd_kafka_resp_err_t, void *);

/* `size` is the distance between two messages. */
static void report(struct callback_loop *loop) {
    struct report_progress *progress = loop->progress;
    while (progress->next < progress->end) {
        const rd_kafka_message_t *message = (const void *)((const char *)loop->pointer + progress->next * loop->size);
        progress->next++;
        if (loop->kind == CALLBACK_DR_MSG)
            ((dr_msg_cb *)loop->function)(loop->rk, message, loop->opaque);
        else
            ((dr_cb *)loop->function)(loop->rk, message->payload, message->len, message->err, loop->opaque,
                                      message->_private);
    }
}

static void call(struct callback_loop *loop) {
    switch (loop->kind) {
    case CALLBACK_DR_MSG:
    case CALLBACK_DR:
        report(loop);
        break;
    case CALLBACK_PARTITIONS:
        ((partitions_cb *)loop->function)(loop->rk, loop->number, loop->pointer, loop->opaque);
        break;
    case CALLBACK_ERROR:
        ((error_cb *)loop->function)(loop->rk, loop->number, loop->text, loop->opaque);
        break;
    case CALLBACK_THROTTLE:
        ((throttle_cb *)loop->function)(loop->rk, loop->text, loop->broker, loop->number, loop->opaque);
        break;
    case CALLBACK_STATS:
        loop->answer = ((stats_cb *)loop->function)(loop->rk, loop->pointer, loop->size, loop->opaque);
        break;
    case CALLBACK_LOG:
        ((log_cb *)loop->function)(loop->rk, loop->number, loop->pointer, loop->text);
        break;
    case CALLBACK_TOKEN_REFRESH:
        ((token_refresh_cb *)loop->function)(loop->rk, loop->text, loop->opaque);
        break;
    case CALLBACK_CONSUME:
        ((consume_cb *)loop->function)(loop->pointer, loop->opaque);
        break;
    case CALLBACK_EVENT:
        ((event_cb *)loop->function)(loop->rk, loop->pointer, loop->opaque);
        break;
    case CALLBACK_ACKNOWLEDGED:
        ((acknowledged_cb *)loop->function)((rd_kafka_share_t *)loop->rk, loop->pointer, loop->number, loop->opaque);
        break;
    }
}

static void run(struct callback_loop *loop) {
    while (loop->kind != CALLBACK_NONE) {
        call(loop);
        ottla_next_callback(loop);
    }
}

/* Runs when the function returns, and when an exception or pthread_exit unwinds it. */
static inline void leave(struct callback_loop *loop) {
    if (__builtin_expect(loop->call != 0, 0))
        ottla_callback_left(loop);
}

/* Declares `loop`. Two calls from one depth of the caller's stack have the same `frame`. */
#define LOOP                                                                                                           \
    __attribute__((cleanup(leave))) struct callback_loop loop;                                                         \
    loop.call = 0;                                                                                                     \
    loop.kind = CALLBACK_NONE;                                                                                         \
    loop.number_result = 0;                                                                                            \
    loop.pointer_result = NULL;                                                                                        \
    loop.frame = __builtin_frame_address(0)

HIDDEN int ottla_poll(rd_kafka_t *rk, int timeout_ms) {
    LOOP;
    ottla_begin_poll(&loop, rk, timeout_ms);
    run(&loop);
    return (int)loop.number_result;
}

HIDDEN rd_kafka_message_t *ottla_consumer_poll(rd_kafka_t *rk, int timeout_ms) {
    LOOP;
    ottla_begin_consumer_poll(&loop, rk, timeout_ms);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN rd_kafka_event_t *ottla_queue_poll(rd_kafka_queue_t *rkqu, int timeout_ms) {
    LOOP;
    ottla_begin_queue_poll(&loop, rkqu, timeout_ms);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN int ottla_queue_poll_callback(rd_kafka_queue_t *rkqu, int timeout_ms) {
    LOOP;
    ottla_begin_queue_poll_callback(&loop, rkqu, timeout_ms);
    run(&loop);
    return (int)loop.number_result;
}

HIDDEN rd_kafka_message_t *ottla_consume(rd_kafka_topic_t *rkt, int32_t partition, int timeout_ms) {
    LOOP;
    ottla_begin_consume(&loop, rkt, partition, timeout_ms);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN ssize_t ottla_consume_batch(rd_kafka_topic_t *rkt, int32_t partition, int timeout_ms,
                                   rd_kafka_message_t **rkmessages, size_t rkmessages_size) {
    LOOP;
    ottla_begin_consume_batch(&loop, rkt, partition, timeout_ms, rkmessages, rkmessages_size);
    run(&loop);
    return loop.number_result;
}

HIDDEN int ottla_consume_callback(rd_kafka_topic_t *rkt, int32_t partition, int timeout_ms,
                                  void (*consume_cb)(rd_kafka_message_t *, void *), void *commit_opaque) {
    LOOP;
    ottla_begin_consume_callback(&loop, rkt, partition, timeout_ms, consume_cb, commit_opaque);
    run(&loop);
    return (int)loop.number_result;
}

HIDDEN rd_kafka_message_t *ottla_consume_queue(rd_kafka_queue_t *rkqu, int timeout_ms) {
    LOOP;
    ottla_begin_consume_queue(&loop, rkqu, timeout_ms);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN ssize_t ottla_consume_batch_queue(rd_kafka_queue_t *rkqu, int timeout_ms, rd_kafka_message_t **rkmessages,
                                         size_t rkmessages_size) {
    LOOP;
    ottla_begin_consume_batch_queue(&loop, rkqu, timeout_ms, rkmessages, rkmessages_size);
    run(&loop);
    return loop.number_result;
}

HIDDEN int ottla_consume_callback_queue(rd_kafka_queue_t *rkqu, int timeout_ms,
                                        void (*consume_cb)(rd_kafka_message_t *, void *), void *commit_opaque) {
    LOOP;
    ottla_begin_consume_callback_queue(&loop, rkqu, timeout_ms, consume_cb, commit_opaque);
    run(&loop);
    return (int)loop.number_result;
}

HIDDEN rd_kafka_resp_err_t ottla_flush(rd_kafka_t *rk, int timeout_ms) {
    LOOP;
    ottla_begin_flush(&loop, rk, timeout_ms);
    run(&loop);
    return (rd_kafka_resp_err_t)loop.number_result;
}

HIDDEN rd_kafka_error_t *ottla_commit_transaction(rd_kafka_t *rk, int timeout_ms) {
    LOOP;
    ottla_begin_commit_transaction(&loop, rk, timeout_ms);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN rd_kafka_error_t *ottla_abort_transaction(rd_kafka_t *rk, int timeout_ms) {
    LOOP;
    ottla_begin_abort_transaction(&loop, rk, timeout_ms);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN rd_kafka_resp_err_t ottla_commit_queue(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets,
                                              rd_kafka_queue_t *rkqu,
                                              void (*cb)(rd_kafka_t *, rd_kafka_resp_err_t,
                                                         rd_kafka_topic_partition_list_t *, void *),
                                              void *commit_opaque) {
    LOOP;
    ottla_begin_commit_queue(&loop, rk, offsets, rkqu, cb, commit_opaque);
    run(&loop);
    return (rd_kafka_resp_err_t)loop.number_result;
}

HIDDEN rd_kafka_resp_err_t ottla_consumer_close(rd_kafka_t *rk) {
    LOOP;
    ottla_begin_consumer_close(&loop, rk);
    run(&loop);
    return (rd_kafka_resp_err_t)loop.number_result;
}

HIDDEN void ottla_destroy_flags(rd_kafka_t *rk, int flags) {
    LOOP;
    ottla_begin_destroy(&loop, rk, flags);
    run(&loop);
}

HIDDEN void ottla_destroy(rd_kafka_t *rk) {
    ottla_destroy_flags(rk, 0);
}

HIDDEN rd_kafka_error_t *ottla_share_poll(rd_kafka_share_t *rkshare, int timeout_ms, rd_kafka_messages_t **rkmessages) {
    LOOP;
    ottla_begin_share_poll(&loop, rkshare, timeout_ms, rkmessages);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN rd_kafka_error_t *ottla_share_commit_sync(rd_kafka_share_t *rkshare, int timeout_ms,
                                                 rd_kafka_topic_partition_list_t **partitions) {
    LOOP;
    ottla_begin_share_commit_sync(&loop, rkshare, timeout_ms, partitions);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN rd_kafka_error_t *ottla_share_commit_async(rd_kafka_share_t *rkshare) {
    LOOP;
    ottla_begin_share_commit_async(&loop, rkshare);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN rd_kafka_error_t *ottla_share_consumer_close(rd_kafka_share_t *rkshare) {
    LOOP;
    ottla_begin_share_consumer_close(&loop, rkshare);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN rd_kafka_error_t *ottla_share_destroy_flags(rd_kafka_share_t *rkshare, int flags) {
    LOOP;
    ottla_begin_share_destroy(&loop, rkshare, flags);
    run(&loop);
    return loop.pointer_result;
}

HIDDEN rd_kafka_error_t *ottla_share_destroy(rd_kafka_share_t *rkshare) {
    return ottla_share_destroy_flags(rkshare, 0);
}

/* The background thread: Rust returns its next event here until the client ends. */
HIDDEN void *ottla_background(void *events) {
    LOOP;
    ottla_begin_background(&loop, events);
    run(&loop);
    return NULL;
}
