/* node-rdkafka casts a Conf to a class of its own with two more fields, and never creates such an object. */
#include <cstring>
#include <iostream>

#include <librdkafka/rdkafkacpp.h>

class Extended : public RdKafka::Conf {
 public:
  void *first;
  void *second;
};

struct Rebalance : RdKafka::RebalanceCb {
  void rebalance_cb(RdKafka::KafkaConsumer *, RdKafka::ErrorCode, std::vector<RdKafka::TopicPartition *> &) {
  }
};

int main() {
  std::string value, errstr;
  Rebalance rebalance;
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  Extended *extended  = static_cast<Extended *>(conf);
  std::cout << "fields at first: " << (extended->first == NULL) << (extended->second == NULL) << "\n";
  extended->first = &rebalance;
  std::cout << "group.id: " << extended->set("group.id", "g", errstr) << errstr << "\n";
  std::cout << "rebalance_cb: " << extended->set("rebalance_cb", &rebalance, errstr) << errstr << "\n";
  std::cout << "get: " << extended->get("group.id", value) << value << "\n";
  RdKafka::RebalanceCb *found = NULL;
  std::cout << "get rebalance_cb: " << extended->get(found) << (found == &rebalance) << "\n";
  std::cout << "C objects: " << (extended->c_ptr_global() != NULL) << (extended->c_ptr_topic() == NULL) << "\n";
  RdKafka::KafkaConsumer *consumer = RdKafka::KafkaConsumer::create(conf, errstr);
  std::cout << "consumer: " << (consumer != NULL) << errstr << "\n";
  if (consumer != NULL) {
    consumer->poll(10);
    std::cout << "close: " << consumer->close() << "\n";
    delete consumer;
  }
  extended->first = NULL;
  delete conf;
  return 0;
}
