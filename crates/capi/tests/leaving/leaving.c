/*
 * A delivery report callback that does not return: `leaving longjmp` jumps back to its caller, `leaving pthread_exit` ends
 * its thread. Both produce to an embedded cluster, leave the callback, and use the client afterwards.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdkafka.h"

#define RECORDS 3

static jmp_buf before_poll;
static int leaves_by_jump;
static int leaves_by_exit;
static int reported;

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    (void)opaque;
    if (message->err) {
        printf("report: %s\n", rd_kafka_err2str(message->err));
        exit(1);
    }
    reported++;
    if (leaves_by_jump) {
        leaves_by_jump = 0;
        longjmp(before_poll, 1);
    }
    if (leaves_by_exit) {
        leaves_by_exit = 0;
        pthread_exit(NULL);
    }
}

static void require(int holds, const char *what) {
    if (!holds) {
        printf("not so: %s\n", what);
        exit(1);
    }
}

static void *poll_until_reported(void *rk) {
    int wanted = reported + 1;
    while (reported < wanted)
        rd_kafka_poll(rk, 100);
    return NULL;
}

static void produce(rd_kafka_t *rk, int records) {
    for (int i = 0; i < records; i++) {
        rd_kafka_resp_err_t err =
            rd_kafka_producev(rk, RD_KAFKA_V_TOPIC("orders"), RD_KAFKA_V_PARTITION(0),
                              RD_KAFKA_V_VALUE("value", 5), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
        require(!err, "the record is taken");
    }
}

int main(int argc, char **argv) {
    char errstr[512];
    require(argc == 2, "one argument");
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "test.mock.num.brokers", "1", errstr, sizeof(errstr));
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr));
    require(rk != NULL, "a producer");

    produce(rk, RECORDS);
    if (!strcmp(argv[1], "longjmp")) {
        leaves_by_jump = 1;
        if (!setjmp(before_poll))
            poll_until_reported(rk);
    } else {
        pthread_t thread;
        leaves_by_exit = 1;
        require(!pthread_create(&thread, NULL, poll_until_reported, rk), "a thread");
        require(!pthread_join(thread, NULL), "the thread ends");
    }
    require(reported == 1, "the callback was left at the first report");

    produce(rk, RECORDS);
    require(!rd_kafka_flush(rk, 30000), "the client flushes afterwards");
    printf("reported %d of %d\n", reported, 2 * RECORDS);
    rd_kafka_destroy(rk);
    /* A jump leaks what the poll held, the client among it. */
    require(!strcmp(argv[1], "longjmp") || !rd_kafka_wait_destroyed(10000), "the client has ended");
    return 0;
}
