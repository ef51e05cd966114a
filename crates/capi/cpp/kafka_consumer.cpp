/* The group consumer. */
#include "internal.h"

namespace RdKafka {

ConsumerGroupMetadata::~ConsumerGroupMetadata() {
}

namespace hidden {

namespace {

class KafkaConsumerImpl : public KafkaConsumer, public HandleImpl {
 public:
  KafkaConsumerImpl() {
    // Closing is the application's task: the destructor must not wait for a consumer that is still open.
    destroy_flags_ = RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE;
  }

  bool open(const Conf *conf, std::string &errstr) {
    std::string group;
    if (conf == NULL || conf->get("group.id", group) != Conf::CONF_OK || group.empty()) {
      errstr = "\"group.id\" must be configured";
      return false;
    }
    if (!HandleImpl::open(RD_KAFKA_CONSUMER, conf, errstr))
      return false;
    // One queue for messages and events: consume() serves both.
    rd_kafka_poll_set_consumer(rk_);
    return true;
  }

  ErrorCode assignment(std::vector<TopicPartition *> &partitions) {
    rd_kafka_topic_partition_list_t *list = NULL;
    rd_kafka_resp_err_t err               = rd_kafka_assignment(rk_, &list);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
      return code(err);
    PartitionList owned(list);
    partitions.clear();
    PartitionList::append(list, partitions);
    return ERR_NO_ERROR;
  }

  ErrorCode subscription(std::vector<std::string> &topics) {
    rd_kafka_topic_partition_list_t *list = NULL;
    rd_kafka_resp_err_t err               = rd_kafka_subscription(rk_, &list);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
      return code(err);
    PartitionList owned(list);
    topics.clear();
    for (int i = 0; i < list->cnt; i++)
      topics.push_back(list->elems[i].topic);
    return ERR_NO_ERROR;
  }

  ErrorCode subscribe(const std::vector<std::string> &topics) {
    PartitionList list(rd_kafka_topic_partition_list_new(static_cast<int>(topics.size())));
    for (size_t i = 0; i < topics.size(); i++)
      rd_kafka_topic_partition_list_add(list.get(), topics[i].c_str(), RD_KAFKA_PARTITION_UA);
    return code(rd_kafka_subscribe(rk_, list.get()));
  }

  ErrorCode unsubscribe() {
    return code(rd_kafka_unsubscribe(rk_));
  }

  ErrorCode assign(const std::vector<TopicPartition *> &partitions) {
    PartitionList list(partitions);
    return code(rd_kafka_assign(rk_, list.get()));
  }

  ErrorCode unassign() {
    return code(rd_kafka_assign(rk_, NULL));
  }

  Message *consume(int timeout_ms) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(rk_, timeout_ms);
    return message != NULL ? MessageImpl::of_consume(NULL, message)
                           : new MessageImpl(RD_KAFKA_CONSUMER, NULL, ERR__TIMED_OUT);
  }

  ErrorCode commitSync() {
    return code(rd_kafka_commit(rk_, NULL, 0));
  }

  ErrorCode commitAsync() {
    return code(rd_kafka_commit(rk_, NULL, 1));
  }

  ErrorCode commitSync(Message *message) {
    return code(rd_kafka_commit_message(rk_, message->c_ptr(), 0));
  }

  ErrorCode commitAsync(Message *message) {
    return code(rd_kafka_commit_message(rk_, message->c_ptr(), 1));
  }

  ErrorCode commitSync(std::vector<TopicPartition *> &offsets) {
    PartitionList list(offsets);
    rd_kafka_resp_err_t err = rd_kafka_commit(rk_, list.get(), 0);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
      list.update(offsets);
    return code(err);
  }

  ErrorCode commitAsync(const std::vector<TopicPartition *> &offsets) {
    PartitionList list(offsets);
    return code(rd_kafka_commit(rk_, list.get(), 1));
  }

  ErrorCode commitSync(OffsetCommitCb *offset_commit_cb) {
    return code(rd_kafka_commit_queue(rk_, NULL, NULL, offsets_committed, offset_commit_cb));
  }

  ErrorCode commitSync(std::vector<TopicPartition *> &offsets, OffsetCommitCb *offset_commit_cb) {
    PartitionList list(offsets);
    return code(rd_kafka_commit_queue(rk_, list.get(), NULL, offsets_committed, offset_commit_cb));
  }

  ErrorCode committed(std::vector<TopicPartition *> &partitions, int timeout_ms) {
    PartitionList list(partitions);
    rd_kafka_resp_err_t err = rd_kafka_committed(rk_, list.get(), timeout_ms);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
      list.update(partitions);
    return code(err);
  }

  ErrorCode position(std::vector<TopicPartition *> &partitions) {
    PartitionList list(partitions);
    rd_kafka_resp_err_t err = rd_kafka_position(rk_, list.get());
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
      list.update(partitions);
    return code(err);
  }

  ErrorCode close() {
    return code(rd_kafka_consumer_close(rk_));
  }

  ErrorCode seek(const TopicPartition &partition, int timeout_ms) {
    // The partition is named by its topic's name, because a topic object need not exist.
    PartitionList list(rd_kafka_topic_partition_list_new(1));
    static_cast<const TopicPartitionImpl &>(partition).add_to(list.get());
    rd_kafka_error_t *error = rd_kafka_seek_partitions(rk_, list.get(), timeout_ms);
    if (error == NULL) {
      rd_kafka_resp_err_t err = list.get()->elems[0].err;
      // Without a timeout, a seek that has begun has succeeded.
      return code(timeout_ms == 0 && err == RD_KAFKA_RESP_ERR__IN_PROGRESS ? RD_KAFKA_RESP_ERR_NO_ERROR : err);
    }
    ErrorCode err = code(rd_kafka_error_code(error));
    rd_kafka_error_destroy(error);
    return err;
  }

  ErrorCode offsets_store(std::vector<TopicPartition *> &offsets) {
    PartitionList list(offsets);
    rd_kafka_resp_err_t err = rd_kafka_offsets_store(rk_, list.get());
    list.update(offsets);
    return code(err);
  }

  ConsumerGroupMetadata *groupMetadata() {
    rd_kafka_consumer_group_metadata_t *metadata = rd_kafka_consumer_group_metadata(rk_);
    return metadata != NULL ? new ConsumerGroupMetadataImpl(metadata) : NULL;
  }

  bool assignment_lost() {
    return rd_kafka_assignment_lost(rk_) != 0;
  }

  std::string rebalance_protocol() {
    return text(rd_kafka_rebalance_protocol(rk_));
  }

  Error *incremental_assign(const std::vector<TopicPartition *> &partitions) {
    PartitionList list(partitions);
    return ErrorImpl::of(rd_kafka_incremental_assign(rk_, list.get()));
  }

  Error *incremental_unassign(const std::vector<TopicPartition *> &partitions) {
    PartitionList list(partitions);
    return ErrorImpl::of(rd_kafka_incremental_unassign(rk_, list.get()));
  }

  Error *close(Queue *queue) {
    return ErrorImpl::of(rd_kafka_consumer_close_queue(rk_, QueueImpl::c_ptr(queue)));
  }

  bool closed() {
    return rd_kafka_consumer_closed(rk_) != 0;
  }
};

}  // namespace

}  // namespace hidden

KafkaConsumer::~KafkaConsumer() {
}

KafkaConsumer *KafkaConsumer::create(const Conf *conf, std::string &errstr) {
  hidden::KafkaConsumerImpl *consumer = new hidden::KafkaConsumerImpl;
  if (consumer->open(conf, errstr))
    return consumer;
  delete consumer;
  return NULL;
}

}  // namespace RdKafka
