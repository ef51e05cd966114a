/* The introduction's producer: payload ownership, delivery reports, a partitioner, a full queue, a failure. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <librdkafka/rdkafka.h>

static int reports, freed_by_us, errors_seen;
static char mine[] = "neither copied nor freed";

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
  (void)rk;
  reports++;
  printf("report %d: %s, partition %d, offset known %d, message's opaque %s, client's opaque %s, payload is ours %d\n",
         reports, rd_kafka_err2name(message->err), message->partition, message->offset >= 0,
         (const char *)message->_private, (const char *)opaque, message->payload == mine);
  if (message->payload == mine)
    freed_by_us++;
}

static void failed(rd_kafka_t *rk, int err, const char *reason, void *opaque) {
  (void)rk, (void)reason, (void)opaque;
  if (err == RD_KAFKA_RESP_ERR__TRANSPORT || err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
    errors_seen++;
}

static int32_t last_partition(const rd_kafka_topic_t *topic, const void *key, size_t key_len, int32_t partition_cnt,
                              void *topic_opaque, void *message_opaque) {
  (void)topic, (void)key, (void)key_len, (void)topic_opaque, (void)message_opaque;
  return partition_cnt - 1;
}

static rd_kafka_t *producer(const char *brokers, const char *property, const char *value) {
  char errstr[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", brokers, errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "log_level", "0", errstr, sizeof(errstr));
  if (property != NULL && rd_kafka_conf_set(conf, property, value, errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK)
    printf("%s\n", errstr);
  rd_kafka_conf_set_dr_msg_cb(conf, delivered);
  rd_kafka_conf_set_error_cb(conf, failed);
  rd_kafka_conf_set_opaque(conf, "client");
  return rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr));
}

static void three_owners(const char *brokers, const char *name) {
  rd_kafka_t *rk                   = producer(brokers, NULL, NULL);
  rd_kafka_topic_conf_t *topic_conf = rd_kafka_topic_conf_new();
  char errstr[512];
  rd_kafka_topic_conf_set(topic_conf, "request.required.acks", "-1", errstr, sizeof(errstr));
  rd_kafka_topic_conf_set_partitioner_cb(topic_conf, last_partition);
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, topic_conf);
  printf("topic %s\n", rd_kafka_topic_name(topic));

  char passing[] = "copied";
  int outcome    = rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, passing, strlen(passing), "k", 1, "first");
  memset(passing, 'x', strlen(passing));
  printf("copied: %d\n", outcome);
  rd_kafka_flush(rk, 30000);
  char *given = strdup("freed by the library");
  printf("given: %d\n", rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_FREE, given, strlen(given), NULL, 0, "second"));
  rd_kafka_flush(rk, 30000);
  printf("kept: %d\n", rd_kafka_produce(topic, 0, 0, mine, strlen(mine), NULL, 0, "third"));
  while (rd_kafka_outq_len(rk) > 0)
    rd_kafka_poll(rk, 100);
  printf("reports %d, of our own payload %d\n", reports, freed_by_us);

  char *refused = strdup("still ours when it is refused");
  outcome       = rd_kafka_produce(topic, 4711, RD_KAFKA_MSG_F_FREE, refused, strlen(refused), NULL, 0, NULL);
  printf("no such partition: %d, %s, errno is ESRCH %d\n", outcome, rd_kafka_err2name(rd_kafka_last_error()), errno == ESRCH);
  free(refused);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
}

static void full_queue(void) {
  rd_kafka_t *rk          = producer("127.0.0.1:1", "queue.buffering.max.messages", "3");
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, "nowhere", NULL);
  for (int n = 0; n < 5; n++) {
    int outcome = rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, "x", 1, NULL, 0, "queued");
    int number  = errno;
    printf("message %d: %d", n, outcome);
    if (outcome == -1)
      printf(", %s, errno is ENOBUFS %d", rd_kafka_err2name(rd_kafka_last_error()), number == ENOBUFS);
    printf("\n");
  }
  /* Queued error events are counted too, and their number depends on the machine. */
  printf("all three are queued: %d\n", rd_kafka_outq_len(rk) >= 3);
  printf("purged: %s\n", rd_kafka_err2name(rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE)));
  printf("flushed: %s\n", rd_kafka_err2name(rd_kafka_flush(rk, 10000)));
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
}

static void nobody_there(void) {
  rd_kafka_t *rk          = producer("127.0.0.1:1", "message.timeout.ms", "300");
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, "nowhere", NULL);
  rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, "x", 1, NULL, 0, "lost");
  printf("flushed: %s\n", rd_kafka_err2name(rd_kafka_flush(rk, 30000)));
  for (int n = 0; n < 100 && errors_seen == 0; n++)
    rd_kafka_poll(rk, 100);
  printf("errors were reported: %d\n", errors_seen > 0);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  three_owners(argv[2], argv[1]);
  full_queue();
  nobody_there();
  printf("all gone: %d\n", rd_kafka_wait_destroyed(10000));
  return 0;
}
