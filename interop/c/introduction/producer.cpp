/* The introduction's producer in C++: payloads, headers, delivery reports, a partitioner, a full queue. */
#include <cstring>
#include <iostream>

#include <librdkafka/rdkafkacpp.h>

struct Reports : RdKafka::DeliveryReportCb {
  int count;

  Reports() : count(0) {
  }

  void dr_cb(RdKafka::Message &message) {
    count++;
    std::cout << "report " << count << ": " << RdKafka::err2str(message.err()) << ", " << message.topic_name() << " "
              << message.partition() << ", key " << (message.key() ? *message.key() : "(none)") << ", length "
              << message.len() << ", opaque " << static_cast<const char *>(message.msg_opaque()) << ", persisted "
              << (message.status() == RdKafka::Message::MSG_STATUS_PERSISTED) << ", topic object "
              << (message.topic() != NULL) << "\n";
    RdKafka::Headers *headers = message.headers();
    if (headers != NULL)
      std::cout << "  " << headers->size() << " headers, last n=" << headers->get_last("n").value_string() << "\n";
  }
};

struct Events : RdKafka::EventCb {
  int errors;

  Events() : errors(0) {
  }

  void event_cb(RdKafka::Event &event) {
    if (event.type() == RdKafka::Event::EVENT_ERROR)
      errors++;
  }
};

struct LastPartition : RdKafka::PartitionerCb {
  int32_t partitioner_cb(const RdKafka::Topic *, const std::string *key, int32_t partition_cnt, void *) {
    return key != NULL && *key == "first" ? 0 : partition_cnt - 1;
  }
};

static void say(const std::string &what, RdKafka::ErrorCode err) {
  std::cout << what << ": " << RdKafka::err2str(err) << "\n";
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  std::string errstr, name = argv[1];
  Reports reports;
  Events events;
  LastPartition last;
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", argv[2], errstr);
  conf->set("dr_cb", &reports, errstr);
  conf->set("event_cb", &events, errstr);
  RdKafka::Conf *topic_conf = RdKafka::Conf::create(RdKafka::Conf::CONF_TOPIC);
  topic_conf->set("partitioner_cb", &last, errstr);
  RdKafka::Producer *producer = RdKafka::Producer::create(conf, errstr);
  RdKafka::Topic *topic       = RdKafka::Topic::create(producer, name, topic_conf, errstr);
  if (producer == NULL || topic == NULL) {
    std::cout << errstr << "\n";
    return 1;
  }
  char opaque[] = "ours", copied[] = "copied";
  std::string key = "first";
  say("by topic", producer->produce(topic, RdKafka::Topic::PARTITION_UA, RdKafka::Producer::RK_MSG_COPY, copied,
                                    strlen(copied), &key, opaque));
  say("flush", producer->flush(30000));
  std::vector<char> bytes(3, 'b');
  say("by vectors", producer->produce(topic, RdKafka::Topic::PARTITION_UA, &bytes, &bytes, opaque));
  say("flush", producer->flush(30000));
  RdKafka::Headers *headers = RdKafka::Headers::create();
  headers->add("n", "1");
  headers->add("n", std::string("2"));
  say("by name", producer->produce(name, 0, RdKafka::Producer::RK_MSG_COPY, copied, 3, "k", 1, 0, headers, opaque));
  say("flush", producer->flush(30000));
  char *given = strdup("freed by the library");
  say("given", producer->produce(topic, 0, RdKafka::Producer::RK_MSG_FREE, given, 5, NULL, 0, opaque));
  while (producer->outq_len() > 0)
    producer->poll(100);
  say("no such partition", producer->produce(topic, 4711, RdKafka::Producer::RK_MSG_COPY, copied, 1, NULL, 0, opaque));
  std::cout << "reports " << reports.count << ", topic " << topic->name() << "\n";
  delete topic;
  delete producer;

  conf->set("bootstrap.servers", "127.0.0.1:1", errstr);
  conf->set("queue.buffering.max.messages", "2", errstr);
  conf->set("message.timeout.ms", "300", errstr);
  producer = RdKafka::Producer::create(conf, errstr);
  for (int n = 0; n < 4; n++)
    say("queued", producer->produce("nowhere", RdKafka::Topic::PARTITION_UA, RdKafka::Producer::RK_MSG_COPY, copied, 1,
                                    NULL, 0, 0, opaque));
  say("flush", producer->flush(30000));
  for (int n = 0; n < 100 && events.errors == 0; n++)
    producer->poll(100);
  std::cout << "errors were reported: " << (events.errors > 0) << "\n";
  delete producer;
  delete topic_conf;
  delete conf;
  std::cout << "all gone: " << RdKafka::wait_destroyed(10000) << "\n";
  return 0;
}
