/* A group consumer in C++, which the introduction only mentions: rebalances, commits, and leaving. */
#include <iostream>

#include <librdkafka/rdkafkacpp.h>

struct Rebalances : RdKafka::RebalanceCb {
  void rebalance_cb(RdKafka::KafkaConsumer *consumer, RdKafka::ErrorCode err,
                    std::vector<RdKafka::TopicPartition *> &partitions) {
    std::cout << RdKafka::err2str(err) << ": " << partitions.size() << " partitions, " << consumer->rebalance_protocol()
              << ", lost " << consumer->assignment_lost() << "\n";
    if (err == RdKafka::ERR__ASSIGN_PARTITIONS)
      consumer->assign(partitions);
    else
      consumer->unassign();
  }
};

struct Commits : RdKafka::OffsetCommitCb {
  void offset_commit_cb(RdKafka::ErrorCode err, std::vector<RdKafka::TopicPartition *> &offsets) {
    std::cout << "callback: " << RdKafka::err2str(err) << ", " << offsets.size() << " offsets\n";
  }
};

static void fill(const RdKafka::Conf *conf, const std::string &name) {
  std::string errstr;
  RdKafka::Producer *producer = RdKafka::Producer::create(conf, errstr);
  for (int n = 0; n < 4; n++) {
    char text                 = static_cast<char>('0' + n);
    RdKafka::Headers *headers = RdKafka::Headers::create();
    headers->add("n", &text, 1);
    producer->produce(name, 0, RdKafka::Producer::RK_MSG_COPY, &text, 1, NULL, 0, 0, headers, NULL);
  }
  std::cout << "filled: " << producer->flush(30000) << "\n";
  delete producer;
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  std::string errstr, name = argv[1];
  Rebalances rebalances;
  Commits commits;
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", argv[2], errstr);
  fill(conf, name);
  conf->set("group.id", name, errstr);
  conf->set("auto.offset.reset", "earliest", errstr);
  conf->set("enable.auto.commit", "false", errstr);
  conf->set("rebalance_cb", &rebalances, errstr);
  RdKafka::KafkaConsumer *consumer = RdKafka::KafkaConsumer::create(conf, errstr);
  if (consumer == NULL) {
    std::cout << errstr << "\n";
    return 1;
  }
  std::vector<std::string> topics(1, name);
  std::cout << "subscribe: " << consumer->subscribe(topics) << "\n";
  consumer->subscription(topics);
  std::cout << "subscribed to " << topics.size() << "\n";
  for (int polls = 0, seen = 0; seen < 4 && polls < 300; polls++) {
    RdKafka::Message *message = consumer->consume(100);
    if (message->err() == RdKafka::ERR_NO_ERROR) {
      seen++;
      RdKafka::Headers *headers = message->headers();
      std::cout << message->offset() << " " << std::string(static_cast<char *>(message->payload()), message->len())
                << " n=" << (headers != NULL ? headers->get("n")[0].value_string() : "(none)") << " created "
                << (message->timestamp().type == RdKafka::MessageTimestamp::MSG_TIMESTAMP_CREATE_TIME) << "\n";
      if (seen == 2)
        std::cout << "commit: " << consumer->commitSync(message) << "\n";
    } else if (message->err() != RdKafka::ERR__TIMED_OUT) {
      std::cout << message->errstr() << "\n";
    }
    delete message;
  }
  std::vector<RdKafka::TopicPartition *> partitions;
  std::cout << "assignment: " << consumer->assignment(partitions) << " " << partitions.size() << "\n";
  std::cout << "committed: " << consumer->committed(partitions, 10000) << " " << partitions[0]->offset() << "\n";
  std::cout << "position: " << consumer->position(partitions) << " " << partitions[0]->offset() << "\n";
  std::cout << "commit: " << consumer->commitSync(partitions, &commits) << "\n";
  int64_t low = -1, high = -1;
  std::cout << "watermarks: " << consumer->query_watermark_offsets(name, 0, &low, &high, 10000) << " " << low << " "
            << high << "\n";
  // Without a timeout, the call does not wait for the seek.
  const int timeouts_ms[] = {10000, 0};
  for (int n = 0; n < 2; n++) {
    partitions[0]->set_offset(1 + n);
    std::cout << "seek: " << consumer->seek(*partitions[0], timeouts_ms[n]) << "\n";
    RdKafka::Message *again = NULL;
    for (int polls = 0; polls < 300 && (again == NULL || again->offset() != 1 + n); polls++) {
      delete again;
      again = consumer->consume(100);
    }
    std::cout << "after the seek: " << again->offset() << "\n";
    delete again;
  }
  RdKafka::ConsumerGroupMetadata *metadata = consumer->groupMetadata();
  std::cout << "a member: " << (metadata != NULL && !consumer->memberid().empty()) << "\n";
  delete metadata;
  RdKafka::TopicPartition::destroy(partitions);
  std::cout << "close: " << consumer->close() << " " << consumer->closed() << "\n";
  delete consumer;
  delete conf;
  return 0;
}
