/* The introduction's consumer in C++: one partition, read one by one, by a callback and from a queue. */
#include <iostream>

#include <librdkafka/rdkafkacpp.h>

static void show(const std::string &how, const RdKafka::Message &message) {
  std::cout << how << ": " << message.topic_name() << " " << message.partition() << " offset " << message.offset()
            << " key " << (message.key() ? *message.key() : "") << " payload "
            << std::string(static_cast<const char *>(message.payload()), message.len()) << " topic known "
            << (message.topic() != NULL) << "\n";
}

struct Handed : RdKafka::ConsumeCb {
  int count;

  Handed() : count(0) {
  }

  void consume_cb(RdKafka::Message &message, void *opaque) {
    if (message.err() == RdKafka::ERR_NO_ERROR) {
      show(static_cast<const char *>(opaque), message);
      count++;
    }
  }
};

static void fill(const RdKafka::Conf *conf, const std::string &name) {
  std::string errstr;
  RdKafka::Producer *producer = RdKafka::Producer::create(conf, errstr);
  for (int n = 0; n < 6; n++) {
    char text = static_cast<char>('0' + n);
    producer->produce(name, 0, RdKafka::Producer::RK_MSG_COPY, &text, 1, &text, 1, 0, NULL);
  }
  std::cout << "filled: " << producer->flush(30000) << "\n";
  delete producer;
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  std::string errstr, name = argv[1];
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", argv[2], errstr);
  fill(conf, name);
  RdKafka::Consumer *consumer = RdKafka::Consumer::create(conf, errstr);
  RdKafka::Topic *topic       = RdKafka::Topic::create(consumer, name, NULL, errstr);
  std::cout << "start: " << consumer->start(topic, 0, RdKafka::Topic::OFFSET_BEGINNING) << "\n";
  for (int n = 0; n < 2; n++) {
    RdKafka::Message *message = consumer->consume(topic, 0, 30000);
    show("one", *message);
    delete message;
  }
  Handed handed;
  char how[] = "callback";
  while (handed.count < 4)
    if (consumer->consume_callback(topic, 0, 1000, &handed, how) < 0)
      return 1;
  RdKafka::Message *none = consumer->consume(topic, 0, 100);
  std::cout << "nothing more: " << none->errstr() << "\n";
  delete none;
  std::cout << "stop: " << consumer->stop(topic, 0) << "\n";

  RdKafka::Queue *queue = RdKafka::Queue::create(consumer);
  std::cout << "start: " << consumer->start(topic, 0, RdKafka::Consumer::OffsetTail(1), queue) << "\n";
  RdKafka::Message *tail = consumer->consume(queue, 30000);
  show("the last", *tail);
  delete tail;
  none = consumer->consume(queue, 100);
  std::cout << "nothing in the queue: " << none->err() << " " << none->errstr() << "\n";
  delete none;
  std::cout << "stop: " << consumer->stop(topic, 0) << "\n";
  delete queue;
  delete topic;
  delete consumer;
  delete conf;
  return 0;
}
