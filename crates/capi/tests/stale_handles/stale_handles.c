/*
 * Uses handles after their end: `stale_handles CASE [CLIENTS]`. Prints `misuse FUNCTION TYPE` for each call that the library must
 * report on stderr, in that order, and stops at the first wrong result.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ottla.h"
#include "rdkafka.h"
#include "rdkafka_mock.h"

/* Objects of a kind that are created and destroyed before a stale handle is used again. */
#define LATER 10000
/* The same for clients. A memory checker needs much longer for each. */
static int later_clients = LATER;

static void check(int line, const char *what, int holds) {
  if (holds)
    return;
  printf("line %d: %s\n", line, what);
  exit(1);
}
#define CHECK(holds) check(__LINE__, #holds, holds)

/* A call that is reported. */
#define MISUSE(function, type, holds)                                                                                  \
  do {                                                                                                                 \
    printf("misuse %s %s\n", function, type);                                                                          \
    fflush(stdout);                                                                                                    \
    check(__LINE__, #holds, holds);                                                                                    \
  } while (0)
#define MISUSE_VOID(function, type, call)                                                                              \
  do {                                                                                                                 \
    printf("misuse %s %s\n", function, type);                                                                          \
    fflush(stdout);                                                                                                    \
    call;                                                                                                              \
  } while (0)

static char errstr[512];

static rd_kafka_conf_t *conf_with(const char *name, const char *value) {
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  CHECK(rd_kafka_conf_set(conf, "log_level", "0", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  if (name != NULL)
    CHECK(rd_kafka_conf_set(conf, name, value, errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  return conf;
}

static rd_kafka_t *client_of(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
  rd_kafka_t *rk = rd_kafka_new(type, conf, errstr, sizeof(errstr));
  check(__LINE__, errstr, rk != NULL);
  return rk;
}

static void use_client(rd_kafka_t *rk) {
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, "t", 0);
  MISUSE("rd_kafka_name", "rd_kafka_t", rd_kafka_name(rk) == NULL);
  MISUSE("rd_kafka_poll", "rd_kafka_t", rd_kafka_poll(rk, 10000) == 0);
  MISUSE("rd_kafka_flush", "rd_kafka_t", rd_kafka_flush(rk, 10000) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  MISUSE("rd_kafka_consumer_poll", "rd_kafka_t", rd_kafka_consumer_poll(rk, 10000) == NULL);
  MISUSE("rd_kafka_subscribe", "rd_kafka_t", rd_kafka_subscribe(rk, list) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  MISUSE("rd_kafka_commit", "rd_kafka_t", rd_kafka_commit(rk, list, 0) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  MISUSE("rd_kafka_topic_new", "rd_kafka_t", rd_kafka_topic_new(rk, "t", NULL) == NULL);
  MISUSE("rd_kafka_queue_new", "rd_kafka_t", rd_kafka_queue_new(rk) == NULL);
  MISUSE("rd_kafka_conf", "rd_kafka_t", rd_kafka_conf(rk) == NULL);
  MISUSE_VOID("rd_kafka_destroy", "rd_kafka_t", rd_kafka_destroy(rk));
  rd_kafka_topic_partition_list_destroy(list);
}

static void clients(void) {
  rd_kafka_t *rk = client_of(RD_KAFKA_PRODUCER, conf_with(NULL, NULL));
  rd_kafka_destroy(rk);
  use_client(rk);
  for (int n = 0; n < later_clients; n++) {
    rd_kafka_t *later = client_of(n % 2 ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf_with("group.id", "g"));
    CHECK(later != rk);
    rd_kafka_destroy(later);
  }
  use_client(rk);
}

static void use_topic(rd_kafka_topic_t *rkt) {
  MISUSE("rd_kafka_topic_name", "rd_kafka_topic_t", rd_kafka_topic_name(rkt) == NULL);
  MISUSE("rd_kafka_produce", "rd_kafka_topic_t", rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, "v", 1, NULL, 0, NULL) == -1);
  CHECK(rd_kafka_last_error() == RD_KAFKA_RESP_ERR__INVALID_ARG);
  MISUSE("rd_kafka_consume_start", "rd_kafka_topic_t", rd_kafka_consume_start(rkt, 0, 0) == -1);
  MISUSE("rd_kafka_consume", "rd_kafka_topic_t", rd_kafka_consume(rkt, 0, 10000) == NULL);
  MISUSE_VOID("rd_kafka_topic_destroy", "rd_kafka_topic_t", rd_kafka_topic_destroy(rkt));
}

static void topics(void) {
  rd_kafka_t *rk        = client_of(RD_KAFKA_PRODUCER, conf_with(NULL, NULL));
  rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "t", NULL);
  CHECK(rd_kafka_topic_new(rk, "t", NULL) == rkt);
  rd_kafka_topic_destroy(rkt);
  rd_kafka_topic_destroy(rkt);
  CHECK(strcmp(rd_kafka_topic_name(rkt), "t") == 0); /* the client has it: messages point to it */
  MISUSE_VOID("rd_kafka_topic_destroy", "rd_kafka_topic_t", rd_kafka_topic_destroy(rkt));
  rd_kafka_destroy(rk);
  use_topic(rkt);
  rk = client_of(RD_KAFKA_PRODUCER, conf_with(NULL, NULL));
  for (int n = 0; n < LATER; n++) {
    rd_kafka_topic_t *later = rd_kafka_topic_new(rk, "t", rd_kafka_topic_conf_new());
    CHECK(later != rkt);
    rd_kafka_topic_destroy(later);
  }
  use_topic(rkt);
  rd_kafka_destroy(rk);
}

static void use_queue(rd_kafka_queue_t *rkqu) {
  rd_kafka_message_t *messages[1];
  MISUSE("rd_kafka_queue_length", "rd_kafka_queue_t", rd_kafka_queue_length(rkqu) == 0);
  MISUSE("rd_kafka_queue_poll", "rd_kafka_queue_t", rd_kafka_queue_poll(rkqu, 10000) == NULL);
  MISUSE("rd_kafka_consume_batch_queue", "rd_kafka_queue_t", rd_kafka_consume_batch_queue(rkqu, 10000, messages, 1) == -1);
  MISUSE_VOID("rd_kafka_queue_yield", "rd_kafka_queue_t", rd_kafka_queue_yield(rkqu));
  MISUSE_VOID("rd_kafka_queue_destroy", "rd_kafka_queue_t", rd_kafka_queue_destroy(rkqu));
}

static void queues(void) {
  rd_kafka_t *rk         = client_of(RD_KAFKA_PRODUCER, conf_with(NULL, NULL));
  rd_kafka_queue_t *rkqu = rd_kafka_queue_new(rk);
  rd_kafka_queue_destroy(rkqu);
  use_queue(rkqu);
  for (int n = 0; n < LATER; n++) {
    rd_kafka_queue_t *later = n % 2 ? rd_kafka_queue_new(rk) : rd_kafka_queue_get_main(rk);
    CHECK(later != rkqu);
    rd_kafka_queue_destroy(later);
  }
  use_queue(rkqu);
  MISUSE("rd_kafka_queue_length", "rd_kafka_queue_t", rd_kafka_queue_length((rd_kafka_queue_t *)rk) == 0);
  MISUSE("rd_kafka_name", "rd_kafka_t", rd_kafka_name((rd_kafka_t *)errstr) == NULL);
  rd_kafka_destroy(rk);
}

static void use_conf(rd_kafka_conf_t *conf) {
  size_t size = sizeof(errstr);
  MISUSE("rd_kafka_conf_set", "rd_kafka_conf_t", rd_kafka_conf_set(conf, "linger.ms", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_INVALID);
  MISUSE("rd_kafka_conf_get", "rd_kafka_conf_t", rd_kafka_conf_get(conf, "linger.ms", errstr, &size) == RD_KAFKA_CONF_UNKNOWN);
  MISUSE_VOID("rd_kafka_conf_set_opaque", "rd_kafka_conf_t", rd_kafka_conf_set_opaque(conf, errstr));
  MISUSE("rd_kafka_conf_dup_filter", "rd_kafka_conf_t", rd_kafka_conf_dup_filter(conf, 0, NULL) == NULL);
  MISUSE("rd_kafka_new", "rd_kafka_conf_t", rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr)) == NULL);
  CHECK(strstr(errstr, "configuration") != NULL);
  MISUSE_VOID("rd_kafka_conf_destroy", "rd_kafka_conf_t", rd_kafka_conf_destroy(conf));
}

static void confs(void) {
  rd_kafka_conf_t *conf = conf_with(NULL, NULL);
  rd_kafka_conf_destroy(conf);
  use_conf(conf);
  for (int n = 0; n < LATER; n++) {
    rd_kafka_conf_t *later = rd_kafka_conf_new();
    CHECK(later != conf);
    rd_kafka_conf_destroy(later);
  }
  use_conf(conf);

  conf           = conf_with(NULL, NULL);
  rd_kafka_t *rk = client_of(RD_KAFKA_PRODUCER, conf);
  use_conf(conf);
  const rd_kafka_conf_t *own = rd_kafka_conf(rk);
  size_t size                = sizeof(errstr);
  CHECK(rd_kafka_conf_get(own, "log_level", errstr, &size) == RD_KAFKA_CONF_OK && strcmp(errstr, "0") == 0);
  MISUSE("rd_kafka_conf_set", "rd_kafka_conf_t", rd_kafka_conf_set((rd_kafka_conf_t *)own, "linger.ms", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_INVALID);
  MISUSE_VOID("rd_kafka_conf_destroy", "rd_kafka_conf_t", rd_kafka_conf_destroy((rd_kafka_conf_t *)own));
  rd_kafka_conf_t *copy = rd_kafka_conf_dup(own);
  CHECK(rd_kafka_conf_set(copy, "linger.ms", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  rd_kafka_conf_destroy(copy);
  rd_kafka_destroy(rk);
  use_conf((rd_kafka_conf_t *)own);
}

static void use_topic_conf(rd_kafka_topic_conf_t *conf) {
  size_t size = sizeof(errstr);
  MISUSE("rd_kafka_topic_conf_set", "rd_kafka_topic_conf_t", rd_kafka_topic_conf_set(conf, "acks", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_INVALID);
  MISUSE("rd_kafka_topic_conf_get", "rd_kafka_topic_conf_t", rd_kafka_topic_conf_get(conf, "acks", errstr, &size) == RD_KAFKA_CONF_UNKNOWN);
  MISUSE("rd_kafka_topic_conf_dup", "rd_kafka_topic_conf_t", rd_kafka_topic_conf_dup(conf) == NULL);
  MISUSE_VOID("rd_kafka_topic_conf_destroy", "rd_kafka_topic_conf_t", rd_kafka_topic_conf_destroy(conf));
}

static void topic_confs(void) {
  rd_kafka_t *rk               = client_of(RD_KAFKA_PRODUCER, conf_with(NULL, NULL));
  rd_kafka_topic_conf_t *tconf = rd_kafka_topic_conf_new();
  rd_kafka_topic_conf_destroy(tconf);
  use_topic_conf(tconf);
  MISUSE("rd_kafka_topic_new", "rd_kafka_topic_conf_t", rd_kafka_topic_new(rk, "t", tconf) == NULL);
  for (int n = 0; n < LATER; n++) {
    rd_kafka_topic_conf_t *later = rd_kafka_topic_conf_new();
    CHECK(later != tconf);
    rd_kafka_topic_conf_destroy(later);
  }
  use_topic_conf(tconf);

  tconf                 = rd_kafka_topic_conf_new();
  rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "t", tconf);
  CHECK(rkt != NULL);
  use_topic_conf(tconf);
  rd_kafka_topic_destroy(rkt);

  /* The default of a configuration is changed through its handle, and belongs to the configuration. */
  rd_kafka_conf_t *conf = conf_with(NULL, NULL);
  tconf                 = rd_kafka_topic_conf_new();
  size_t size           = sizeof(errstr);
  CHECK(rd_kafka_conf_get_default_topic_conf(conf) == NULL);
  rd_kafka_conf_set_default_topic_conf(conf, tconf);
  CHECK(rd_kafka_conf_get_default_topic_conf(conf) == tconf);
  CHECK(rd_kafka_topic_conf_set(tconf, "acks", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  CHECK(rd_kafka_conf_get(conf, "acks", errstr, &size) == RD_KAFKA_CONF_OK && strcmp(errstr, "1") == 0);
  MISUSE_VOID("rd_kafka_topic_conf_destroy", "rd_kafka_topic_conf_t", rd_kafka_topic_conf_destroy(tconf));
  rd_kafka_conf_destroy(conf);
  use_topic_conf(tconf);
  rd_kafka_destroy(rk);
}

/* A producer with a cluster in this process, and a consumer of it with `count` records assigned. */
struct pair {
  rd_kafka_t *producer, *consumer;
};

static struct pair pair_with(int count) {
  struct pair pair;
  pair.producer              = client_of(RD_KAFKA_PRODUCER, conf_with("test.mock.num.brokers", "1"));
  rd_kafka_mock_cluster_t *cluster = rd_kafka_handle_mock_cluster(pair.producer);
  CHECK(rd_kafka_mock_topic_create(cluster, "t", 1, 1) == RD_KAFKA_RESP_ERR_NO_ERROR);
  for (int n = 0; n < count; n++)
    CHECK(rd_kafka_producev(pair.producer, RD_KAFKA_V_TOPIC("t"), RD_KAFKA_V_VALUE("v", 1), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                            RD_KAFKA_V_HEADER("h", "1", 1), RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR_NO_ERROR);
  CHECK(rd_kafka_flush(pair.producer, 60000) == RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_conf_t *conf = conf_with("bootstrap.servers", rd_kafka_mock_cluster_bootstraps(cluster));
  CHECK(rd_kafka_conf_set(conf, "group.id", "g", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  CHECK(rd_kafka_conf_set(conf, "enable.partition.eof", "true", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  pair.consumer = client_of(RD_KAFKA_CONSUMER, conf);
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, "t", 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
  CHECK(rd_kafka_assign(pair.consumer, list) == RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_topic_partition_list_destroy(list);
  return pair;
}

static rd_kafka_message_t *next(rd_kafka_t *rk) {
  rd_kafka_message_t *message = NULL;
  for (int n = 0; n < 600 && message == NULL; n++)
    message = rd_kafka_consumer_poll(rk, 100);
  CHECK(message != NULL);
  return message;
}

static void use_message(rd_kafka_message_t *message) {
  rd_kafka_headers_t *headers;
  MISUSE_VOID("rd_kafka_message_destroy", "rd_kafka_message_t", rd_kafka_message_destroy(message));
  MISUSE("rd_kafka_message_headers", "rd_kafka_message_t", rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  MISUSE("rd_kafka_message_timestamp", "rd_kafka_message_t", rd_kafka_message_timestamp(message, NULL) == -1);
  MISUSE("rd_kafka_message_errstr", "rd_kafka_message_t", rd_kafka_message_errstr(message) == NULL);
  CHECK(message->payload == NULL && message->len == 0);
}

static void messages(void) {
  enum { COUNT = 500 };
  struct pair pair = pair_with(COUNT);
  rd_kafka_message_t *first = next(pair.consumer), *kept = next(pair.consumer);
  rd_kafka_headers_t *headers;
  CHECK(rd_kafka_message_headers(first, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_message_destroy(first);
  use_message(first);
  for (int n = 2; n < COUNT; n++)
    rd_kafka_message_destroy(next(pair.consumer));
  use_message(first);
  rd_kafka_message_t *end = next(pair.consumer);
  CHECK(end->err == RD_KAFKA_RESP_ERR__PARTITION_EOF);
  rd_kafka_message_destroy(end);
  use_message(end);
  CHECK(kept->len == 1 && memcmp(kept->payload, "v", 1) == 0);
  rd_kafka_destroy(pair.consumer);
  rd_kafka_destroy(pair.producer);
  CHECK(kept->len == 1 && memcmp(kept->payload, "v", 1) == 0);
  rd_kafka_message_destroy(kept);
  use_message(kept);
}

static rd_kafka_share_t *share_consumer(void) {
  rd_kafka_share_t *share = rd_kafka_share_consumer_new(conf_with("group.id", "g"), errstr, sizeof(errstr));
  check(__LINE__, errstr, share != NULL);
  return share;
}

/* The call returned the error of a stale handle. */
static int is_refused(rd_kafka_error_t *error) {
  int refused = error != NULL && rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR__INVALID_ARG;
  rd_kafka_error_destroy(error);
  return refused;
}

static void use_share(rd_kafka_share_t *share) {
  static const char type[]                = "rd_kafka_share_t";
  rd_kafka_messages_t *messages           = NULL;
  rd_kafka_topic_partition_list_t *topics = NULL;
  MISUSE("rd_kafka_share_poll", type, is_refused(rd_kafka_share_poll(share, 10000, &messages)) && messages == NULL);
  MISUSE("rd_kafka_share_subscribe", type, rd_kafka_share_subscribe(share, NULL) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  MISUSE("rd_kafka_share_subscription", type,
         rd_kafka_share_subscription(share, &topics) == RD_KAFKA_RESP_ERR__INVALID_ARG && topics == NULL);
  MISUSE("rd_kafka_share_acknowledge_offset", type,
         rd_kafka_share_acknowledge_offset(share, "t", 0, 0, RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT) ==
             RD_KAFKA_RESP_ERR__INVALID_ARG);
  MISUSE("rd_kafka_share_commit_sync", type, is_refused(rd_kafka_share_commit_sync(share, 10000, &topics)));
  MISUSE("rd_kafka_share_commit_async", type, is_refused(rd_kafka_share_commit_async(share)));
  MISUSE("rd_kafka_share_consumer_close", type, is_refused(rd_kafka_share_consumer_close(share)));
  MISUSE("rd_kafka_share_consumer_closed", type, rd_kafka_share_consumer_closed(share) == 0);
  MISUSE("rd_kafka_share_queue_get_sasl", type, rd_kafka_share_queue_get_sasl(share) == NULL);
  MISUSE("rd_kafka_share_destroy", type, is_refused(rd_kafka_share_destroy(share)));
}

static void shares(void) {
  rd_kafka_share_t *share = share_consumer();
  /* Neither is a client. */
  MISUSE("rd_kafka_name", "rd_kafka_t", rd_kafka_name((rd_kafka_t *)share) == NULL);
  CHECK(rd_kafka_share_destroy(share) == NULL);
  use_share(share);
  for (int n = 0; n < later_clients; n++) {
    rd_kafka_share_t *later = share_consumer();
    CHECK(later != share && rd_kafka_share_destroy(later) == NULL);
  }
  use_share(share);
}

static void events(void) {
  enum { COUNT = 100 };
  struct pair pair       = pair_with(COUNT);
  rd_kafka_queue_t *rkqu = rd_kafka_queue_get_consumer(pair.consumer);
  rd_kafka_event_t *first = NULL;
  for (int n = 0; n < COUNT;) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(rkqu, 60000);
    CHECK(event != NULL && event != first);
    n += rd_kafka_event_type(event) == RD_KAFKA_EVENT_FETCH;
    if (first == NULL)
      first = event;
    rd_kafka_event_destroy(event);
    if (n > 2 && n < COUNT)
      continue;
    MISUSE_VOID("rd_kafka_event_destroy", "rd_kafka_event_t", rd_kafka_event_destroy(first));
    MISUSE("rd_kafka_event_type", "rd_kafka_event_t", rd_kafka_event_type(first) == RD_KAFKA_EVENT_NONE);
    MISUSE("rd_kafka_event_message_next", "rd_kafka_event_t", rd_kafka_event_message_next(first) == NULL);
    MISUSE("rd_kafka_event_CreateTopics_result", "rd_kafka_event_t", rd_kafka_event_CreateTopics_result(first) == NULL);
  }
  rd_kafka_queue_destroy(rkqu);
  rd_kafka_destroy(pair.consumer);
  rd_kafka_destroy(pair.producer);
}

static ottla_processor_verdict_t handle(ottla_processor_call_t *call, const rd_kafka_message_t *message, void *opaque) {
  (void)call;
  (void)message;
  (void)opaque;
  return OTTLA_PROCESSOR_DONE;
}

static void use_settings(ottla_processor_settings_t *settings) {
  MISUSE("ottla_processor_settings_set", "ottla_processor_settings_t", ottla_processor_settings_set(settings, "workers", "2", errstr, sizeof(errstr)) == RD_KAFKA_CONF_INVALID);
  MISUSE("ottla_processor_settings_destroy", "ottla_processor_settings_t", ottla_processor_settings_destroy(settings) == RD_KAFKA_RESP_ERR__INVALID_ARG);
}

static void processors(void) {
  ottla_processor_settings_t *settings = ottla_processor_settings_new();
  CHECK(ottla_processor_settings_destroy(settings) == RD_KAFKA_RESP_ERR_NO_ERROR);
  use_settings(settings);
  for (int n = 0; n < LATER; n++) {
    ottla_processor_settings_t *later = ottla_processor_settings_new();
    CHECK(later != settings);
    CHECK(ottla_processor_settings_destroy(later) == RD_KAFKA_RESP_ERR_NO_ERROR);
  }
  use_settings(settings);

  rd_kafka_conf_t *conf = conf_with("bootstrap.servers", "127.0.0.1:1");
  CHECK(rd_kafka_conf_set(conf, "group.id", "g", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  MISUSE("ottla_processor_start", "ottla_processor_settings_t", ottla_processor_start(conf, settings, errstr, sizeof(errstr)) == NULL);
  settings = ottla_processor_settings_new();
  CHECK(ottla_processor_settings_set(settings, "topics", "t", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  CHECK(ottla_processor_settings_set_handler(settings, handle, NULL) == RD_KAFKA_RESP_ERR_NO_ERROR);
  ottla_processor_t *processor = ottla_processor_start(conf, settings, errstr, sizeof(errstr));
  check(__LINE__, errstr, processor != NULL);
  use_settings(settings);
  use_conf(conf);
  CHECK(ottla_processor_destroy(processor) == RD_KAFKA_RESP_ERR_NO_ERROR);
  MISUSE("ottla_processor_destroy", "ottla_processor_t", ottla_processor_destroy(processor) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  MISUSE("ottla_processor_stop", "ottla_processor_t", ottla_processor_stop(processor) == RD_KAFKA_RESP_ERR__INVALID_ARG);
}

/* Threads that use handles which the main thread destroys. */
static rd_kafka_t *volatile shared_client;
static rd_kafka_topic_t *volatile shared_topic;
static rd_kafka_queue_t *volatile shared_queue;
static rd_kafka_conf_t *volatile shared_conf;
static volatile int stopped;

static void *use_shared(void *unused) {
  (void)unused;
  char text[64];
  while (!stopped) {
    size_t size = sizeof(text);
    rd_kafka_poll(shared_client, 0);
    rd_kafka_topic_name(shared_topic);
    rd_kafka_produce(shared_topic, 0, RD_KAFKA_MSG_F_COPY, "v", 1, NULL, 0, NULL);
    /* A topic that was made while the client ended kept the client for ever. */
    rd_kafka_producev(shared_client, RD_KAFKA_V_TOPIC("t"), RD_KAFKA_V_VALUE("v", 1), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                      RD_KAFKA_V_END);
    rd_kafka_queue_length(shared_queue);
    rd_kafka_event_destroy(rd_kafka_queue_poll(shared_queue, 0));
    rd_kafka_conf_get(shared_conf, "linger.ms", text, &size);
    rd_kafka_conf_set(shared_conf, "linger.ms", "1", NULL, 0);
  }
  return NULL;
}

static void threads(void) {
  pthread_t users[3];
  for (int round = 0; round < 30; round++) {
    rd_kafka_conf_t *conf   = conf_with("queue.buffering.max.messages", "1000");
    rd_kafka_t *rk          = client_of(RD_KAFKA_PRODUCER, conf_with(NULL, NULL));
    rd_kafka_topic_t *rkt   = rd_kafka_topic_new(rk, "t", NULL);
    rd_kafka_queue_t *rkqu  = rd_kafka_queue_get_main(rk);
    rd_kafka_conf_t *was_conf  = shared_conf;
    rd_kafka_t *was            = shared_client;
    rd_kafka_topic_t *was_rkt  = shared_topic;
    rd_kafka_queue_t *was_rkqu = shared_queue;
    shared_client           = rk;
    shared_topic            = rkt;
    shared_queue            = rkqu;
    shared_conf             = conf;
    if (round == 0) {
      for (int n = 0; n < 3; n++)
        CHECK(pthread_create(&users[n], NULL, use_shared, NULL) == 0);
      continue;
    }
    rd_kafka_queue_destroy(was_rkqu);
    rd_kafka_conf_destroy(was_conf);
    rd_kafka_topic_destroy(was_rkt);
    rd_kafka_destroy(was);
  }
  stopped = 1;
  for (int n = 0; n < 3; n++)
    pthread_join(users[n], NULL);
  rd_kafka_queue_destroy(shared_queue);
  rd_kafka_conf_destroy(shared_conf);
  rd_kafka_topic_destroy(shared_topic);
  rd_kafka_destroy(shared_client);
  CHECK(rd_kafka_wait_destroyed(60000) == 0);
}

static void many(void) {
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_destroy(conf);
  for (int n = 0; n < 1000; n++)
    rd_kafka_conf_destroy(conf);
}

int main(int argc, char **argv) {
  if (argc > 2)
    later_clients = atoi(argv[2]);
  static const struct {
    const char *name;
    void (*function)(void);
  } all[] = {{"clients", clients}, {"topics", topics}, {"queues", queues}, {"confs", confs}, {"topic_confs", topic_confs}, {"messages", messages}, {"shares", shares}, {"events", events}, {"processors", processors}, {"threads", threads}, {"many", many}};
  for (size_t n = 0; argc >= 2 && n < sizeof(all) / sizeof(all[0]); n++) {
    if (strcmp(argv[1], all[n].name) == 0) {
      all[n].function();
      return 0;
    }
  }
  return 2;
}
