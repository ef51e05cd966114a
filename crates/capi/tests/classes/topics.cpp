/*
 * Topics that are deleted while their client lives. The client keeps C's topic, so calls and messages must find the Topics that the
 * program still has. The program fails at the first difference.
 */
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

#include "rdkafkacpp.h"

#include "rdkafka.h"
#include "rdkafka_mock.h"

using RdKafka::Topic;

static void expect(bool is_so, const char *what) {
  if (!is_so) {
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
  }
}

/* Sends records to one partition, and remembers the topic that it was called with. */
class Fixed : public RdKafka::PartitionerCb {
 public:
  explicit Fixed(int32_t partition) : seen(NULL), partition_(partition) {
  }

  int32_t partitioner_cb(const Topic *topic, const std::string *, int32_t, void *) {
    seen = topic;
    expect(topic->name() == "orders", "the name of the topic");
    return partition_;
  }

  const Topic *seen;

 private:
  int32_t partition_;
};

class Reports : public RdKafka::DeliveryReportCb {
 public:
  Reports() : partition(-1) {
  }

  void dr_cb(RdKafka::Message &message) {
    expect(message.err() == RdKafka::ERR_NO_ERROR, "the record is written");
    partition = message.partition();
  }

  int32_t partition;
};

static std::string errstr;
static Reports reports;

static Topic *create(RdKafka::Handle *client, RdKafka::PartitionerCb *partitioner) {
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_TOPIC);
  if (partitioner != NULL)
    conf->set("partitioner_cb", partitioner, errstr);
  Topic *topic = Topic::create(client, "orders", conf, errstr);
  expect(topic != NULL, errstr.c_str());
  delete conf;
  return topic;
}

/* Sends a record with a key, and returns its partition. */
static int32_t send(RdKafka::Producer *producer, Topic *topic) {
  std::string key = "anna";
  char value[]    = "value";
  expect(producer->produce(topic, Topic::PARTITION_UA, RdKafka::Producer::RK_MSG_COPY, value, sizeof(value) - 1, &key,
                           NULL) == RdKafka::ERR_NO_ERROR,
         "the record is taken");
  expect(producer->flush(60000) == RdKafka::ERR_NO_ERROR, "all records are reported");
  return reports.partition;
}

static void partitioners(RdKafka::Producer *producer) {
  Fixed *to_first = new Fixed(0);
  Fixed to_second(1), to_third(2);
  Topic *first = create(producer, to_first);
  expect(send(producer, first) == 0 && to_first->seen == first, "the first topic's partitioner");

  Topic *second = create(producer, &to_second);
  expect(send(producer, second) == 0 && to_first->seen == first, "a known topic keeps its configuration");
  delete first;
  delete to_first;
  expect(send(producer, second) == 1 && to_second.seen == second, "the second topic's partitioner");
  delete second;

  // Without a Topic, and with one that has no partitioner, the default one.
  char value[] = "value";
  to_second.seen = NULL;
  expect(producer->produce("orders", Topic::PARTITION_UA, RdKafka::Producer::RK_MSG_COPY, value, sizeof(value) - 1,
                           "anna", 4, 0, NULL) == RdKafka::ERR_NO_ERROR,
         "the record is taken by the topic's name");
  expect(producer->flush(60000) == RdKafka::ERR_NO_ERROR, "all records are reported");
  int32_t by_default = reports.partition;
  Topic *plain       = create(producer, NULL);
  expect(send(producer, plain) == by_default && to_second.seen == NULL, "the default partitioner");
  delete plain;

  Topic *third = create(producer, &to_third);
  expect(send(producer, third) == 2 && to_third.seen == third, "the third topic's partitioner");
  delete third;
}

/* A partitioner that deletes another Topic of the same name. */
class Deleting : public RdKafka::PartitionerCb {
 public:
  Deleting() : other(NULL) {
  }

  int32_t partitioner_cb(const Topic *, const std::string *, int32_t, void *) {
    delete other;
    other = NULL;
    return 1;
  }

  Topic *other;
};

static void deletion_in_a_partitioner(RdKafka::Producer *producer) {
  Deleting deleting;
  Fixed to_first(0);
  Topic *first   = create(producer, &deleting);
  deleting.other = create(producer, &to_first);
  expect(send(producer, first) == 1 && deleting.other == NULL, "the other topic is deleted");
  delete first;
}

/* Returns the topic of the next message. */
static Topic *next(RdKafka::Consumer *consumer, RdKafka::Queue *queue) {
  RdKafka::Message *message = consumer->consume(queue, 60000);
  expect(message->err() == RdKafka::ERR_NO_ERROR, message->errstr().c_str());
  expect(message->topic_name() == "orders", "the name of the message's topic");
  Topic *topic = message->topic();
  delete message;
  return topic;
}

static void messages(const char *servers) {
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", servers, errstr);
  RdKafka::Consumer *consumer = RdKafka::Consumer::create(conf, errstr);
  expect(consumer != NULL, errstr.c_str());
  delete conf;
  RdKafka::Queue *queue = RdKafka::Queue::create(consumer);
  Topic *first = create(consumer, NULL), *second = create(consumer, NULL);
  expect(consumer->start(first, 0, Topic::OFFSET_BEGINNING, queue) == RdKafka::ERR_NO_ERROR, "started");
  expect(next(consumer, queue) == first, "the message has the first topic");
  delete first;
  expect(next(consumer, queue) == second, "the message has the second topic");
  expect(consumer->stop(second, 0) == RdKafka::ERR_NO_ERROR, "stopped");
  delete queue;
  delete consumer;
  // A Topic may outlive its client.
  delete second;
}

/* Consumes a message of a topic without a Topic, whose opaque is the program's own. */
static void own_opaque(const char *servers) {
  void *own                 = reinterpret_cast<void *>(0x10);
  RdKafka::Conf *topic_conf = RdKafka::Conf::create(RdKafka::Conf::CONF_TOPIC);
  rd_kafka_topic_conf_set_opaque(topic_conf->c_ptr_topic(), own);
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("bootstrap.servers", servers, errstr);
  conf->set("group.id", "readers", errstr);
  conf->set("enable.auto.commit", "false", errstr);
  expect(conf->set("default_topic_conf", topic_conf, errstr) == RdKafka::Conf::CONF_OK, "the configuration of topics");
  RdKafka::KafkaConsumer *consumer = RdKafka::KafkaConsumer::create(conf, errstr);
  expect(consumer != NULL, errstr.c_str());
  delete topic_conf;
  delete conf;

  std::vector<RdKafka::TopicPartition *> partitions;
  partitions.push_back(RdKafka::TopicPartition::create("orders", 0, 0));
  expect(consumer->assign(partitions) == RdKafka::ERR_NO_ERROR, "the partition is assigned");
  RdKafka::Message *message = consumer->consume(60000);
  expect(message->err() == RdKafka::ERR_NO_ERROR, message->errstr().c_str());
  expect(rd_kafka_topic_opaque(message->c_ptr()->rkt) == own, "the opaque of the message's topic");
  expect(message->topic() == NULL, "the message has no Topic");
  expect(message->topic_name() == "orders", "the name of the message's topic");
  delete message;
  RdKafka::TopicPartition::destroy(partitions);
  consumer->close();
  delete consumer;
}

int main() {
  /* A call that does not return ends the program. */
  alarm(300);
  RdKafka::Conf *conf = RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL);
  conf->set("test.mock.num.brokers", "1", errstr);
  conf->set("dr_cb", &reports, errstr);
  RdKafka::Producer *producer = RdKafka::Producer::create(conf, errstr);
  expect(producer != NULL, errstr.c_str());
  delete conf;
  partitioners(producer);
  deletion_in_a_partitioner(producer);
  const char *servers = rd_kafka_mock_cluster_bootstraps(rd_kafka_handle_mock_cluster(producer->c_ptr()));
  messages(servers);
  own_opaque(servers);
  delete producer;
  return 0;
}
