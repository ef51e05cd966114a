/*
 * A topic that is created without a Conf of its own, and a partitioner's key of a message that has none.
 */
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>

#include <librdkafka/rdkafkacpp.h>

class Reports : public RdKafka::DeliveryReportCb {
 public:
  void dr_cb(RdKafka::Message &message) {
    std::cout << "report: " << message.errstr() << "\n";
  }
};

/* Keeps the last key: produce() calls it if the partitions are known by then, else a thread of the library does. */
class Partitioner : public RdKafka::PartitionerCb {
 public:
  int32_t partitioner_cb(const RdKafka::Topic *, const std::string *key, int32_t, void *) {
    std::lock_guard<std::mutex> guard(lock_);
    last_ = key == NULL ? "none" : key->empty() ? "empty" : *key;
    return 0;
  }

  std::string last() {
    std::lock_guard<std::mutex> guard(lock_);
    return last_;
  }

 private:
  std::mutex lock_;
  std::string last_;
};

static Reports reports;

static RdKafka::Producer *producer(RdKafka::Conf *conf) {
  std::string errstr;
  conf->set("dr_cb", &reports, errstr);
  RdKafka::Producer *made = RdKafka::Producer::create(conf, errstr);
  delete conf;
  if (made == NULL) {
    std::cerr << errstr << "\n";
    exit(1);
  }
  return made;
}

static void produce(RdKafka::Producer *producer, RdKafka::Topic *topic, const std::string *key) {
  char value[] = "value";
  RdKafka::ErrorCode code = producer->produce(topic, RdKafka::Topic::PARTITION_UA, RdKafka::Producer::RK_MSG_COPY, value,
                                              sizeof(value) - 1, key, NULL);
  std::cout << "produced: " << RdKafka::err2str(code) << "\n";
}

static void flush(RdKafka::Producer *producer) {
  RdKafka::ErrorCode flushed = producer->flush(30000);
  std::cout << "flush: " << RdKafka::err2str(flushed) << "\n";
}

int main() {
  std::string errstr, key = "anna";
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", "127.0.0.1:1", errstr);
  conf->set("message.timeout.ms", "1000", errstr);
  RdKafka::Producer *alone = producer(conf);
  RdKafka::Topic *defaults = RdKafka::Topic::create(alone, "orders", NULL, errstr);
  produce(alone, defaults, &key);
  flush(alone);
  delete defaults;
  delete alone;

  Partitioner partitioner;
  conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("test.mock.num.brokers", "1", errstr);
  conf->set("sticky.partitioning.linger.ms", "0", errstr);
  RdKafka::Conf *topic_conf = RdKafka::Conf::create(RdKafka::Conf::CONF_TOPIC);
  topic_conf->set("partitioner_cb", &partitioner, errstr);
  RdKafka::Producer *mocked = producer(conf);
  RdKafka::Topic *topic     = RdKafka::Topic::create(mocked, "orders", topic_conf, errstr);
  delete topic_conf;
  produce(mocked, topic, &key);
  flush(mocked);
  std::cout << "key: " << partitioner.last() << "\n";
  produce(mocked, topic, NULL);
  flush(mocked);
  std::cout << "key: " << partitioner.last() << "\n";
  delete topic;
  delete mocked;
  return 0;
}
