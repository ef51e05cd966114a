/*
 * Produces three messages, consumes them, and prints the file of the library that did it. The first argument is the
 * broker's address, the second the topic. Without arguments it only prints the library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <librdkafka/rdkafka.h>

#define MESSAGES 3
#define WITHIN_S 60

static int fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *broker, char *error, size_t size) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", broker, error, size) != RD_KAFKA_CONF_OK ||
        rd_kafka_conf_set(conf, "group.id", "roundtrip", error, size) != RD_KAFKA_CONF_OK)
        return NULL;
    return rd_kafka_new(type, conf, error, size);
}

static int produce(const char *broker, const char *topic) {
    char error[512] = "";
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, broker, error, sizeof(error));
    if (!rk)
        return fail("producer", error);
    for (int i = 0; i < MESSAGES; i++) {
        char text[32];
        snprintf(text, sizeof(text), "message %d", i);
        rd_kafka_resp_err_t code =
            rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(0),
                              RD_KAFKA_V_VALUE(text, strlen(text)), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                              RD_KAFKA_V_END);
        if (code)
            return fail("produce", rd_kafka_err2str(code));
    }
    rd_kafka_resp_err_t code = rd_kafka_flush(rk, WITHIN_S * 1000);
    rd_kafka_destroy(rk);
    return code ? fail("flush", rd_kafka_err2str(code)) : 0;
}

static int consume(const char *broker, const char *topic) {
    char error[512] = "";
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, broker, error, sizeof(error));
    if (!rk)
        return fail("consumer", error);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_resp_err_t code = rd_kafka_assign(rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    if (code)
        return fail("assign", rd_kafka_err2str(code));
    time_t deadline = time(NULL) + WITHIN_S;
    int seen = 0;
    while (seen < MESSAGES && time(NULL) < deadline) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, 100);
        if (message && !message->err)
            printf("%.*s\n", (int)message->len, (const char *)message->payload), seen++;
        if (message)
            rd_kafka_message_destroy(message);
    }
    rd_kafka_destroy(rk);
    return seen == MESSAGES ? 0 : fail("consume", "not all messages came");
}

int main(int count, char **arguments) {
    Dl_info info;
    if (!dladdr((void *)rd_kafka_version_str, &info))
        return fail("dladdr", "no file has rd_kafka_version_str");
    printf("library %s\n", info.dli_fname);
    if (count < 3)
        return 0;
    return produce(arguments[1], arguments[2]) || consume(arguments[1], arguments[2]);
}
