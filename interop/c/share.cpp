/*
 * A share consumer by the C++ classes: `share BOOTSTRAP TOPIC`. The group has the topic's name and begins at its beginning. Stops
 * at the first wrong result.
 */
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string>
#include <vector>

#include <librdkafka/rdkafkacpp.h>

/* Only a defect exhausts it. */
static const int PATIENCE_S = 60;

static void check(int line, const std::string &what, bool holds) {
  if (holds)
    return;
  printf("line %d: %s\n", line, what.c_str());
  exit(1);
}
#define CHECK(holds) check(__LINE__, #holds, holds)

/* The call succeeded. */
static void ok(int line, RdKafka::Error *error) {
  if (error != NULL)
    check(line, error->str(), false);
}
#define OK(call) ok(__LINE__, call)

/* The call failed with this code. */
static void fails(int line, RdKafka::Error *error, RdKafka::ErrorCode code) {
  check(line, "an error", error != NULL && error->code() == code);
  delete error;
}
#define FAILS(call, code) fails(__LINE__, call, code)

class Results : public RdKafka::AcknowledgementCommitCb {
 public:
  Results() : consumer(NULL) {
  }

  void acknowledgement_commit_cb(const RdKafka::TopicPartition &partition, const std::vector<int64_t> &offsets,
                                 RdKafka::ErrorCode err) {
    CHECK(err == RdKafka::ERR_NO_ERROR && partition.partition() == 0);
    RdKafka::MessageBatch *batch = NULL;
    FAILS(consumer->poll(0, batch), RdKafka::ERR__STATE);
    acknowledged.insert(acknowledged.end(), offsets.begin(), offsets.end());
  }

  RdKafka::ShareConsumer *consumer;
  std::vector<int64_t> acknowledged;
};

class Events : public RdKafka::EventCb {
 public:
  Events() : statistics(0) {
  }

  void event_cb(RdKafka::Event &event) {
    statistics += event.type() == RdKafka::Event::EVENT_STATS;
  }

  int statistics;
};

static std::string errstr;

static RdKafka::Conf *conf(const char *bootstrap) {
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  CHECK(conf->set("bootstrap.servers", bootstrap, errstr) == RdKafka::Conf::CONF_OK);
  return conf;
}

static void produce(const char *bootstrap, const std::string &topic, int count) {
  RdKafka::Conf *of           = conf(bootstrap);
  RdKafka::Producer *producer = RdKafka::Producer::create(of, errstr);
  check(__LINE__, errstr, producer != NULL);
  for (int n = 0; n < count; n++) {
    std::ostringstream value;
    value << n;
    CHECK(producer->produce(topic, 0, RdKafka::Producer::RK_MSG_COPY, const_cast<char *>(value.str().data()),
                            value.str().size(), NULL, 0, 0, NULL, NULL) == RdKafka::ERR_NO_ERROR);
  }
  CHECK(producer->flush(PATIENCE_S * 1000) == RdKafka::ERR_NO_ERROR);
  delete producer;
  delete of;
}

static RdKafka::MessageBatch *next(RdKafka::ShareConsumer *consumer) {
  for (time_t end = time(NULL) + PATIENCE_S; time(NULL) < end;) {
    RdKafka::MessageBatch *batch = NULL;
    OK(consumer->poll(500, batch));
    if (batch != NULL)
      return batch;
  }
  check(__LINE__, "no batch came", false);
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  std::string topic = argv[2];
  produce(argv[1], topic, 4);

  Events events;
  RdKafka::Conf *of = conf(argv[1]);
  CHECK(RdKafka::ShareConsumer::create(of, errstr) == NULL && errstr.find("group.id") != std::string::npos);
  CHECK(of->set("group.id", topic, errstr) == RdKafka::Conf::CONF_OK);
  CHECK(of->set("share.acknowledgement.mode", "explicit", errstr) == RdKafka::Conf::CONF_OK);
  CHECK(of->set("statistics.interval.ms", "50", errstr) == RdKafka::Conf::CONF_OK);
  CHECK(of->set("event_cb", &events, errstr) == RdKafka::Conf::CONF_OK);
  RdKafka::ShareConsumer *consumer = RdKafka::ShareConsumer::create(of, errstr);
  check(__LINE__, errstr, consumer != NULL);
  CHECK(consumer->c_ptr() != NULL && !consumer->closed());

  RdKafka::MessageBatch *batch = NULL;
  FAILS(consumer->poll(0, batch), RdKafka::ERR__STATE);
  std::vector<std::string> topics(1, topic);
  CHECK(consumer->subscribe(topics) == RdKafka::ERR_NO_ERROR);
  topics.clear();
  CHECK(consumer->subscription(topics) == RdKafka::ERR_NO_ERROR && topics.size() == 1 && topics[0] == topic);

  Results results;
  results.consumer = consumer;
  OK(consumer->set_acknowledgement_commit_cb(&results));
  batch = next(consumer);
  CHECK(batch->size() == 4 && batch->message(4) == NULL && batch->delivery_count(4) == 0);
  for (size_t i = 0; i < 4; i++) {
    RdKafka::Message *message = batch->message(i);
    CHECK(message->err() == RdKafka::ERR_NO_ERROR && message->topic_name() == topic && message->offset() == (int64_t)i);
    CHECK(message->len() == 1 && *static_cast<char *>(message->payload()) == '0' + (char)i);
    CHECK(batch->delivery_count(i) == 1);
  }
  CHECK(consumer->acknowledge(batch->message(0), RdKafka::ShareConsumer::ACKNOWLEDGE_ACCEPT) == RdKafka::ERR_NO_ERROR);
  CHECK(consumer->acknowledge(batch->message(1), RdKafka::ShareConsumer::ACKNOWLEDGE_RELEASE) == RdKafka::ERR_NO_ERROR);
  CHECK(consumer->acknowledge(batch->message(2), RdKafka::ShareConsumer::ACKNOWLEDGE_REJECT) == RdKafka::ERR_NO_ERROR);
  CHECK(consumer->acknowledge(topic, 0, 3, RdKafka::ShareConsumer::ACKNOWLEDGE_ACCEPT) == RdKafka::ERR_NO_ERROR);
  CHECK(consumer->acknowledge(topic, 0, 9, RdKafka::ShareConsumer::ACKNOWLEDGE_ACCEPT) == RdKafka::ERR__STATE);
  CHECK(consumer->acknowledge(NULL, RdKafka::ShareConsumer::ACKNOWLEDGE_ACCEPT) == RdKafka::ERR__INVALID_ARG);
  delete batch;

  std::vector<RdKafka::TopicPartition *> partitions;
  OK(consumer->commitSync(PATIENCE_S * 1000, partitions));
  CHECK(partitions.size() == 1 && partitions[0]->topic() == topic && partitions[0]->err() == RdKafka::ERR_NO_ERROR);
  RdKafka::TopicPartition::destroy(partitions);
  CHECK(results.acknowledged.size() == 4);

  batch = next(consumer);
  CHECK(batch->size() == 1 && batch->message(0)->offset() == 1 && batch->delivery_count(0) == 2);
  CHECK(consumer->acknowledge(batch->message(0), RdKafka::ShareConsumer::ACKNOWLEDGE_ACCEPT) == RdKafka::ERR_NO_ERROR);
  OK(consumer->commitAsync());
  for (time_t end = time(NULL) + PATIENCE_S; results.acknowledged.size() < 5 || events.statistics == 0;) {
    RdKafka::MessageBatch *none = NULL;
    CHECK(time(NULL) < end);
    OK(consumer->poll(100, none));
    CHECK(none == NULL);
  }
  CHECK(consumer->unsubscribe() == RdKafka::ERR_NO_ERROR);
  OK(consumer->close());
  CHECK(consumer->closed());
  FAILS(consumer->close(), RdKafka::ERR__STATE);
  FAILS(consumer->close(NULL), RdKafka::ERR__STATE);
  delete consumer;
  /* A batch outlives its consumer. */
  CHECK(batch->message(0)->topic_name() == topic);
  delete batch;
  delete of;
  printf("done\n");
  return 0;
}
