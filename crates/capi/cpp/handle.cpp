/* The functions that producers and consumers share. */
#include "internal.h"

namespace RdKafka {

namespace hidden {

HandleImpl::HandleImpl() : rk_(NULL), destroy_flags_(0) {
}

HandleImpl::~HandleImpl() {
  if (rk_ != NULL)
    rd_kafka_destroy_flags(rk_, destroy_flags_);
  for (std::map<std::string, TopicSlot *>::iterator it = topic_slots_.begin(); it != topic_slots_.end(); ++it)
    delete it->second;
}

TopicSlot *HandleImpl::topic_slot(const std::string &name) {
  std::lock_guard<std::mutex> guard(topic_slots_lock_);
  TopicSlot *&slot = topic_slots_[name];
  if (slot == NULL)
    slot = new TopicSlot;
  return slot;
}

rd_kafka_conf_t *HandleImpl::configuration(rd_kafka_type_t type, const Conf *conf, std::string &errstr) {
  const ConfImpl *given = static_cast<const ConfImpl *>(conf);
  rd_kafka_conf_t *copy = given != NULL ? given->global_copy() : rd_kafka_conf_new();
  if (copy == NULL) {
    errstr = "a client takes a Conf of type CONF_GLOBAL";
    return NULL;
  }
  if (given != NULL)
    callbacks_ = given->callbacks();
  set_callbacks(type, copy);
  return copy;
}

bool HandleImpl::open(rd_kafka_type_t type, const Conf *conf, std::string &errstr) {
  rd_kafka_conf_t *copy = configuration(type, conf, errstr);
  if (copy == NULL)
    return false;
  char why[512];
  rk_ = rd_kafka_new(type, copy, why, sizeof(why));
  if (rk_ == NULL) {
    // Only a handle takes the configuration over.
    rd_kafka_conf_destroy(copy);
    errstr = why;
  }
  return rk_ != NULL;
}

std::string HandleImpl::name() const {
  return text(rd_kafka_name(rk_));
}

std::string HandleImpl::memberid() const {
  return taken(rk_, rd_kafka_memberid(rk_));
}

int HandleImpl::poll(int timeout_ms) {
  return rd_kafka_poll(rk_, timeout_ms);
}

int HandleImpl::outq_len() {
  return rd_kafka_outq_len(rk_);
}

ErrorCode HandleImpl::metadata(bool all_topics, const Topic *only_rkt, Metadata **metadatap, int timeout_ms) {
  rd_kafka_topic_t *topic = only_rkt != NULL ? const_cast<Topic *>(only_rkt)->c_ptr() : NULL;
  const struct rd_kafka_metadata *metadata = NULL;
  rd_kafka_resp_err_t err = rd_kafka_metadata(rk_, all_topics ? 1 : 0, topic, &metadata, timeout_ms);
  *metadatap              = err == RD_KAFKA_RESP_ERR_NO_ERROR ? metadata_of(metadata) : NULL;
  return code(err);
}

ErrorCode HandleImpl::pause(std::vector<TopicPartition *> &partitions) {
  PartitionList list(partitions);
  rd_kafka_resp_err_t err = rd_kafka_pause_partitions(rk_, list.get());
  if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
    list.update(partitions);
  return code(err);
}

ErrorCode HandleImpl::resume(std::vector<TopicPartition *> &partitions) {
  PartitionList list(partitions);
  rd_kafka_resp_err_t err = rd_kafka_resume_partitions(rk_, list.get());
  if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
    list.update(partitions);
  return code(err);
}

ErrorCode HandleImpl::query_watermark_offsets(const std::string &topic, int32_t partition, int64_t *low, int64_t *high,
                                              int timeout_ms) {
  return code(rd_kafka_query_watermark_offsets(rk_, topic.c_str(), partition, low, high, timeout_ms));
}

ErrorCode HandleImpl::get_watermark_offsets(const std::string &topic, int32_t partition, int64_t *low, int64_t *high) {
  return code(rd_kafka_get_watermark_offsets(rk_, topic.c_str(), partition, low, high));
}

ErrorCode HandleImpl::offsetsForTimes(std::vector<TopicPartition *> &offsets, int timeout_ms) {
  PartitionList list(offsets);
  rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(rk_, list.get(), timeout_ms);
  list.update(offsets);
  return code(err);
}

Queue *HandleImpl::get_partition_queue(const TopicPartition *partition) {
  return QueueImpl::of(rd_kafka_queue_get_partition(rk_, partition->topic().c_str(), partition->partition()));
}

ErrorCode HandleImpl::set_log_queue(Queue *queue) {
  return code(rd_kafka_set_log_queue(rk_, QueueImpl::c_ptr(queue)));
}

void HandleImpl::yield() {
  rd_kafka_yield(rk_);
}

std::string HandleImpl::clusterid(int timeout_ms) {
  return taken(rk_, rd_kafka_clusterid(rk_, timeout_ms));
}

rd_kafka_t *HandleImpl::c_ptr() {
  return rk_;
}

int32_t HandleImpl::controllerid(int timeout_ms) {
  return rd_kafka_controllerid(rk_, timeout_ms);
}

ErrorCode HandleImpl::fatal_error(std::string &errstr) const {
  char why[512];
  rd_kafka_resp_err_t err = rd_kafka_fatal_error(rk_, why, sizeof(why));
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
    errstr = why;
  return code(err);
}

ErrorCode HandleImpl::oauthbearer_set_token(const std::string &token_value, int64_t md_lifetime_ms,
                                            const std::string &md_principal_name,
                                            const std::list<std::string> &extensions, std::string &errstr) {
  std::vector<const char *> pairs;
  for (std::list<std::string>::const_iterator it = extensions.begin(); it != extensions.end(); ++it)
    pairs.push_back(it->c_str());
  char why[512];
  rd_kafka_resp_err_t err =
      rd_kafka_oauthbearer_set_token(rk_, token_value.c_str(), md_lifetime_ms, md_principal_name.c_str(),
                                     pairs.empty() ? NULL : &pairs[0], pairs.size(), why, sizeof(why));
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
    errstr = why;
  return code(err);
}

ErrorCode HandleImpl::oauthbearer_set_token_failure(const std::string &errstr) {
  return code(rd_kafka_oauthbearer_set_token_failure(rk_, errstr.c_str()));
}

Error *HandleImpl::sasl_background_callbacks_enable() {
  return ErrorImpl::of(rd_kafka_sasl_background_callbacks_enable(rk_));
}

Queue *HandleImpl::get_sasl_queue() {
  return QueueImpl::of(rd_kafka_queue_get_sasl(rk_));
}

Queue *HandleImpl::get_background_queue() {
  return QueueImpl::of(rd_kafka_queue_get_background(rk_));
}

void *HandleImpl::mem_malloc(size_t size) {
  return rd_kafka_mem_malloc(rk_, size);
}

void HandleImpl::mem_free(void *ptr) {
  rd_kafka_mem_free(rk_, ptr);
}

Error *HandleImpl::sasl_set_credentials(const std::string &username, const std::string &password) {
  return ErrorImpl::of(rd_kafka_sasl_set_credentials(rk_, username.c_str(), password.c_str()));
}

}  // namespace hidden

}  // namespace RdKafka
