/*
 * The processor in C, built against installed headers: four threads sum up amounts, invalid records go to a
 * dead-letter topic, and every valid record has an output.
 *
 * processor BROKERS TOPIC MODE [TRANSACTIONAL-ID]; the topics TOPIC, TOPIC-out and TOPIC-dead must exist.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <librdkafka/ottla.h>

#define RECORDS 1000

typedef struct {
  pthread_mutex_t lock;
  uint64_t sum;
  unsigned handled;
  char outputs[256];
} till_t;

static void stop_with(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static rd_kafka_conf_t *conf_for(const char *brokers) {
  char errstr[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers, errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK)
    stop_with("conf", errstr);
  return conf;
}

/* RECORDS amounts of 1 to 10 under seven keys; every hundredth is not a number. */
static uint64_t fill(const char *brokers, const char *topic) {
  char errstr[512], text[16], key[8];
  uint64_t sum   = 0;
  rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf_for(brokers), errstr, sizeof(errstr));
  if (rk == NULL)
    stop_with("producer", errstr);
  for (int number = 0; number < RECORDS; number++) {
    int is_good = number % 100 != 99, amount = number % 10 + 1;
    snprintf(text, sizeof(text), is_good ? "%d" : "x%d", amount);
    snprintf(key, sizeof(key), "k%d", number % 7);
    sum += is_good ? (uint64_t)amount : 0;
    rd_kafka_resp_err_t err =
        rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_KEY(key, strlen(key)),
                          RD_KAFKA_V_VALUE(text, strlen(text)), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
      stop_with("produce", rd_kafka_err2str(err));
  }
  if (rd_kafka_flush(rk, 60000) != RD_KAFKA_RESP_ERR_NO_ERROR)
    stop_with("flush", "the records are not written");
  rd_kafka_destroy(rk);
  return sum;
}

/* 0 if the message is not a number. */
static uint64_t amount_of(const rd_kafka_message_t *message) {
  char text[16] = "", *end = text;
  if (message->len > 0 && message->len < sizeof(text))
    memcpy(text, message->payload, message->len);
  uint64_t amount = strtoull(text, &end, 10);
  return *end == '\0' ? amount : 0;
}

static void pay(till_t *till, ottla_processor_call_t *call, const rd_kafka_message_t *message, uint64_t amount) {
  rd_kafka_resp_err_t err = ottla_processor_send(call, till->outputs, RD_KAFKA_PARTITION_UA, message->key,
                                                 message->key_len, message->payload, message->len, NULL);
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
    stop_with("send", rd_kafka_err2str(err));
  pthread_mutex_lock(&till->lock);
  till->sum += amount;
  till->handled++;
  pthread_mutex_unlock(&till->lock);
}

static ottla_processor_verdict_t handle(ottla_processor_call_t *call, const rd_kafka_message_t *message, void *opaque) {
  uint64_t amount = amount_of(message);
  if (amount == 0) {
    ottla_processor_set_reason(call, "not an amount");
    return OTTLA_PROCESSOR_UNDECODABLE;
  }
  pay(opaque, call, message, amount);
  return OTTLA_PROCESSOR_DONE;
}

static ottla_processor_verdict_t
handle_batch(ottla_processor_call_t *call, const rd_kafka_message_t *const *messages, size_t cnt, void *opaque) {
  for (size_t index = 0; index < cnt; index++) {
    uint64_t amount = amount_of(messages[index]);
    if (amount == 0)
      ottla_processor_fail(call, index, OTTLA_PROCESSOR_UNDECODABLE, "not an amount");
    else
      pay(opaque, call, messages[index], amount);
  }
  return OTTLA_PROCESSOR_DONE;
}

static void set(ottla_processor_settings_t *settings, const char *name, const char *value) {
  char errstr[512];
  if (ottla_processor_settings_set(settings, name, value, errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK)
    stop_with(name, errstr);
}

static ottla_processor_t *start(const char *brokers, const char *topic, char **argv, till_t *till) {
  char errstr[512], dead[256], group[256];
  rd_kafka_conf_t *conf = conf_for(brokers);
  snprintf(group, sizeof(group), "%s-%s", topic, argv[3]);
  rd_kafka_conf_set(conf, "group.id", group, errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "auto.offset.reset", "earliest", errstr, sizeof(errstr));

  ottla_processor_settings_t *settings = ottla_processor_settings_new();
  snprintf(dead, sizeof(dead), "%s-dead", topic);
  set(settings, "mode", argv[3]);
  set(settings, "topics", topic);
  set(settings, "order", "key");
  set(settings, "workers", "4");
  set(settings, "batch", "100");
  set(settings, "batch.wait.ms", "50");
  set(settings, "commit.interval.ms", "200");
  set(settings, "on.failure", "dead-letter");
  set(settings, "dead.letter.topic", dead);
  if (argv[4] != NULL)
    set(settings, "transactional.id", argv[4]);
  ottla_processor_settings_set_handler(settings, handle, till);
  ottla_processor_settings_set_batch_handler(settings, handle_batch, till);
  ottla_processor_t *processor = ottla_processor_start(conf, settings, errstr, sizeof(errstr));
  if (processor == NULL)
    stop_with("start", errstr);
  return processor;
}

/* Everything is done and committed: the committed offsets add up to the number of records. */
static int is_through(const ottla_processor_t *processor) {
  const ottla_processor_stats_t *stats = ottla_processor_stats(processor);
  int64_t committed                    = 0;
  for (size_t index = 0; index < stats->partition_cnt; index++)
    committed += stats->partitions[index]->committed > 0 ? stats->partitions[index]->committed : 0;
  int through = committed >= RECORDS && stats->dead_letters == RECORDS / 100;
  ottla_processor_stats_destroy(stats);
  return through;
}

int main(int argc, char **argv) {
  if (argc < 4)
    stop_with(argv[0], "BROKERS TOPIC MODE [TRANSACTIONAL-ID]");
  till_t till = {.lock = PTHREAD_MUTEX_INITIALIZER};
  snprintf(till.outputs, sizeof(till.outputs), "%s-out", argv[2]);
  uint64_t expected            = fill(argv[1], argv[2]);
  ottla_processor_t *processor = start(argv[1], argv[2], argv, &till);
  while (!is_through(processor) && !ottla_processor_is_stopped(processor))
    usleep(10000);
  ottla_processor_stop(processor);
  rd_kafka_error_t *why = ottla_processor_wait(processor, 60000);
  if (why != NULL)
    stop_with("stopped", rd_kafka_error_string(why));
  if (ottla_processor_destroy(processor) != RD_KAFKA_RESP_ERR_NO_ERROR)
    stop_with("destroy", "a handler is still running");
  if (ottla_processor_destroy(processor) != RD_KAFKA_RESP_ERR__INVALID_ARG)
    stop_with("destroy", "a second time went unnoticed");
  printf("%s: %u handled, sum right: %d\n", argv[3], till.handled, till.sum == expected);
  return 0;
}
