/* Topics with their partitioners, and partitions with their lists. */
#include "internal.h"

#include <sched.h>

#include <algorithm>
#include <set>

namespace RdKafka {

const int32_t Topic::PARTITION_UA      = RD_KAFKA_PARTITION_UA;
const int64_t Topic::OFFSET_BEGINNING = RD_KAFKA_OFFSET_BEGINNING;
const int64_t Topic::OFFSET_END       = RD_KAFKA_OFFSET_END;
const int64_t Topic::OFFSET_STORED    = RD_KAFKA_OFFSET_STORED;
const int64_t Topic::OFFSET_INVALID   = RD_KAFKA_OFFSET_INVALID;

Topic::~Topic() {
}

Topic *Topic::create(Handle *base, const std::string &topic_str, const Conf *conf, std::string &errstr) {
  const hidden::ConfImpl *given = static_cast<const hidden::ConfImpl *>(conf);
  hidden::TopicImpl *topic      = new hidden::TopicImpl(given != NULL ? given->callbacks() : hidden::Callbacks());
  hidden::HandleImpl *handle    = dynamic_cast<hidden::HandleImpl *>(base);
  if (handle == NULL)
    errstr = "a topic takes a client of this library";
  else if (topic->open(handle, topic_str, given, errstr))
    return topic;
  delete topic;
  return NULL;
}

TopicPartition::~TopicPartition() {
}

TopicPartition *TopicPartition::create(const std::string &topic, int partition) {
  return new hidden::TopicPartitionImpl(topic, partition, Topic::OFFSET_INVALID);
}

TopicPartition *TopicPartition::create(const std::string &topic, int partition, int64_t offset) {
  return new hidden::TopicPartitionImpl(topic, partition, offset);
}

void TopicPartition::destroy(std::vector<TopicPartition *> &partitions) {
  for (size_t i = 0; i < partitions.size(); i++)
    delete partitions[i];
  partitions.clear();
}

namespace hidden {

namespace {

/** The slots that exist. A C topic without a Topic may have an opaque of the application, of which nothing is known. */
struct LivingSlots {
  std::mutex lock;
  std::set<const TopicSlot *> slots;
};

LivingSlots &living_slots() {
  // Never destroyed: a client with static storage may end after all other objects.
  static LivingSlots *slots = new LivingSlots;
  return *slots;
}

}  // namespace

/** A call of a partitioner, which keeps its Topic. It ends also if the partitioner throws. */
class TopicSlot::Call {
 public:
  explicit Call(TopicSlot *slot) : slot_(slot) {
    std::lock_guard<std::mutex> guard(slot_->lock_);
    topic_ = slot_->topics_.empty() ? NULL : slot_->topics_.front();
    slot_->called_.push_back(topic_);
  }

  ~Call() {
    std::lock_guard<std::mutex> guard(slot_->lock_);
    slot_->called_.erase(std::find(slot_->called_.begin(), slot_->called_.end(), topic_));
  }

  const TopicImpl *topic() const {
    return topic_;
  }

 private:
  Call(const Call &);
  Call &operator=(const Call &);

  TopicSlot *slot_;
  const TopicImpl *topic_;
};

TopicSlot::TopicSlot() {
  LivingSlots &living = living_slots();
  std::lock_guard<std::mutex> guard(living.lock);
  living.slots.insert(this);
}

TopicSlot::~TopicSlot() {
  {
    LivingSlots &living = living_slots();
    std::lock_guard<std::mutex> guard(living.lock);
    living.slots.erase(this);
  }
  for (size_t i = 0; i < topics_.size(); i++)
    topics_[i]->forget_slot();
}

void TopicSlot::add(TopicImpl *topic) {
  std::lock_guard<std::mutex> guard(lock_);
  topics_.push_back(topic);
}

void TopicSlot::remove(TopicImpl *topic) {
  std::unique_lock<std::mutex> guard(lock_);
  topics_.erase(std::remove(topics_.begin(), topics_.end(), topic), topics_.end());
  // Not a condition variable, which needs a newer libstdc++ than programs may have.
  while (std::find(called_.begin(), called_.end(), topic) != called_.end()) {
    guard.unlock();
    sched_yield();
    guard.lock();
  }
}

Topic *TopicSlot::topic() {
  std::lock_guard<std::mutex> guard(lock_);
  return topics_.empty() ? NULL : topics_.front();
}

Topic *TopicSlot::topic_of(void *opaque) {
  TopicSlot *slot     = static_cast<TopicSlot *>(opaque);
  LivingSlots &living = living_slots();
  std::lock_guard<std::mutex> guard(living.lock);
  return living.slots.count(slot) != 0 ? slot->topic() : NULL;
}

int32_t TopicSlot::partition(const rd_kafka_topic_t *rkt, const void *key, size_t key_len, int32_t partition_cnt,
                             void *rkt_opaque, void *msg_opaque) {
  Call call(static_cast<TopicSlot *>(rkt_opaque));
  if (call.topic() != NULL && call.topic()->has_partitioner())
    return call.topic()->partition(key, key_len, partition_cnt, msg_opaque);
  return rd_kafka_msg_partitioner_consistent_random(rkt, key, key_len, partition_cnt, NULL, msg_opaque);
}

TopicImpl::TopicImpl(const Callbacks &callbacks) :
    rkt_(NULL),
    slot_(NULL),
    partitioner_(callbacks.partitioner),
    partitioner_key_pointer_(callbacks.partitioner_key_pointer) {
}

TopicImpl::~TopicImpl() {
  if (slot_ != NULL)
    slot_->remove(this);
  if (rkt_ != NULL)
    rd_kafka_topic_destroy(rkt_);
}

bool TopicImpl::open(HandleImpl *handle, const std::string &name, const ConfImpl *conf, std::string &errstr) {
  rd_kafka_t *rk = handle->c_ptr();
  // Without settings of its own the topic has those of its client.
  rd_kafka_topic_conf_t *topic_conf = conf != NULL ? conf->topic_copy() : rd_kafka_default_topic_conf_dup(rk);
  if (topic_conf == NULL) {
    errstr = "a topic takes a Conf of type CONF_TOPIC";
    return false;
  }
  // Messages find this object through the opaque of their topic.
  slot_ = handle->topic_slot(name);
  slot_->add(this);
  rd_kafka_topic_conf_set_opaque(topic_conf, slot_);
  if (has_partitioner())
    rd_kafka_topic_conf_set_partitioner_cb(topic_conf, TopicSlot::partition);
  rkt_ = rd_kafka_topic_new(rk, name.c_str(), topic_conf);
  if (rkt_ == NULL)
    errstr = text(rd_kafka_err2str(rd_kafka_last_error()));
  return rkt_ != NULL;
}

int32_t TopicImpl::partition(const void *key, size_t key_len, int32_t partition_cnt, void *msg_opaque) const {
  if (partitioner_key_pointer_ != NULL)
    return partitioner_key_pointer_->partitioner_cb(this, key, key_len, partition_cnt, msg_opaque);
  // Programs read the key without a check: it is an empty string if the message has none.
  std::string copy;
  if (key != NULL)
    copy.assign(static_cast<const char *>(key), key_len);
  return partitioner_->partitioner_cb(this, &copy, partition_cnt, msg_opaque);
}

std::string TopicImpl::name() const {
  return text(rd_kafka_topic_name(rkt_));
}

bool TopicImpl::partition_available(int32_t partition) const {
  return rd_kafka_topic_partition_available(rkt_, partition) != 0;
}

ErrorCode TopicImpl::offset_store(int32_t partition, int64_t offset) {
  return code(rd_kafka_offset_store(rkt_, partition, offset));
}

rd_kafka_topic_t *TopicImpl::c_ptr() {
  return rkt_;
}

TopicPartitionImpl::TopicPartitionImpl(const std::string &topic, int partition, int64_t offset) :
    topic_(topic), partition_(partition), offset_(offset), err_(ERR_NO_ERROR), leader_epoch_(-1) {
}

TopicPartitionImpl::TopicPartitionImpl(const rd_kafka_topic_partition_t *partition) :
    topic_(text(partition->topic)), partition_(partition->partition) {
  update(partition);
}

const std::string &TopicPartitionImpl::topic() const {
  return topic_;
}

int TopicPartitionImpl::partition() const {
  return partition_;
}

int64_t TopicPartitionImpl::offset() const {
  return offset_;
}

void TopicPartitionImpl::set_offset(int64_t offset) {
  offset_ = offset;
}

ErrorCode TopicPartitionImpl::err() const {
  return err_;
}

int32_t TopicPartitionImpl::get_leader_epoch() {
  return leader_epoch_;
}

void TopicPartitionImpl::set_leader_epoch(int32_t leader_epoch) {
  leader_epoch_ = leader_epoch;
}

std::vector<unsigned char> TopicPartitionImpl::get_metadata() {
  return metadata_;
}

void TopicPartitionImpl::set_metadata(std::vector<unsigned char> &metadata) {
  metadata_ = metadata;
}

void TopicPartitionImpl::update(const rd_kafka_topic_partition_t *partition) {
  offset_       = partition->offset;
  err_          = code(partition->err);
  leader_epoch_ = rd_kafka_topic_partition_get_leader_epoch(partition);
  if (partition->metadata != NULL) {
    const unsigned char *bytes = static_cast<const unsigned char *>(partition->metadata);
    metadata_.assign(bytes, bytes + partition->metadata_size);
  }
}

void TopicPartitionImpl::add_to(rd_kafka_topic_partition_list_t *list) const {
  rd_kafka_topic_partition_t *added = rd_kafka_topic_partition_list_add(list, topic_.c_str(), partition_);
  added->offset                     = offset_;
  if (leader_epoch_ >= 0)
    rd_kafka_topic_partition_set_leader_epoch(added, leader_epoch_);
  if (!metadata_.empty()) {
    // The list frees it with the C library's allocator.
    added->metadata = rd_kafka_mem_malloc(NULL, metadata_.size());
    memcpy(added->metadata, &metadata_[0], metadata_.size());
    added->metadata_size = metadata_.size();
  }
}

PartitionList::PartitionList(const std::vector<TopicPartition *> &partitions) :
    list_(rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size()))) {
  for (size_t i = 0; i < partitions.size(); i++)
    static_cast<const TopicPartitionImpl *>(partitions[i])->add_to(list_);
}

PartitionList::~PartitionList() {
  if (list_ != NULL)
    rd_kafka_topic_partition_list_destroy(list_);
}

void PartitionList::update(std::vector<TopicPartition *> &partitions) const {
  for (size_t i = 0; i < partitions.size(); i++) {
    TopicPartitionImpl *own = static_cast<TopicPartitionImpl *>(partitions[i]);
    const rd_kafka_topic_partition_t *found =
        rd_kafka_topic_partition_list_find(list_, own->topic().c_str(), own->partition());
    if (found != NULL)
      own->update(found);
  }
}

void PartitionList::append(const rd_kafka_topic_partition_list_t *list, std::vector<TopicPartition *> &partitions) {
  for (int i = 0; i < list->cnt; i++)
    partitions.push_back(new TopicPartitionImpl(&list->elems[i]));
}

}  // namespace hidden

}  // namespace RdKafka
