/*
 * Misuse of the API, one case after another: `misuse TOPIC BOOTSTRAP`. Each case has a defined result, and none ends
 * the program. A memory checker verifies the process.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <librdkafka/rdkafka.h>

static const char *topic_name, *bootstrap;
static int cases, failures;

static void expect(const char *what, int holds) {
  printf("%s: %s\n", what, holds ? "ok" : "WRONG");
  fflush(stdout);
  cases++;
  failures += !holds;
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
  char errstr[512];
  rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "log_level", "0", errstr, sizeof(errstr));
  if (type == RD_KAFKA_CONSUMER) {
    rd_kafka_conf_set(conf, "group.id", topic_name, errstr, sizeof(errstr));
    rd_kafka_conf_set(conf, "auto.offset.reset", "earliest", errstr, sizeof(errstr));
  }
  rd_kafka_t *rk = rd_kafka_new(type, conf, errstr, sizeof(errstr));
  if (rk == NULL) {
    printf("%s\n", errstr);
    exit(1);
  }
  return rk;
}

static void nothing_at_all(void) {
  char errstr[64];
  rd_kafka_conf_destroy(NULL);
  rd_kafka_topic_conf_destroy(NULL);
  rd_kafka_headers_destroy(NULL);
  rd_kafka_topic_partition_list_destroy(NULL);
  rd_kafka_queue_destroy(NULL);
  rd_kafka_event_destroy(NULL);
  rd_kafka_error_destroy(NULL);
  rd_kafka_message_destroy(NULL);
  rd_kafka_topic_destroy(NULL);
  rd_kafka_destroy(NULL);
  expect("destroying nothing", 1);
  expect("a property of nothing", rd_kafka_conf_set(NULL, "linger.ms", "1", errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK);
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  expect("a property without a name", rd_kafka_conf_set(conf, NULL, "1", errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK);
  expect("an error text without room", rd_kafka_conf_set(conf, "linger.ms", "x", errstr, 1) == RD_KAFKA_CONF_INVALID && *errstr == '\0');
  rd_kafka_conf_destroy(conf);
  expect("poll", rd_kafka_poll(NULL, 0) == 0);
  expect("flush", rd_kafka_flush(NULL, 0) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("produce", rd_kafka_produce(NULL, 0, 0, NULL, 0, NULL, 0, NULL) == -1);
  expect("consumer_poll", rd_kafka_consumer_poll(NULL, 0) == NULL);
  expect("topic_new", rd_kafka_topic_new(NULL, "t", NULL) == NULL);
  expect("subscribe", rd_kafka_subscribe(NULL, NULL) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("queue_poll", rd_kafka_queue_poll(NULL, 0) == NULL);
  expect("names of codes that are none", rd_kafka_err2str((rd_kafka_resp_err_t)123456) != NULL && rd_kafka_err2name((rd_kafka_resp_err_t)-123456) != NULL);
}

static void the_wrong_client(void) {
  rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, rd_kafka_conf_new());
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, topic_name, 0);
  expect("a producer subscribes", rd_kafka_subscribe(producer, list) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a producer commits", rd_kafka_commit(producer, NULL, 0) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a producer closes", rd_kafka_consumer_close(producer) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_message_t *polled = rd_kafka_consumer_poll(producer, 0);
  expect("a producer polls for messages", polled != NULL && polled->err == RD_KAFKA_RESP_ERR__UNKNOWN_GROUP);
  if (polled != NULL)
    rd_kafka_message_destroy(polled);
  expect("a consumer produces", rd_kafka_producev(consumer, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_END) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a consumer flushes", rd_kafka_flush(consumer, 0) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_error_t *error = rd_kafka_begin_transaction(producer);
  expect("a transaction that was never prepared", error != NULL && rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_error_destroy(error);
  expect("an empty subscription is the end of one", rd_kafka_unsubscribe(consumer) == RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("nothing to commit", rd_kafka_commit(consumer, NULL, 0) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a commit of a message that is none", rd_kafka_commit_message(consumer, NULL, 0) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_topic_partition_list_destroy(list);
  rd_kafka_destroy(consumer);
  rd_kafka_destroy(producer);
}

static void wrong_arguments(void) {
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  static char large[2000000];
  expect("a wrong type of argument", rd_kafka_producev(rk, RD_KAFKA_V_TOPIC("t"), 4711, NULL, RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  expect("no topic", rd_kafka_producev(rk, RD_KAFKA_V_VALUE("v", 1), RD_KAFKA_V_END) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a message that is too large", rd_kafka_producev(rk, RD_KAFKA_V_TOPIC("t"), RD_KAFKA_V_VALUE(large, sizeof(large)), RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
  expect("copied, and so not freed", rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_FREE, large, 1, NULL, 0, NULL) == 0);
  expect("a topic without a name", rd_kafka_topic_new(rk, NULL, NULL) == NULL);
  rd_kafka_topic_destroy(topic);
  rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  rd_kafka_flush(rk, 5000);
  rd_kafka_destroy(rk);
}

static void too_much_and_too_little(void) {
  char errstr[64], value[4], *long_name = calloc(1, 1001);
  memset(long_name, 't', 1000);
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  expect("a topic with a name of 1000 letters", rd_kafka_topic_new(rk, long_name, NULL) == NULL);
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
  expect("a partition below none", rd_kafka_produce(topic, -7, RD_KAFKA_MSG_F_COPY, "v", 1, NULL, 0, NULL) == -1 || rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE) == RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a batch of nothing", rd_kafka_produce_batch(topic, 0, 0, NULL, 10) == 0);
  expect("a batch of less than nothing", rd_kafka_produce_batch(topic, 0, 0, NULL, -10) == 0);
  static char large[2000000];
  expect("a key that is too large", rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, NULL, 0, large, sizeof(large), NULL) == -1 && rd_kafka_last_error() == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
  expect("a purge of something else", rd_kafka_purge(rk, 0x4000) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  expect("a consumer's call on a producer's topic", rd_kafka_consume_start(topic, 0, 0) == -1);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);

  expect("a client of no type", rd_kafka_new((rd_kafka_type_t)7, NULL, errstr, sizeof(errstr)) == NULL);
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  expect("no room for an error text", rd_kafka_conf_set(conf, "linger.ms", "x", NULL, 0) == RD_KAFKA_CONF_INVALID);
  expect("a property of 1000 letters", rd_kafka_conf_set(conf, long_name, long_name, errstr, sizeof(errstr)) == RD_KAFKA_CONF_UNKNOWN);
  expect("a number that is too large", rd_kafka_conf_set(conf, "linger.ms", "99999999999999999999", errstr, sizeof(errstr)) == RD_KAFKA_CONF_INVALID);
  size_t size = sizeof(value);
  expect("a value without room", rd_kafka_conf_get(conf, "client.id", value, &size) == RD_KAFKA_CONF_OK && size == strlen("rdkafka") + 1);
  expect("a value without a size", rd_kafka_conf_get(conf, "client.id", NULL, NULL) != RD_KAFKA_CONF_UNKNOWN);
  rd_kafka_conf_destroy(conf);
  free(long_name);
}

static void lists_and_headers(void) {
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(-1);
  expect("a list of less than nothing", list != NULL && list->cnt == 0);
  expect("an entry that is not there", rd_kafka_topic_partition_list_del_by_idx(list, 3) == 0);
  expect("an entry before the first", rd_kafka_topic_partition_list_del_by_idx(list, -1) == 0);
  expect("an entry that was not added", rd_kafka_topic_partition_list_del(list, "t", 0) == 0);
  expect("an offset of no entry", rd_kafka_topic_partition_list_set_offset(list, "t", 0, 1) == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
  expect("a search for no name", rd_kafka_topic_partition_list_find(list, NULL, 0) == NULL);
  rd_kafka_topic_partition_list_destroy(list);
  expect("a search in nothing", rd_kafka_topic_partition_list_find(NULL, "t", 0) == NULL);
  expect("a copy of nothing", rd_kafka_topic_partition_list_copy(NULL) == NULL);

  const void *value;
  size_t size;
  rd_kafka_headers_t *headers = rd_kafka_headers_new(0);
  expect("a header that is not there", rd_kafka_header_get_last(headers, "h", &value, &size) == RD_KAFKA_RESP_ERR__NOENT);
  expect("headers to take away", rd_kafka_header_remove(headers, "h") == RD_KAFKA_RESP_ERR__NOENT);
  expect("a header of no headers", rd_kafka_header_add(NULL, "h", 1, "v", 1) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a header without a name", rd_kafka_header_add(headers, NULL, 0, "v", 1) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_headers_destroy(headers);

  expect("the error of no message", rd_kafka_message_errstr(NULL) == NULL);
  expect("the headers of no message", rd_kafka_message_headers(NULL, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("the time of no message", rd_kafka_message_timestamp(NULL, NULL) == -1);
  expect("the type of no event", rd_kafka_event_type(NULL) == RD_KAFKA_EVENT_NONE);
  expect("the message of no event", rd_kafka_event_message_next(NULL) == NULL);
}

static void wrong_parts(void) {
  rd_kafka_t *rk              = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  rd_kafka_headers_t *headers = rd_kafka_headers_new(1);
  expect("a name that is NULL", rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(NULL), RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  expect("a topic that is NULL", rd_kafka_producev(rk, RD_KAFKA_V_RKT(NULL), RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  expect("headers in two ways", rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_HEADER("h", "v", 1), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR__CONFLICT);
  expect("nothing but an end", rd_kafka_producev(rk, RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  rd_kafka_error_t *error = rd_kafka_produceva(rk, NULL, 0);
  expect("an array of no parts", rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  rd_kafka_error_destroy(error);
  rd_kafka_headers_destroy(headers);
  rd_kafka_destroy(rk);
}

static void at_the_wrong_time(void) {
  rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, rd_kafka_conf_new());
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1), *none = NULL;
  rd_kafka_topic_partition_list_add(list, topic_name, 0)->offset = 0;
  rd_kafka_error_t *error = rd_kafka_incremental_unassign(rk, list);
  expect("to give up what one does not have", rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_error_destroy(error);
  error = rd_kafka_seek_partitions(rk, list, 0);
  rd_kafka_error_destroy(error);
  expect("to seek in what one does not have", list->elems[0].err != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("to pause nothing", rd_kafka_pause_partitions(rk, NULL) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("the committed offsets of nothing", rd_kafka_committed(rk, NULL, 100) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("the positions of nothing", rd_kafka_position(rk, NULL) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("an assignment without a result", rd_kafka_assignment(rk, NULL) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("offsets without a result", rd_kafka_query_watermark_offsets(rk, topic_name, 0, NULL, NULL, 10000) == RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("metadata without a result", rd_kafka_metadata(rk, 1, NULL, NULL, 10000) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_topic_partition_list_add(list, topic_name, 0);
  expect("a topic twice", rd_kafka_subscribe(rk, list) != RD_KAFKA_RESP_ERR_NO_ERROR);
  list->elems[0].offset = -7;
  expect("an offset that is none", rd_kafka_assign(rk, list) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_message_t *messages[1];
  rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
  expect("an array without room", rd_kafka_consume_batch_queue(queue, 0, messages, 0) == 0);
  expect("no array", rd_kafka_consume_batch_queue(queue, 0, NULL, 10) == 0);
  rd_kafka_queue_forward(queue, queue);
  expect("a queue that goes in a circle", rd_kafka_queue_length(queue) == 0);
  rd_kafka_queue_destroy(queue);
  rd_kafka_topic_partition_list_destroy(list);
  rd_kafka_subscription(rk, &none);
  rd_kafka_topic_partition_list_destroy(none);
  rd_kafka_destroy(rk);

  char errstr[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "transactional.id", topic_name, errstr, sizeof(errstr));
  rk    = client(RD_KAFKA_PRODUCER, conf);
  error = rd_kafka_commit_transaction(rk, 1000);
  expect("a commit of no transaction", rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_error_destroy(error);
  error = rd_kafka_send_offsets_to_transaction(rk, NULL, NULL, 1000);
  expect("offsets without a group", rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR__INVALID_ARG);
  rd_kafka_error_destroy(error);
  expect("a message outside of a transaction", rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_END) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_destroy(rk);
}

static void a_configuration_again(void) {
  char errstr[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_t *rk        = client(RD_KAFKA_PRODUCER, conf);
  expect("a property of a client's configuration", rd_kafka_conf_set(conf, "linger.ms", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_INVALID);
  rd_kafka_conf_set_opaque(conf, errstr);
  expect("a pointer in a client's configuration", rd_kafka_opaque(rk) == NULL);
  expect("a second client of one configuration", rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr)) == NULL && strstr(errstr, "configuration") != NULL);
  rd_kafka_conf_destroy(conf);
  expect("a copy of a configuration that a client took", rd_kafka_conf_dup(conf) == NULL);
  rd_kafka_conf_destroy((rd_kafka_conf_t *)rd_kafka_conf(rk));
  expect("destroying a client's configuration", rd_kafka_conf(rk) != NULL);
  rd_kafka_conf_t *copy = rd_kafka_conf_dup(rd_kafka_conf(rk));
  expect("a copy of a client's configuration", copy != NULL && rd_kafka_conf_set(copy, "linger.ms", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  rd_kafka_destroy(rk);
  expect("a property after the client", rd_kafka_conf_set(conf, "linger.ms", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_INVALID);
  rd_kafka_conf_destroy(conf);
  rd_kafka_conf_destroy(copy);
  rd_kafka_conf_destroy(copy);
  expect("a configuration destroyed twice", rd_kafka_conf_set(copy, "linger.ms", "1", errstr, sizeof(errstr)) == RD_KAFKA_CONF_INVALID);
  expect("a copy of a destroyed configuration", rd_kafka_conf_dup(copy) == NULL);

  conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "enable.idempotence", "true", errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "acks", "0", errstr, sizeof(errstr));
  expect("a configuration that contradicts itself", rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr)) == NULL);
  expect("stays the application's", rd_kafka_conf_set(conf, "acks", "all", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK);
  rd_kafka_conf_destroy(conf);
}

static void after_the_end(void) {
  rd_kafka_t *rk          = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
  rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
  rd_kafka_queue_destroy(queue);
  expect("a poll of a destroyed queue", rd_kafka_queue_poll(queue, 1000) == NULL);
  expect("the length of a destroyed queue", rd_kafka_queue_length(queue) == 0);
  rd_kafka_queue_destroy(queue);
  expect("a queue destroyed twice", 1);
  rd_kafka_destroy(rk);
  rd_kafka_destroy(rk);
  expect("a client destroyed twice", 1);
  expect("its name", rd_kafka_name(rk) == NULL);
  expect("a poll", rd_kafka_poll(rk, 1000) == 0);
  expect("a flush", rd_kafka_flush(rk, 1000) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a purge", rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a message", rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_END) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a message by its topic", rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, "v", 1, NULL, 0, NULL) == -1);
  expect("a topic", rd_kafka_topic_new(rk, topic_name, NULL) == NULL);
  expect("a queue", rd_kafka_queue_new(rk) == NULL);
  rd_kafka_error_t *error = rd_kafka_init_transactions(rk, 1000);
  expect("a transaction", rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_error_destroy(error);
  const struct rd_kafka_metadata *metadata;
  expect("metadata", rd_kafka_metadata(rk, 1, NULL, &metadata, 1000) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("a fatal error", rd_kafka_fatal_error(rk, NULL, 0) == RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_topic_destroy(topic);
  rd_kafka_topic_destroy(topic);
  expect("a topic destroyed twice", rd_kafka_topic_name(topic) == NULL);
  expect("a message to a destroyed topic", rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, "v", 1, NULL, 0, NULL) == -1);

  rk = client(RD_KAFKA_CONSUMER, rd_kafka_conf_new());
  rd_kafka_consumer_close(rk);
  rd_kafka_destroy(rk);
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, topic_name, 0);
  expect("a message of a destroyed consumer", rd_kafka_consumer_poll(rk, 1000) == NULL);
  expect("its subscription", rd_kafka_subscribe(rk, list) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("its assignment", rd_kafka_assign(rk, list) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("its commit", rd_kafka_commit(rk, list, 0) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("its end", rd_kafka_consumer_close(rk) != RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("its queue", rd_kafka_queue_get_consumer(rk) == NULL);
  rd_kafka_topic_partition_list_destroy(list);
}

static void nested(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
  (void)message;
  *(int *)opaque += 1;
  rd_kafka_flush(rk, 100);
  rd_kafka_poll(rk, 0);
}

static void ends_it(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
  (void)message;
  if ((*(int *)opaque)++ == 0)
    rd_kafka_destroy(rk);
}

static void inside_callbacks(void) {
  char errstr[512];
  int reports = 0;
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set_dr_msg_cb(conf, nested);
  rd_kafka_conf_set_opaque(conf, &reports);
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, conf);
  for (int n = 0; n < 5; n++)
    rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE("v", 1), RD_KAFKA_V_END);
  rd_kafka_flush(rk, 30000);
  expect("flush and poll inside a report", reports == 5);
  rd_kafka_destroy(rk);

  reports = 0;
  conf    = rd_kafka_conf_new();
  rd_kafka_conf_set_dr_msg_cb(conf, ends_it);
  rd_kafka_conf_set_opaque(conf, &reports);
  /* One batch: the reports after the first came with the destroyed client. */
  rd_kafka_conf_set(conf, "linger.ms", "100", errstr, sizeof(errstr));
  rk = client(RD_KAFKA_PRODUCER, conf);
  for (int n = 0; n < 5; n++)
    rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_FREE), RD_KAFKA_V_VALUE(strdup("v"), 1), RD_KAFKA_V_END);
  for (int n = 0; n < 300 && reports == 0; n++)
    rd_kafka_poll(rk, 100);
  expect("destroy inside a report", reports == 1);
}

static int ends_at_statistics(rd_kafka_t *rk, char *json, size_t json_len, void *opaque) {
  (void)json, (void)json_len;
  if ((*(int *)opaque)++ == 0)
    rd_kafka_destroy(rk);
  return 0;
}

static void ends_at_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *list, void *opaque) {
  (void)err, (void)list;
  if ((*(int *)opaque)++ == 0)
    rd_kafka_destroy(rk);
}

static void closes_at_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *list, void *opaque) {
  rd_kafka_assign(rk, err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? list : NULL);
  if ((*(int *)opaque)++ == 0)
    rd_kafka_consumer_close(rk);
}

static void produces_again(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
  if ((*(int *)opaque)++ < 3)
    rd_kafka_produce(message->rkt, 0, RD_KAFKA_MSG_F_COPY, "v", 1, NULL, 0, NULL);
  (void)rk;
}

/* A consumer whose rebalance callback does something unusual, and the number of its calls. */
static int rebalanced(void (*function)(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *, void *), int destroys) {
  int calls             = 0;
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set_rebalance_cb(conf, function);
  rd_kafka_conf_set_opaque(conf, &calls);
  rd_kafka_t *rk                        = client(RD_KAFKA_CONSUMER, conf);
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, topic_name, RD_KAFKA_PARTITION_UA);
  rd_kafka_subscribe(rk, list);
  rd_kafka_topic_partition_list_destroy(list);
  for (int n = 0; n < 300 && calls == 0; n++)
    rd_kafka_message_destroy(rd_kafka_consumer_poll(rk, 100));
  if (!destroys)
    rd_kafka_destroy(rk);
  return calls;
}

static void inside_other_callbacks(void) {
  char errstr[512];
  int calls             = 0;
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "statistics.interval.ms", "10", errstr, sizeof(errstr));
  rd_kafka_conf_set_stats_cb(conf, ends_at_statistics);
  rd_kafka_conf_set_opaque(conf, &calls);
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, conf);
  for (int n = 0; n < 300 && calls == 0; n++)
    rd_kafka_poll(rk, 100);
  expect("destroy inside statistics", calls > 0);
  calls = 0;
  conf  = rd_kafka_conf_new();
  rd_kafka_conf_set_dr_msg_cb(conf, produces_again);
  rd_kafka_conf_set_opaque(conf, &calls);
  rk = client(RD_KAFKA_PRODUCER, conf);
  rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE("v", 1), RD_KAFKA_V_END);
  for (int n = 0; n < 300 && calls < 4; n++)
    rd_kafka_poll(rk, 100);
  expect("produce inside a report", calls == 4);
  rd_kafka_destroy(rk);
  expect("close inside a rebalance", rebalanced(closes_at_rebalance, 0) > 0);
  expect("destroy inside a rebalance", rebalanced(ends_at_rebalance, 1) > 0);
}

static void outliving(void) {
  rd_kafka_t *rk          = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
  rd_kafka_queue_t *queue = rd_kafka_queue_new(rk), *main_queue = rd_kafka_queue_get_main(rk);
  rd_kafka_destroy(rk);
  expect("a topic's name after its client", strcmp(rd_kafka_topic_name(topic), topic_name) == 0);
  rd_kafka_event_t *event = rd_kafka_queue_poll(main_queue, 0);
  rd_kafka_event_destroy(event);
  rd_kafka_queue_destroy(main_queue);
  rd_kafka_queue_destroy(queue);
  rd_kafka_topic_destroy(topic);
  expect("queues after their client", 1);

  rk = client(RD_KAFKA_CONSUMER, rd_kafka_conf_new());
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, topic_name, 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
  rd_kafka_assign(rk, list);
  rd_kafka_topic_partition_list_destroy(list);
  rd_kafka_message_t *message = NULL;
  for (int n = 0; n < 300 && message == NULL; n++)
    message = rd_kafka_consumer_poll(rk, 100);
  expect("a message", message != NULL && message->err == RD_KAFKA_RESP_ERR_NO_ERROR);
  expect("closed", rd_kafka_consumer_close(rk) == RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_consumer_close(rk);
  expect("closed twice", rd_kafka_consumer_closed(rk) == 1);
  rd_kafka_message_destroy(rd_kafka_consumer_poll(rk, 0));
  rd_kafka_destroy(rk);
  expect("a message after its client", message->len == 1 && *(char *)message->payload == 'v');
  rd_kafka_message_destroy(message);
}

static void *polls(void *rk) {
  for (int n = 0; n < 20; n++)
    rd_kafka_poll(rk, 10);
  return NULL;
}

static void at_the_same_time(void) {
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  pthread_t threads[4];
  for (int n = 0; n < 4; n++)
    pthread_create(&threads[n], NULL, polls, rk);
  for (int n = 0; n < 4; n++)
    pthread_join(threads[n], NULL);
  rd_kafka_destroy(rk);
  expect("four threads poll", 1);
}

static void *waits(void *rk) {
  rd_kafka_type_t type = rd_kafka_type(rk);
  if (type == RD_KAFKA_CONSUMER)
    rd_kafka_message_destroy(rd_kafka_consumer_poll(rk, -1));
  else
    rd_kafka_poll(rk, -1);
  return NULL;
}

static void *closes(void *rk) {
  rd_kafka_consumer_close(rk);
  return NULL;
}

/* A thread that waits without a limit returns when another thread closes the client. */
static void *destroys(void *rk) {
  usleep(200000);
  rd_kafka_destroy(rk);
  return NULL;
}

static void *waits_at(void *rkqu) {
  rd_kafka_event_t *event;
  while ((event = rd_kafka_queue_poll(rkqu, -1)) != NULL)
    rd_kafka_event_destroy(event);
  return NULL;
}

static void ended_while(const char *what, rd_kafka_t *rk, void *(*function)(void *), void *argument) {
  pthread_t waiting, ending;
  pthread_create(&ending, NULL, destroys, rk);
  pthread_create(&waiting, NULL, function, argument);
  pthread_join(ending, NULL);
  pthread_join(waiting, NULL);
  expect(what, 1);
}

static void ended_by_others(void) {
  char errstr[512];
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  ended_while("a producer ended while a thread polls", rk, waits, rk);
  rk = client(RD_KAFKA_CONSUMER, rd_kafka_conf_new());
  ended_while("a consumer ended while a thread polls", rk, waits, rk);

  /* The thread waits at the application's queue, which the client does not end. */
  rk                      = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  rd_kafka_queue_t *queue = rd_kafka_queue_new(rk), *main_queue = rd_kafka_queue_get_main(rk);
  rd_kafka_queue_forward(main_queue, queue);
  ended_while("a producer with a forwarded main queue ended while a thread polls", rk, waits, rk);
  rd_kafka_queue_destroy(main_queue);
  rd_kafka_queue_destroy(queue);

  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "security.protocol", "SASL_PLAINTEXT", errstr, sizeof(errstr));
  rd_kafka_conf_set(conf, "sasl.mechanism", "OAUTHBEARER", errstr, sizeof(errstr));
  rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH);
  rd_kafka_conf_enable_sasl_queue(conf, 1);
  rk    = client(RD_KAFKA_PRODUCER, conf);
  queue = rd_kafka_queue_get_sasl(rk);
  expect("a queue for tokens", queue != NULL);
  ended_while("a producer ended while a thread polls its queue for tokens", rk, waits_at, queue);
  rd_kafka_queue_destroy(queue);

  rk = client(RD_KAFKA_CONSUMER, rd_kafka_conf_new());
  pthread_t threads[2];
  for (int n = 0; n < 2; n++)
    pthread_create(&threads[n], NULL, closes, rk);
  for (int n = 0; n < 2; n++)
    pthread_join(threads[n], NULL);
  expect("closed by two threads at once", rd_kafka_consumer_closed(rk) == 1);
  rd_kafka_destroy(rk);
}

static void counts_events(rd_kafka_t *rk, void *qev_opaque) {
  (void)rk;
  ++*(int *)qev_opaque;
}

static void after_a_fork(void) {
  rd_kafka_t *rk          = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
  int events              = 0;
  rd_kafka_queue_cb_event_enable(queue, counts_events, &events);
  int refused[2];
  if (pipe(refused) != 0)
    exit(1);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    /* The engine's thread exists only in the parent: nothing may wait for it. */
    rd_kafka_poll(rk, 0);
    rd_kafka_resp_err_t err = rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE("v", 1), RD_KAFKA_V_END);
    err = err == RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_flush(rk, 500) : err;
    /* A thread of the parent may have held the lock of the queue. */
    rd_kafka_queue_yield(queue);
    int is_polled = rd_kafka_queue_poll(queue, 0) != NULL;
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(rk);
    /* Not the exit code, which is valgrind's: a child loses the memory of its parent's threads. */
    char answer = err != RD_KAFKA_RESP_ERR_NO_ERROR && events == 0 && !is_polled;
    _exit(write(refused[1], &answer, 1) != 1);
  }
  int status  = 0;
  char answer = 0;
  waitpid(child, &status, 0);
  close(refused[1]);
  expect("a child is refused", WIFEXITED(status) && read(refused[0], &answer, 1) == 1 && answer == 1);
  close(refused[0]);
  rd_kafka_queue_yield(queue);
  expect("a child leaves the parent's queue alone", events > 0);
  rd_kafka_queue_destroy(queue);
  rd_kafka_destroy(rk);
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  topic_name = argv[1];
  bootstrap  = argv[2];
  nothing_at_all();
  the_wrong_client();
  wrong_arguments();
  too_much_and_too_little();
  lists_and_headers();
  wrong_parts();
  at_the_wrong_time();
  a_configuration_again();
  after_the_end();
  inside_callbacks();
  inside_other_callbacks();
  outliving();
  at_the_same_time();
  ended_by_others();
  after_a_fork();
  expect("all clients are gone", rd_kafka_wait_destroyed(10000) == 0);
  printf("%d cases\n", cases);
  return failures > 0;
}
