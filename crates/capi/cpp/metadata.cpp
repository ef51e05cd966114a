/* Brokers, topics and partitions: objects that refer to one C structure. */
#include "internal.h"

namespace RdKafka {

BrokerMetadata::~BrokerMetadata() {
}

PartitionMetadata::~PartitionMetadata() {
}

TopicMetadata::~TopicMetadata() {
}

Metadata::~Metadata() {
}

namespace hidden {

namespace {

class BrokerMetadataImpl : public BrokerMetadata {
 public:
  explicit BrokerMetadataImpl(const rd_kafka_metadata_broker_t &broker) : broker_(broker), host_(text(broker.host)) {
  }

  int32_t id() const {
    return broker_.id;
  }
  std::string host() const {
    return host_;
  }
  int port() const {
    return broker_.port;
  }

 private:
  const rd_kafka_metadata_broker_t &broker_;
  std::string host_;
};

class PartitionMetadataImpl : public PartitionMetadata {
 public:
  explicit PartitionMetadataImpl(const rd_kafka_metadata_partition_t &partition) :
      partition_(partition),
      replicas_(partition.replicas, partition.replicas + partition.replica_cnt),
      isrs_(partition.isrs, partition.isrs + partition.isr_cnt) {
  }

  int32_t id() const {
    return partition_.id;
  }
  ErrorCode err() const {
    return code(partition_.err);
  }
  int32_t leader() const {
    return partition_.leader;
  }
  const ReplicasVector *replicas() const {
    return &replicas_;
  }
  const ISRSVector *isrs() const {
    return &isrs_;
  }

 private:
  const rd_kafka_metadata_partition_t &partition_;
  ReplicasVector replicas_;
  ISRSVector isrs_;
};

class TopicMetadataImpl : public TopicMetadata {
 public:
  explicit TopicMetadataImpl(const rd_kafka_metadata_topic_t &topic) : topic_(topic) {
    for (int i = 0; i < topic.partition_cnt; i++)
      partitions_.push_back(new PartitionMetadataImpl(topic.partitions[i]));
  }
  ~TopicMetadataImpl() {
    for (size_t i = 0; i < partitions_.size(); i++)
      delete partitions_[i];
  }

  std::string topic() const {
    return text(topic_.topic);
  }
  const PartitionMetadataVector *partitions() const {
    return &partitions_;
  }
  ErrorCode err() const {
    return code(topic_.err);
  }

 private:
  TopicMetadataImpl(const TopicMetadataImpl &);
  TopicMetadataImpl &operator=(const TopicMetadataImpl &);

  const rd_kafka_metadata_topic_t &topic_;
  PartitionMetadataVector partitions_;
};

class MetadataImpl : public Metadata {
 public:
  explicit MetadataImpl(const struct rd_kafka_metadata *metadata) : metadata_(metadata) {
    for (int i = 0; i < metadata->broker_cnt; i++)
      brokers_.push_back(new BrokerMetadataImpl(metadata->brokers[i]));
    for (int i = 0; i < metadata->topic_cnt; i++)
      topics_.push_back(new TopicMetadataImpl(metadata->topics[i]));
  }
  ~MetadataImpl() {
    for (size_t i = 0; i < brokers_.size(); i++)
      delete brokers_[i];
    for (size_t i = 0; i < topics_.size(); i++)
      delete topics_[i];
    rd_kafka_metadata_destroy(metadata_);
  }

  const BrokerMetadataVector *brokers() const {
    return &brokers_;
  }
  const TopicMetadataVector *topics() const {
    return &topics_;
  }
  int32_t orig_broker_id() const {
    return metadata_->orig_broker_id;
  }
  std::string orig_broker_name() const {
    return text(metadata_->orig_broker_name);
  }

 private:
  MetadataImpl(const MetadataImpl &);
  MetadataImpl &operator=(const MetadataImpl &);

  const struct rd_kafka_metadata *metadata_;
  BrokerMetadataVector brokers_;
  TopicMetadataVector topics_;
};

}  // namespace

Metadata *metadata_of(const struct rd_kafka_metadata *metadata) {
  return new MetadataImpl(metadata);
}

}  // namespace hidden

}  // namespace RdKafka
