/*
 * Stories of a share consumer: `share STORY BOOTSTRAP TOPIC`. The group has the topic's name and begins at its beginning. Prints the
 * results of calls, which are the same on the original library and on ours, and stops at the first wrong one.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <librdkafka/rdkafka.h>

/* Only a defect exhausts it. */
#define PATIENCE_S 60

static const char *bootstrap, *topic;
static char errstr[512];

static void check(int line, const char *what, int holds) {
  if (holds)
    return;
  printf("line %d: %s\n", line, what);
  exit(1);
}
#define CHECK(holds) check(__LINE__, #holds, holds)

static rd_kafka_conf_t *conf(void) {
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  CHECK(!rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, errstr, sizeof(errstr)));
  return conf;
}

static void produce(int first, int count) {
  rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf(), errstr, sizeof(errstr));
  check(__LINE__, errstr, rk != NULL);
  for (int n = first; n < first + count; n++) {
    char value[16];
    int size = snprintf(value, sizeof(value), "%d", n);
    CHECK(!rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_VALUE(value, (size_t)size),
                             RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END));
  }
  CHECK(!rd_kafka_flush(rk, PATIENCE_S * 1000));
  rd_kafka_destroy(rk);
}

/* Prints the error of a call and destroys it. */
static rd_kafka_resp_err_t result(const char *call, rd_kafka_error_t *error) {
  rd_kafka_resp_err_t code = error != NULL ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
  printf("%s: %s\n", call, rd_kafka_err2name(code));
  if (error != NULL)
    rd_kafka_error_destroy(error);
  return code;
}

static void coded(const char *call, rd_kafka_resp_err_t code) {
  printf("%s: %s\n", call, rd_kafka_err2name(code));
}

static rd_kafka_share_t *consumer(const char *mode) {
  rd_kafka_conf_t *of = conf();
  CHECK(!rd_kafka_conf_set(of, "group.id", topic, errstr, sizeof(errstr)));
  CHECK(!rd_kafka_conf_set(of, "log_level", "3", errstr, sizeof(errstr)));
  CHECK(!rd_kafka_conf_set(of, "share.acknowledgement.mode", mode, errstr, sizeof(errstr)));
  rd_kafka_share_t *share = rd_kafka_share_consumer_new(of, errstr, sizeof(errstr));
  check(__LINE__, errstr, share != NULL);
  return share;
}

static rd_kafka_resp_err_t subscribe(rd_kafka_share_t *share, const char *name) {
  rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
  if (name != NULL)
    rd_kafka_topic_partition_list_add(topics, name, RD_KAFKA_PARTITION_UA);
  rd_kafka_resp_err_t code = rd_kafka_share_subscribe(share, topics);
  rd_kafka_topic_partition_list_destroy(topics);
  return code;
}

static rd_kafka_share_t *member(const char *mode) {
  rd_kafka_share_t *share = consumer(mode);
  CHECK(!subscribe(share, topic));
  return share;
}

/* Polls until a batch comes. */
static rd_kafka_messages_t *batch(rd_kafka_share_t *share) {
  time_t end = time(NULL) + PATIENCE_S;
  while (time(NULL) < end) {
    rd_kafka_messages_t *messages = NULL;
    rd_kafka_error_t *error       = rd_kafka_share_poll(share, 500, &messages);
    if (error != NULL)
      check(__LINE__, rd_kafka_error_string(error), 0);
    if (messages != NULL)
      return messages;
  }
  check(__LINE__, "no batch came", 0);
  return NULL;
}

static rd_kafka_messages_t *shown(rd_kafka_messages_t *messages) {
  printf("batch:");
  for (size_t i = 0; i < rd_kafka_messages_count(messages); i++) {
    rd_kafka_message_t *message = rd_kafka_messages_get(messages, i);
    CHECK(!message->err && !strcmp(rd_kafka_topic_name(message->rkt), topic));
    printf(" %lld=%.*s(%d)", (long long)message->offset, (int)message->len, (const char *)message->payload,
           rd_kafka_message_delivery_count(message));
  }
  printf("\n");
  return messages;
}

static void acknowledge_all(rd_kafka_share_t *share, rd_kafka_messages_t *messages,
                            rd_kafka_share_AcknowledgeType_t type) {
  for (size_t i = 0; i < rd_kafka_messages_count(messages); i++)
    CHECK(!rd_kafka_share_acknowledge_type(share, rd_kafka_messages_get(messages, i), type));
}

static void commit(rd_kafka_share_t *share) {
  rd_kafka_topic_partition_list_t *results = NULL;
  result("commit_sync", rd_kafka_share_commit_sync(share, PATIENCE_S * 1000, &results));
  for (int i = 0; results != NULL && i < results->cnt; i++)
    printf("  partition %d: %s\n", results->elems[i].partition, rd_kafka_err2name(results->elems[i].err));
  if (results != NULL)
    rd_kafka_topic_partition_list_destroy(results);
}

static int reported;

static void on_result(rd_kafka_share_t *share, rd_kafka_share_partition_offsets_list_t *partitions,
                      rd_kafka_resp_err_t err, void *opaque) {
  CHECK(opaque == &reported);
  rd_kafka_messages_t *messages = NULL;
  result("poll inside the callback", rd_kafka_share_poll(share, 0, &messages));
  for (size_t i = 0; i < rd_kafka_share_partition_offsets_list_count(partitions); i++) {
    const rd_kafka_share_partition_offsets_t *offsets = rd_kafka_share_partition_offsets_list_get(partitions, i);
    printf("acknowledged %d %s:", rd_kafka_share_partition_offsets_partition(offsets)->partition,
           rd_kafka_err2name(err));
    for (size_t o = 0; o < rd_kafka_share_partition_offsets_offsets_cnt(offsets); o++) {
      printf(" %lld", (long long)rd_kafka_share_partition_offsets_offsets(offsets)[o]);
      reported++;
    }
    printf("\n");
  }
}

static void observe(rd_kafka_share_t *share) {
  result("set_cb", rd_kafka_share_set_acknowledgement_commit_cb(share, on_result, &reported));
}

/* Polls until so many offsets are reported. */
static void await_reports(rd_kafka_share_t *share, int count) {
  time_t end = time(NULL) + PATIENCE_S;
  while (reported < count) {
    CHECK(time(NULL) < end);
    rd_kafka_messages_t *messages = NULL;
    CHECK(rd_kafka_share_poll(share, 100, &messages) == NULL && messages == NULL);
  }
}

static void end(rd_kafka_share_t *share) {
  result("close", rd_kafka_share_consumer_close(share));
  printf("closed: %d\n", rd_kafka_share_consumer_closed(share));
  result("destroy", rd_kafka_share_destroy(share));
}

static void implicit(void) {
  produce(0, 5);
  rd_kafka_share_t *share = member("implicit");
  observe(share);
  rd_kafka_messages_t *messages = shown(batch(share));
  coded("acknowledge", rd_kafka_share_acknowledge(share, rd_kafka_messages_get(messages, 0)));
  rd_kafka_messages_destroy(messages);
  await_reports(share, 5);
  commit(share);
  produce(5, 3);
  rd_kafka_messages_destroy(shown(batch(share)));
  commit(share);
  /* What is not accepted is released by the close. */
  produce(8, 2);
  rd_kafka_messages_destroy(shown(batch(share)));
  end(share);
  share = member("implicit");
  rd_kafka_messages_destroy(shown(batch(share)));
  end(share);
}

static void explicit_(void) {
  produce(0, 6);
  rd_kafka_share_t *share = member("explicit");
  observe(share);
  rd_kafka_messages_t *messages = shown(batch(share)), *none = NULL;
  result("poll", rd_kafka_share_poll(share, 0, &none));
  commit(share);
  coded("accept", rd_kafka_share_acknowledge(share, rd_kafka_messages_get(messages, 0)));
  coded("release instead", rd_kafka_share_acknowledge_type(share, rd_kafka_messages_get(messages, 0),
                                                           RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_RELEASE));
  coded("reject", rd_kafka_share_acknowledge_type(share, rd_kafka_messages_get(messages, 1),
                                                  RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_REJECT));
  coded("by offset", rd_kafka_share_acknowledge_offset(share, topic, 0, 2, RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT));
  result("poll", rd_kafka_share_poll(share, 0, &none));
  commit(share);
  coded("accept what was sent", rd_kafka_share_acknowledge(share, rd_kafka_messages_get(messages, 2)));
  for (size_t i = 3; i < 6; i++)
    CHECK(!rd_kafka_share_acknowledge(share, rd_kafka_messages_get(messages, i)));
  rd_kafka_messages_destroy(messages);
  messages = shown(batch(share));
  acknowledge_all(share, messages, RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT);
  rd_kafka_messages_destroy(messages);
  await_reports(share, 7);
  end(share);
}

static void errors(void) {
  rd_kafka_messages_t *messages           = NULL;
  rd_kafka_topic_partition_list_t *topics = NULL;
  produce(0, 2);
  rd_kafka_share_t *share = consumer("explicit");
  result("poll without subscription", rd_kafka_share_poll(share, 0, &messages));
  coded("subscribe to nothing", subscribe(share, NULL));
  coded("subscribe to an empty name", subscribe(share, ""));
  coded("subscribe", subscribe(share, topic));
  coded("subscription", rd_kafka_share_subscription(share, &topics));
  CHECK(topics->cnt == 1 && !strcmp(topics->elems[0].topic, topic) && topics->elems[0].partition == -1);
  rd_kafka_topic_partition_list_destroy(topics);
  commit(share);
  result("commit_async", rd_kafka_share_commit_async(share));
  coded("NULL", rd_kafka_share_acknowledge(share, NULL));
  messages                    = batch(share);
  rd_kafka_message_t *message = rd_kafka_messages_get(messages, 0);
  static const int types[]    = {-1, 0, 4, 9};
  for (size_t i = 0; i < 4; i++)
    coded("type", rd_kafka_share_acknowledge_type(share, message, (rd_kafka_share_AcknowledgeType_t)types[i]));
  coded("partition -1", rd_kafka_share_acknowledge_offset(share, topic, -1, 0, 1));
  coded("offset -1", rd_kafka_share_acknowledge_offset(share, topic, 0, -1, 1));
  coded("other topic", rd_kafka_share_acknowledge_offset(share, "other", 0, 0, 1));
  coded("other offset", rd_kafka_share_acknowledge_offset(share, topic, 0, 99, 1));
  result("log queue", rd_kafka_share_set_log_queue(share, NULL));
  result("credentials", rd_kafka_share_sasl_set_credentials(share, NULL, "p"));
  result("background", rd_kafka_share_sasl_background_callbacks_enable(share));
  coded("token", rd_kafka_share_oauthbearer_set_token(share, "t", INT64_MAX, "me", NULL, 0, errstr, sizeof(errstr)));
  result("close_queue", rd_kafka_share_consumer_close_queue(share, NULL));
  /* The original waits for the messages when the consumer is destroyed. */
  acknowledge_all(share, messages, RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT);
  rd_kafka_messages_destroy(messages);
  messages = NULL;
  result("close", rd_kafka_share_consumer_close(share));
  result("close again", rd_kafka_share_consumer_close(share));
  result("poll", rd_kafka_share_poll(share, 0, &messages));
  coded("subscribe", subscribe(share, topic));
  coded("unsubscribe", rd_kafka_share_unsubscribe(share));
  coded("subscription", rd_kafka_share_subscription(share, &topics));
  result("commit_async", rd_kafka_share_commit_async(share));
  coded("by offset", rd_kafka_share_acknowledge_offset(share, topic, 0, 0, 1));
  result("set_cb", rd_kafka_share_set_acknowledgement_commit_cb(share, NULL, NULL));
  result("destroy", rd_kafka_share_destroy(share));
  result("destroy NULL", rd_kafka_share_destroy(NULL));
  result("close NULL", rd_kafka_share_consumer_close(NULL));
}

/* Two consumers share the records of one partition. Each record comes once. */
static void two(void) {
  rd_kafka_share_t *shares[] = {member("implicit"), member("implicit")};
  static char seen[100000];
  int got[2] = {0, 0}, produced = 0;
  time_t deadline = time(NULL) + PATIENCE_S;
  while (got[0] == 0 || got[1] == 0) {
    CHECK(time(NULL) < deadline && produced < (int)sizeof(seen));
    produce(produced, 10);
    produced += 10;
    for (int i = 0; i < 2; i++) {
      rd_kafka_messages_t *messages = NULL;
      CHECK(rd_kafka_share_poll(shares[i], 100, &messages) == NULL);
      for (size_t m = 0; messages != NULL && m < rd_kafka_messages_count(messages); m++) {
        rd_kafka_message_t *message = rd_kafka_messages_get(messages, m);
        CHECK(!seen[message->offset]++ && rd_kafka_message_delivery_count(message) == 1);
        got[i]++;
      }
      if (messages != NULL)
        rd_kafka_messages_destroy(messages);
    }
  }
  for (int i = 0; i < 2; i++)
    end(shares[i]);
}

static void *poll_slowly(void *share) {
  for (;;) {
    rd_kafka_messages_t *messages = NULL;
    rd_kafka_error_t *error       = rd_kafka_share_poll(share, 3000, &messages);
    if (error == NULL || rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR__CONFLICT)
      return error;
    /* The first thread was inside a function. */
    rd_kafka_error_destroy(error);
  }
}

/* A second thread is refused while the first one polls. */
static void threads(void) {
  rd_kafka_share_t *share = member("implicit");
  pthread_t polling;
  CHECK(!pthread_create(&polling, NULL, poll_slowly, share));
  rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
  for (time_t deadline = time(NULL) + PATIENCE_S; code == RD_KAFKA_RESP_ERR_NO_ERROR && time(NULL) < deadline;) {
    rd_kafka_topic_partition_list_t *topics = NULL;
    code                                    = rd_kafka_share_subscription(share, &topics);
    if (topics != NULL)
      rd_kafka_topic_partition_list_destroy(topics);
  }
  coded("subscription meanwhile", code);
  result("close meanwhile", rd_kafka_share_consumer_close(share));
  void *error = NULL;
  CHECK(!pthread_join(polling, &error) && error == NULL);
  end(share);
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  bootstrap = argv[2];
  topic     = argv[3];
  static const struct {
    const char *name;
    void (*tell)(void);
  } stories[] = {{"implicit", implicit}, {"explicit", explicit_}, {"errors", errors}, {"two", two}, {"threads", threads}};
  for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
    if (strcmp(stories[i].name, argv[1]) == 0) {
      stories[i].tell();
      return 0;
    }
  }
  CHECK(!"a known story");
  return 1;
}
