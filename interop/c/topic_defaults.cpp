/*
 * A topic that is created without a Conf of its own, and a partitioner's key of a message that has none.
 */
#include <cstdlib>
#include <iostream>
#include <string>

#include <librdkafka/rdkafkacpp.h>

class Reports : public RdKafka::DeliveryReportCb {
 public:
  void dr_cb(RdKafka::Message &message) {
    std::cout << "report: " << message.errstr() << "\n";
  }
};

class Partitioner : public RdKafka::PartitionerCb {
 public:
  int32_t partitioner_cb(const RdKafka::Topic *, const std::string *key, int32_t, void *) {
    std::cout << "key: " << (key == NULL ? "none" : key->empty() ? "empty" : *key) << "\n";
    return 0;
  }
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
  std::cout << "produced: "
            << RdKafka::err2str(producer->produce(topic, RdKafka::Topic::PARTITION_UA, RdKafka::Producer::RK_MSG_COPY, value,
                                                  sizeof(value) - 1, key, NULL))
            << "\n";
}

int main() {
  std::string errstr, key = "anna";
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", "127.0.0.1:1", errstr);
  conf->set("message.timeout.ms", "1000", errstr);
  RdKafka::Producer *alone = producer(conf);
  RdKafka::Topic *defaults = RdKafka::Topic::create(alone, "orders", NULL, errstr);
  produce(alone, defaults, &key);
  std::cout << "flush: " << RdKafka::err2str(alone->flush(30000)) << "\n";
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
  mocked->flush(30000);
  produce(mocked, topic, NULL);
  std::cout << "flush: " << RdKafka::err2str(mocked->flush(30000)) << "\n";
  delete topic;
  delete mocked;
  return 0;
}
