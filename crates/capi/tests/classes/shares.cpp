/*
 * Share consumers that are deleted during one of their calls: in its callback, and by another thread. C destroys no share consumer that
 * is in use, so it must end with the call. The program fails if a client is left.
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "rdkafkacpp.h"

#include "ottla.h"
#include "rdkafka.h"

using RdKafka::ShareConsumer;

static std::string errstr, servers;

static void expect(bool is_so, const char *what) {
  if (!is_so) {
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
  }
}

/* Polls once, and returns true if records came. */
static bool poll_once(ShareConsumer *consumer, int timeout_ms) {
  RdKafka::MessageBatch *batch = NULL;
  RdKafka::Error *error        = consumer->poll(timeout_ms, batch);
  expect(error == NULL, "a poll without an error");
  bool has_records = batch != NULL;
  delete batch;
  return has_records;
}

static ShareConsumer *create(const char *group, RdKafka::EventCb *events) {
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", servers, errstr);
  conf->set("group.id", group, errstr);
  if (events != NULL) {
    conf->set("statistics.interval.ms", "10", errstr);
    conf->set("event_cb", events, errstr);
  }
  ShareConsumer *consumer = ShareConsumer::create(conf, errstr);
  expect(consumer != NULL, errstr.c_str());
  delete conf;
  expect(consumer->subscribe(std::vector<std::string>(1, "orders")) == RdKafka::ERR_NO_ERROR, "the subscription");
  return consumer;
}

/* Deletes its consumer when the first result comes. */
class Deleting : public RdKafka::AcknowledgementCommitCb {
 public:
  Deleting() : consumer(NULL) {
  }

  void acknowledgement_commit_cb(const RdKafka::TopicPartition &, const std::vector<int64_t> &, RdKafka::ErrorCode err) {
    /* The end of the consumer may bring further results. */
    if (consumer == NULL)
      return;
    expect(err == RdKafka::ERR_NO_ERROR, "the records are acknowledged");
    ShareConsumer *own = consumer;
    consumer           = NULL;
    delete own;
  }

  ShareConsumer *consumer;
};

static void deletion_in_the_callback() {
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", servers, errstr);
  RdKafka::Producer *producer = RdKafka::Producer::create(conf, errstr);
  expect(producer != NULL, errstr.c_str());
  delete conf;

  Deleting deleting;
  deleting.consumer = create("billing", NULL);
  expect(deleting.consumer->set_acknowledgement_commit_cb(&deleting) == NULL, "the callback is set");
  /* The group begins at the end of the partition. */
  do {
    char value[] = "value";
    expect(producer->produce("orders", 0, RdKafka::Producer::RK_MSG_COPY, value, sizeof(value) - 1, NULL, 0, 0, NULL) ==
               RdKafka::ERR_NO_ERROR,
           "the record is taken");
    expect(producer->flush(60000) == RdKafka::ERR_NO_ERROR, "the record is written");
  } while (!poll_once(deleting.consumer, 200));
  /* The next poll accepts the records. */
  while (deleting.consumer != NULL)
    poll_once(deleting.consumer, 200);
  delete producer;
}

/* Keeps the first poll with statistics until its consumer is deleted, and ends that poll. */
class Waiting : public RdKafka::EventCb {
 public:
  Waiting() : is_inside(false), is_deleted(false) {
  }

  void event_cb(RdKafka::Event &event) {
    if (event.type() != RdKafka::Event::EVENT_STATS)
      return;
    is_inside = true;
    while (!is_deleted)
      usleep(1000);
    rd_kafka_yield(NULL);
  }

  std::atomic<bool> is_inside, is_deleted;
};

static void deletion_by_another_thread() {
  Waiting waiting;
  ShareConsumer *consumer = create("shipping", &waiting);
  std::thread polling([consumer]() { poll_once(consumer, 60000); });
  while (!waiting.is_inside)
    usleep(1000);
  delete consumer;
  waiting.is_deleted = true;
  polling.join();
}

int main() {
  /* A call that does not return ends the program. */
  alarm(300);
  char why[512];
  ottla_broker_t *broker = ottla_broker_start("topics=orders:1", why, sizeof(why));
  expect(broker != NULL, why);
  char *address = ottla_broker_bootstrap_servers(broker);
  servers       = address;
  rd_kafka_mem_free(NULL, address);

  deletion_in_the_callback();
  expect(RdKafka::wait_destroyed(60000) == 0, "the consumer of the callback has ended");
  deletion_by_another_thread();
  expect(RdKafka::wait_destroyed(60000) == 0, "the consumer of the other thread has ended");
  ottla_broker_destroy(broker);
  return 0;
}
