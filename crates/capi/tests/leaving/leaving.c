/*
 * Callbacks that do not return: `leaving FUNCTION WAY ROUNDS`.
 *
 * The program calls FUNCTION until its callback runs. The callback leaves by WAY: `longjmp`, `pthread_exit`, or `throw` if
 * this file is compiled as C++; `return` is the comparison. The program uses the client afterwards, and does both in ROUNDS rounds. Then it destroys the
 * client and waits until nothing of it is left.
 */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ottla.h"
#include "rdkafka.h"
#include "rdkafka_mock.h"

#define RECORDS 3
#define TIMEOUT_MS 60000
/* Rounds before the memory is measured: the library keeps the arguments of the last callbacks that were left. */
#define WARM_UP 80

static const char *function, *way;
#ifndef __cplusplus
static jmp_buf caller;
#endif
static volatile int leaves, left;
/* The share consumer is inside the function under test. */
static volatile int tested;
static int reported, consumed;
/* The offset behind the records that the share consumer has read. */
static int64_t next_offset;
static rd_kafka_t *producer, *consumer;
static rd_kafka_share_t *share;
static rd_kafka_topic_t *topic;
static rd_kafka_queue_t *queue, *partition_queue;

static void require(int holds, const char *what) {
    if (!holds) {
        printf("%s, %s: not so: %s\n", function, way, what);
        fflush(stdout);
        abort();
    }
}

static int is(const char *name) {
    return !strcmp(function, name);
}

static int begins(const char *name) {
    return !strncmp(function, name, strlen(name));
}

/* Leaves the callback that calls it, once. */
static void leave(void) {
    if (!leaves)
        return;
    leaves = 0;
    left = 1;
    if (!strcmp(way, "return"))
        return;
    if (!strcmp(way, "pthread_exit"))
        pthread_exit(NULL);
#ifdef __cplusplus
    throw 7;
#else
    longjmp(caller, 1);
#endif
}

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    (void)opaque;
    require(!message->err, "the record was written");
    require(message->len == 5 && !memcmp(message->payload, "value", 5), "the report has the payload");
    reported++;
    leave();
}

static int on_stats(rd_kafka_t *rk, char *json, size_t len, void *opaque) {
    (void)rk;
    (void)opaque;
    require(json[len] == '\0', "the statistics end with a NUL");
    if (!begins("consume_callback"))
        leave();
    return 0;
}

static void on_message(rd_kafka_message_t *message, void *opaque) {
    (void)opaque;
    if (message->err)
        return;
    require(message->len == 5 && !memcmp(message->payload, "value", 5), "the message has the payload");
    consumed++;
    leave();
}

static void on_commit(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *offsets, void *opaque) {
    (void)rk;
    (void)err;
    (void)opaque;
    require(!offsets || offsets->cnt >= 0, "the list is readable");
    leave();
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *partitions,
                         void *opaque) {
    (void)opaque;
    rd_kafka_assign(rk, err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? partitions : NULL);
    if (err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS)
        leave();
}

static void on_acknowledged(rd_kafka_share_t *rkshare, rd_kafka_share_partition_offsets_list_t *partitions,
                            rd_kafka_resp_err_t err, void *opaque) {
    (void)opaque;
    require(rkshare == share && !err, "the records are acknowledged");
    require(rd_kafka_share_partition_offsets_list_count(partitions) == 1, "the list is readable");
    if (tested)
        leave();
}

static void on_background(rd_kafka_t *rk, rd_kafka_event_t *event, void *opaque) {
    (void)rk;
    (void)opaque;
    rd_kafka_event_destroy(event);
    leave();
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char errstr[512];
    require(rd_kafka_conf_set(conf, name, value, errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK, errstr);
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char errstr[512];
    rd_kafka_t *rk = rd_kafka_new(type, conf, errstr, sizeof(errstr));
    require(rk != NULL, errstr);
    return rk;
}

static void produce(int records) {
    char *payload;
    int i;
    for (i = 0; i < records; i++) {
        rd_kafka_resp_err_t err;
        /* The library frees the payload after its report. */
        payload = (char *)malloc(5);
        memcpy(payload, "value", 5);
        err = rd_kafka_producev(producer, RD_KAFKA_V_TOPIC("orders"), RD_KAFKA_V_PARTITION(0),
                                RD_KAFKA_V_VALUE(payload, 5), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_FREE), RD_KAFKA_V_END);
        require(!err, "the record is taken");
    }
}

static void take(rd_kafka_message_t *message) {
    if (message) {
        consumed += !message->err;
        rd_kafka_message_destroy(message);
    }
}

static void take_all(rd_kafka_message_t **messages, ssize_t count) {
    ssize_t i;
    for (i = 0; i < count; i++)
        take(messages[i]);
}

/* Polls once; the number of records, which are acknowledged. */
static int share_records(void) {
    rd_kafka_messages_t *messages = NULL;
    int count, i;
    require(!rd_kafka_share_poll(share, 100, &messages), "the share consumer polls");
    count = (int)rd_kafka_messages_count(messages);
    for (i = 0; i < count; i++) {
        rd_kafka_message_t *message = rd_kafka_messages_get(messages, i);
        require(message->len == 5 && !memcmp(message->payload, "value", 5), "the message has the payload");
        require(!rd_kafka_share_acknowledge(share, message), "the record is acknowledged");
        if (message->offset >= next_offset)
            next_offset = message->offset + 1;
    }
    rd_kafka_messages_destroy(messages);
    consumed += count;
    return count;
}

/* Reads records, so that there is something to acknowledge. */
static void share_some(void) {
    produce(1);
    require(!rd_kafka_flush(producer, TIMEOUT_MS), "the record is written");
    while (!share_records())
        ;
}

/* Reads the records that are written, so that the next poll has none. */
static void share_rest(void) {
    int64_t first, end;
    rd_kafka_resp_err_t err;
    require(!rd_kafka_flush(producer, TIMEOUT_MS), "the records are written");
    err = rd_kafka_query_watermark_offsets(producer, "orders", 0, &first, &end, TIMEOUT_MS);
    require(!err, "the partition has an end");
    while (next_offset < end)
        share_records();
}

static void call_of_share(void) {
    rd_kafka_topic_partition_list_t *results = NULL;
    rd_kafka_messages_t *messages            = NULL;
    if (is("share_poll")) {
        tested = 1;
        require(!rd_kafka_share_poll(share, 100, &messages) && !messages, "the share consumer polls");
    } else {
        share_some();
        tested = 1;
        if (is("share_commit_sync")) {
            require(!rd_kafka_share_commit_sync(share, TIMEOUT_MS, &results), "the share consumer commits");
            rd_kafka_topic_partition_list_destroy(results);
        } else if (is("share_consumer_close"))
            rd_kafka_share_consumer_close(share);
        else
            rd_kafka_share_destroy(share);
    }
    tested = 0;
}

static int is_of_producer(void) {
    return is("poll") || is("flush") || is("queue_poll_callback");
}

/* One call of the function. */
static void call(void) {
    rd_kafka_message_t *messages[RECORDS];
    if (is("poll"))
        rd_kafka_poll(producer, 100);
    else if (is("flush"))
        rd_kafka_flush(producer, TIMEOUT_MS);
    else if (is("queue_poll_callback"))
        rd_kafka_queue_poll_callback(queue, 100);
    else if (is("consumer_poll"))
        take(rd_kafka_consumer_poll(consumer, 100));
    else if (is("consume"))
        take(rd_kafka_consume(topic, 0, 100));
    else if (is("consume_batch"))
        take_all(messages, rd_kafka_consume_batch(topic, 0, 100, messages, RECORDS));
    else if (is("consume_callback"))
        rd_kafka_consume_callback(topic, 0, 100, on_message, NULL);
    else if (is("consume_queue"))
        take(rd_kafka_consume_queue(queue, 100));
    else if (is("consume_batch_queue"))
        take_all(messages, rd_kafka_consume_batch_queue(queue, 100, messages, RECORDS));
    else if (is("consume_callback_queue"))
        rd_kafka_consume_callback_queue(queue, 100, on_message, NULL);
    else if (is("commit_queue"))
        rd_kafka_commit_queue(consumer, NULL, NULL, on_commit, NULL);
    else if (begins("share_"))
        call_of_share();
    else if (is("consumer_close"))
        rd_kafka_consumer_close(consumer);
    else if (is("destroy"))
        rd_kafka_destroy(consumer);
    else
        require(0, "the program knows the function");
}

static void *call_until_left(void *nothing) {
    (void)nothing;
    while (!left)
        call();
    return NULL;
}

/* Calls the function until its callback has left it. */
static void call_and_leave(void) {
    leaves = 1;
    left = 0;
    if (!strcmp(way, "pthread_exit")) {
        pthread_t thread;
        require(!pthread_create(&thread, NULL, call_until_left, NULL), "a thread");
        require(!pthread_join(thread, NULL), "the thread ends");
    } else if (!strcmp(way, "return")) {
        call_until_left(NULL);
    } else {
#ifdef __cplusplus
        int caught = 0;
        try {
            call_until_left(NULL);
        } catch (int thrown) {
            caught = thrown;
        }
        require(caught == 7, "the exception reaches the caller");
#else
        if (!setjmp(caller))
            call_until_left(NULL);
#endif
    }
    require(left && !leaves, "the callback was left");
}

static void round_of_producer(void) {
    int before = reported;
    produce(RECORDS);
    call_and_leave();
    if ((is("poll") || is("queue_poll_callback")) && strcmp(way, "return"))
        require(reported == before + 1, "the callback was left at the first report");
    /* The records that the callback left behind are reported now. */
    require(!rd_kafka_flush(producer, TIMEOUT_MS), "the client flushes afterwards");
    require(reported == before + RECORDS, "each record was reported once");
}

static void subscribe(void) {
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_t *assigned = NULL;
    int count = 0;
    rd_kafka_topic_partition_list_add(topics, "orders", RD_KAFKA_PARTITION_UA);
    require(!rd_kafka_subscribe(consumer, topics), "the consumer subscribes");
    rd_kafka_topic_partition_list_destroy(topics);
    while (!count) {
        take(rd_kafka_consumer_poll(consumer, 100));
        require(!rd_kafka_assignment(consumer, &assigned), "the consumer has an assignment");
        count = assigned->cnt;
        rd_kafka_topic_partition_list_destroy(assigned);
    }
}

static void round_of_consumer(void) {
    if (begins("consume_callback")) {
        produce(RECORDS);
        require(!rd_kafka_flush(producer, TIMEOUT_MS), "there are messages");
    }
    call_and_leave();
    if (is("consumer_close") || is("destroy") || is("commit_queue"))
        return;
    /* The consumer reads on. */
    produce(RECORDS);
    require(!rd_kafka_flush(producer, TIMEOUT_MS), "the records are written");
    consumed = 0;
    while (consumed < RECORDS)
        call();
}

static void round_of_share(void) {
    share_some();
    call_and_leave();
    tested = 0;
    if (is("share_consumer_close") || is("share_destroy"))
        return;
    /* The share consumer reads on. */
    produce(RECORDS);
    require(!rd_kafka_flush(producer, TIMEOUT_MS), "the records are written");
    consumed = 0;
    while (consumed < RECORDS)
        share_records();
}

/* The mock cluster has no share groups. */
static void start_share(const char *servers) {
    char errstr[512];
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_conf_t *conf                   = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", servers);
    set(conf, "group.id", "sharers");
    set(conf, "share.acknowledgement.mode", "explicit");
    share = rd_kafka_share_consumer_new(conf, errstr, sizeof(errstr));
    require(share != NULL, errstr);
    require(!rd_kafka_share_set_acknowledgement_commit_cb(share, on_acknowledged, NULL), "it has a callback");
    rd_kafka_topic_partition_list_add(topics, "orders", RD_KAFKA_PARTITION_UA);
    require(!rd_kafka_share_subscribe(share, topics), "the share consumer subscribes");
    rd_kafka_topic_partition_list_destroy(topics);
    /* The group begins at the end of the partition: records before that do not come. */
    do
        produce(1);
    while (!share_records());
    share_rest();
}

static void end_share(void) {
    if (is("share_destroy"))
        return;
    require(rd_kafka_share_consumer_closed(share) == is("share_consumer_close"), "a call that was left closes");
    require(!rd_kafka_share_destroy(share), "the share consumer is destroyed");
}

static rd_kafka_t *new_consumer(const char *servers) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", servers);
    set(conf, "group.id", "readers");
    set(conf, "auto.offset.reset", "earliest");
    /* The mock cluster decides on a fetch when it arrives: a round would wait half a second for its first record. */
    set(conf, "fetch.wait.max.ms", "1");
    if (begins("consume") && !is("consumer_close")) {
        set(conf, "statistics.interval.ms", "10");
        rd_kafka_conf_set_stats_cb(conf, on_stats);
    }
    if (is("consumer_close") || is("destroy"))
        rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    return client(RD_KAFKA_CONSUMER, conf);
}

/* Statistics come where the function under test polls. */
static void forward_main_queue(rd_kafka_queue_t *to) {
    rd_kafka_queue_t *main_queue = rd_kafka_queue_get_main(consumer);
    rd_kafka_queue_forward(main_queue, to);
    rd_kafka_queue_destroy(main_queue);
}

static void start_consumer(const char *servers) {
    consumer = new_consumer(servers);
    if (is("consumer_poll")) {
        require(!rd_kafka_poll_set_consumer(consumer), "one queue for everything");
        subscribe();
    } else if (is("consumer_close") || is("destroy")) {
        subscribe();
    } else {
        topic = rd_kafka_topic_new(consumer, "orders", NULL);
        queue = rd_kafka_queue_new(consumer);
        if (strstr(function, "_queue")) {
            require(!rd_kafka_consume_start_queue(topic, 0, RD_KAFKA_OFFSET_BEGINNING, queue), "the partition starts");
            forward_main_queue(queue);
        } else {
            require(!rd_kafka_consume_start(topic, 0, RD_KAFKA_OFFSET_BEGINNING), "the partition starts");
            partition_queue = rd_kafka_queue_get_partition(consumer, "orders", 0);
            forward_main_queue(partition_queue);
        }
    }
}

static void end_consumer(void) {
    if (topic) {
        rd_kafka_consume_stop(topic, 0);
        rd_kafka_topic_destroy(topic);
    }
    if (partition_queue)
        rd_kafka_queue_destroy(partition_queue);
    if (queue)
        rd_kafka_queue_destroy(queue);
    if (is("consumer_close"))
        require(!rd_kafka_consumer_close(consumer), "a second call closes the consumer");
    if (!is("destroy"))
        rd_kafka_destroy(consumer);
}

/* A thread of the library ends instead of one of the program. */
static void leave_the_background_thread(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_queue_t *background;
    rd_kafka_t *rk;
    set(conf, "bootstrap.servers", "localhost:1");
    rd_kafka_conf_set_background_event_cb(conf, on_background);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_ERROR);
    leaves = 1;
    rk = client(RD_KAFKA_PRODUCER, conf);
    background = rd_kafka_queue_get_background(rk);
    {
        rd_kafka_queue_t *main_queue = rd_kafka_queue_get_main(rk);
        rd_kafka_queue_forward(main_queue, background);
        rd_kafka_queue_destroy(main_queue);
    }
    rd_kafka_test_fatal_error(rk, RD_KAFKA_RESP_ERR__FAIL, "an event");
    /* The counter falls when the thread has ended in its callback. The client's own thread remains. */
    while (!left || rd_kafka_thread_cnt() > 1)
        sched_yield();
    rd_kafka_queue_destroy(background);
    rd_kafka_destroy(rk);
}

int main(int argc, char **argv) {
    rd_kafka_conf_t *conf;
    ottla_broker_t *broker = NULL;
    char *servers          = NULL;
    size_t measured        = 0;
    int rounds, number;
    require(argc == 4, "three arguments");
    function = argv[1];
    way = argv[2];
    rounds = atoi(argv[3]);
    if (is("background")) {
        leave_the_background_thread();
        require(!rd_kafka_wait_destroyed(TIMEOUT_MS), "nothing of the client is left");
        return 0;
    }
    conf = rd_kafka_conf_new();
    if (begins("share_")) {
        char errstr[512];
        broker = ottla_broker_start("topics=orders:1", errstr, sizeof(errstr));
        require(broker != NULL, errstr);
        servers = ottla_broker_bootstrap_servers(broker);
        set(conf, "bootstrap.servers", servers);
    } else
        set(conf, "test.mock.num.brokers", "1");
    if (is_of_producer())
        rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    producer = client(RD_KAFKA_PRODUCER, conf);
    if (begins("share_"))
        start_share(servers);
    else if (is_of_producer())
        queue = rd_kafka_queue_get_main(producer);
    else {
        rd_kafka_mock_cluster_t *cluster = rd_kafka_handle_mock_cluster(producer);
        rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0);
        produce(RECORDS);
        require(!rd_kafka_flush(producer, TIMEOUT_MS), "the records are written");
        start_consumer(rd_kafka_mock_cluster_bootstraps(cluster));
    }
    for (number = 0; number < rounds; number++) {
        if (is_of_producer())
            round_of_producer();
        else if (begins("share_"))
            round_of_share();
        else
            round_of_consumer();
        if (number == WARM_UP)
            measured = mallinfo2().uordblks;
    }
    if (rounds > WARM_UP)
        printf("%ld\n", (long)mallinfo2().uordblks - (long)measured);
    if (is_of_producer())
        rd_kafka_queue_destroy(queue);
    else if (begins("share_"))
        end_share();
    else
        end_consumer();
    rd_kafka_poll(producer, 0);
    rd_kafka_destroy(producer);
    require(!rd_kafka_wait_destroyed(TIMEOUT_MS), "nothing of the clients is left");
    rd_kafka_mem_free(NULL, servers);
    if (broker)
        require(!ottla_broker_destroy(broker), "the broker stops");
    return 0;
}
