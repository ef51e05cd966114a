/* The introduction's first example in C++: properties, their errors, and the creation of a client. */
#include <iostream>

#include <librdkafka/rdkafkacpp.h>

static void set(RdKafka::Conf *conf, const std::string &name, const std::string &value) {
  std::string errstr;
  RdKafka::Conf::ConfResult res = conf->set(name, value, errstr);
  std::cout << name << "=" << value << ": " << res << ", "
            << (res == RdKafka::Conf::CONF_OK                  ? "set"
                : errstr.find(name) != std::string::npos ? "refused by name"
                                                               : "refused")
            << "\n";
}

struct Silent : RdKafka::EventCb {
  void event_cb(RdKafka::Event &) {
  }
};

int main(int argc, char **argv) {
  std::string value, errstr;
  Silent silent;
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  RdKafka::Conf *topic_conf = RdKafka::Conf::create(RdKafka::Conf::CONF_TOPIC);
  set(conf, "compression.codec", "snappy");
  set(conf, "batch.num.messages", "100");
  set(conf, "compression.codec", "shrink");
  set(conf, "no.such.property", "1");
  set(topic_conf, "request.required.acks", "1");
  set(conf, "bootstrap.servers", argv[argc - 1]);
  std::cout << "event_cb: " << conf->set("event_cb", &silent, errstr) << "\n";
  std::cout << "event_cb under another name: " << conf->set("dr_cb", &silent, errstr) << "\n";
  std::cout << "default_topic_conf: " << conf->set("default_topic_conf", topic_conf, errstr) << "\n";
  std::cout << "get: " << conf->get("compression.codec", value) << " " << value << "\n";
  RdKafka::EventCb *found = NULL;
  std::cout << "get event_cb: " << conf->get(found) << " " << (found == &silent) << "\n";
  std::list<std::string> *dump = conf->dump();
  std::cout << "dump in pairs: " << (dump->size() > 200 && dump->size() % 2 == 0) << "\n";
  delete dump;

  RdKafka::Producer *producer = RdKafka::Producer::create(conf, errstr);
  if (producer == NULL) {
    std::cout << "no client: " << errstr << "\n";
    return 1;
  }
  std::cout << "named: " << (producer->name().find("rdkafka#producer-") == 0) << "\n";
  RdKafka::Metadata *metadata = NULL;
  std::cout << "metadata: " << producer->metadata(true, NULL, &metadata, 10000) << "\n";
  std::cout << "brokers known: " << (metadata != NULL && !metadata->brokers()->empty()) << "\n";
  delete metadata;
  std::cout << "cluster known: " << !producer->clusterid(10000).empty() << "\n";
  std::string fatal;
  std::cout << "fatal: " << producer->fatal_error(fatal) << fatal << "\n";
  RdKafka::KafkaConsumer *no_group = RdKafka::KafkaConsumer::create(conf, errstr);
  std::cout << "a consumer without a group: " << (no_group == NULL) << "\n";
  delete producer;
  delete topic_conf;
  delete conf;
  return 0;
}
