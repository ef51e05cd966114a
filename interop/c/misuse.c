/*
 * What programs do wrong, one case after the other: `misuse TOPIC BOOTSTRAP`. Each has a result, and none ends the
 * program; a checker of memory says whether it was clean.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <librdkafka/rdkafka.h>

static const char *topic_name, *bootstrap;
static int failures;

static void expect(const char *what, int holds) {
  printf("%s: %s\n", what, holds ? "ok" : "WRONG");
  fflush(stdout);
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
  expect("a producer polls for messages", rd_kafka_consumer_poll(producer, 0) == NULL);
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
  expect("copied and freed at once", rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_FREE, large, 1, NULL, 0, NULL) == -1);
  expect("a topic without a name", rd_kafka_topic_new(rk, NULL, NULL) == NULL);
  rd_kafka_topic_destroy(topic);
  rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  rd_kafka_flush(rk, 5000);
  rd_kafka_destroy(rk);
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
  rk = client(RD_KAFKA_PRODUCER, conf);
  rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE("v", 1), RD_KAFKA_V_END);
  for (int n = 0; n < 300 && reports == 0; n++)
    rd_kafka_poll(rk, 100);
  expect("destroy inside a report", reports == 1);
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

static void after_a_fork(void) {
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
  int refused[2];
  if (pipe(refused) != 0)
    exit(1);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    /* The engine's thread stayed in the parent: nothing may wait for it. */
    rd_kafka_poll(rk, 0);
    rd_kafka_resp_err_t err = rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic_name), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE("v", 1), RD_KAFKA_V_END);
    err = err == RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_flush(rk, 500) : err;
    /* Not by the exit code, which is valgrind's: what the parent's threads held is lost in a child. */
    char answer = err != RD_KAFKA_RESP_ERR_NO_ERROR;
    _exit(write(refused[1], &answer, 1) != 1);
  }
  int status  = 0;
  char answer = 0;
  waitpid(child, &status, 0);
  close(refused[1]);
  expect("a child is refused", WIFEXITED(status) && read(refused[0], &answer, 1) == 1 && answer == 1);
  close(refused[0]);
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
  inside_callbacks();
  outliving();
  at_the_same_time();
  after_a_fork();
  expect("all clients are gone", rd_kafka_wait_destroyed(10000) == 0);
  return failures > 0;
}
