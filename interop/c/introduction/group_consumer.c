/* A group consumer, which the introduction only mentions: rebalances, commits, and leaving. */
#include <stdio.h>
#include <string.h>

#include <librdkafka/rdkafka.h>

static void rebalanced(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *partitions, void *opaque) {
  (void)opaque;
  printf("%s: %d partitions, protocol %s\n", rd_kafka_err2name(err), partitions->cnt, rd_kafka_rebalance_protocol(rk));
  rd_kafka_assign(rk, err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? partitions : NULL);
}

static void fill(const char *brokers, const char *name) {
  char errstr[512], text[32];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", brokers, errstr, sizeof(errstr));
  rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr));
  for (int n = 0; n < 6; n++) {
    snprintf(text, sizeof(text), "%d", n);
    rd_kafka_resp_err_t err =
        rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(name), RD_KAFKA_V_PARTITION(n % 2), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                          RD_KAFKA_V_VALUE(text, strlen(text)), RD_KAFKA_V_HEADER("n", text, -1), RD_KAFKA_V_END);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
      printf("%s\n", rd_kafka_err2str(err));
  }
  printf("filled: %s\n", rd_kafka_err2name(rd_kafka_flush(rk, 30000)));
  rd_kafka_destroy(rk);
}

static rd_kafka_t *member(const char *brokers, const char *name) {
  char errstr[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", brokers, errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "group.id", name, errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "auto.offset.reset", "earliest", errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "enable.auto.commit", "false", errstr, sizeof(errstr));
  rd_kafka_conf_set_rebalance_cb(conf, rebalanced);
  rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, errstr, sizeof(errstr));
  rd_kafka_poll_set_consumer(rk);
  rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, name, RD_KAFKA_PARTITION_UA);
  printf("subscribed: %s\n", rd_kafka_err2name(rd_kafka_subscribe(rk, topics)));
  rd_kafka_topic_partition_list_destroy(topics);
  return rk;
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  fill(argv[2], argv[1]);
  rd_kafka_t *rk = member(argv[2], argv[1]);
  int seen[2]    = {0, 0};
  for (int polls = 0; seen[0] + seen[1] < 6 && polls < 300; polls++) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, 100);
    if (message == NULL)
      continue;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      rd_kafka_headers_t *headers;
      const void *value;
      size_t size;
      if (message->offset != seen[message->partition]++ || rd_kafka_message_headers(message, &headers) != 0 ||
          rd_kafka_header_get_last(headers, "n", &value, &size) != 0 || size != message->len ||
          memcmp(value, message->payload, size) != 0)
        printf("partition %d offset %lld is not as it was sent\n", message->partition, (long long)message->offset);
    } else {
      printf("%s\n", rd_kafka_message_errstr(message));
    }
    rd_kafka_message_destroy(message);
  }
  printf("read %d and %d\n", seen[0], seen[1]);
  printf("committed: %s\n", rd_kafka_err2name(rd_kafka_commit(rk, NULL, 0)));
  rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(2);
  rd_kafka_topic_partition_list_add_range(offsets, argv[1], 0, 1);
  printf("asked: %s\n", rd_kafka_err2name(rd_kafka_committed(rk, offsets, 10000)));
  rd_kafka_position(rk, offsets);
  for (int n = 0; n < offsets->cnt; n++)
    printf("partition %d stands at %lld\n", offsets->elems[n].partition, (long long)offsets->elems[n].offset);
  rd_kafka_topic_partition_list_destroy(offsets);
  printf("closed: %s\n", rd_kafka_err2name(rd_kafka_consumer_close(rk)));
  rd_kafka_destroy(rk);
  return 0;
}
