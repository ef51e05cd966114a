/* The introduction's consumer: one partition, started and stopped, read one by one, in batches, and by a callback. */
#include <stdio.h>
#include <string.h>

#include <librdkafka/rdkafka.h>

static void show(const char *how, const rd_kafka_message_t *message) {
  printf("%s: %s %d offset %lld key %.*s payload %.*s\n", how, rd_kafka_topic_name(message->rkt), message->partition,
         (long long)message->offset, (int)message->key_len, message->key ? (char *)message->key : "", (int)message->len,
         (char *)message->payload);
}

static int called;
static long long ended = -1;

static void one(rd_kafka_message_t *message, void *opaque) {
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
    /* During the callback's last second or after it, depending on the broker. */
    ended = (long long)message->offset;
    return;
  }
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    printf("event: %s\n", rd_kafka_err2name(message->err));
    return;
  }
  show(opaque, message);
  called++;
}

static void fill(const char *brokers, const char *name) {
  char errstr[512], text[32];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", brokers, errstr, sizeof(errstr));
  rd_kafka_t *rk          = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr));
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
  for (int n = 0; n < 12; n++) {
    snprintf(text, sizeof(text), "%d", n);
    rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, text, strlen(text), text, 1, NULL);
  }
  printf("filled: %s\n", rd_kafka_err2name(rd_kafka_flush(rk, 30000)));
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
}

int main(int argc, char **argv) {
  char errstr[512];
  if (argc != 3)
    return 2;
  fill(argv[2], argv[1]);
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", argv[2], errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "enable.partition.eof", "true", errstr, sizeof(errstr));
  rd_kafka_t *rk          = rd_kafka_new(RD_KAFKA_CONSUMER, conf, errstr, sizeof(errstr));
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, argv[1], NULL);
  printf("consuming before the start: %d\n", rd_kafka_consume(topic, 0, 0) == NULL);
  printf("started: %d\n", rd_kafka_consume_start(topic, 0, RD_KAFKA_OFFSET_BEGINNING));

  rd_kafka_message_t *first = rd_kafka_consume(topic, 0, 30000);
  if (first == NULL)
    return 1;
  show("one", first);
  rd_kafka_message_destroy(first);

  rd_kafka_message_t *batch[4];
  ssize_t got = 0;
  while (got < 4) {
    ssize_t more = rd_kafka_consume_batch(topic, 0, 30000, batch + got, (size_t)(4 - got));
    if (more <= 0)
      return 1;
    got += more;
  }
  for (ssize_t n = 0; n < got; n++) {
    show("batch", batch[n]);
    rd_kafka_message_destroy(batch[n]);
  }
  while (called < 7)
    if (rd_kafka_consume_callback(topic, 0, 1000, one, "callback") < 0)
      return 1;
  for (int n = 0; n < 60 && ended < 0; n++) {
    rd_kafka_message_t *end = rd_kafka_consume(topic, 0, 1000);
    if (end != NULL) {
      one(end, "after the end");
      rd_kafka_message_destroy(end);
    }
  }
  printf("end at %lld\n", ended);
  printf("nothing more: %d\n", rd_kafka_consume(topic, 0, 100) == NULL);
  printf("because: %s\n", rd_kafka_err2name(rd_kafka_last_error()));
  printf("sought: %s\n", rd_kafka_err2name(rd_kafka_seek(topic, 0, 10, 10000)));
  first = rd_kafka_consume(topic, 0, 30000);
  show("after the seek", first);
  rd_kafka_message_destroy(first);
  printf("stopped: %d\n", rd_kafka_consume_stop(topic, 0));

  rd_kafka_consume_start(topic, 0, RD_KAFKA_OFFSET_TAIL(2));
  first = rd_kafka_consume(topic, 0, 30000);
  show("two before the end", first);
  rd_kafka_message_destroy(first);
  rd_kafka_consume_stop(topic, 0);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
  return 0;
}
