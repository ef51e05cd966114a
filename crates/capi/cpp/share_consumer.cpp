/* The consumer of share groups. */
#include "internal.h"

#include <atomic>

namespace RdKafka {

MessageBatch::~MessageBatch() {
}

ShareConsumer::~ShareConsumer() {
}

namespace hidden {

namespace {

class MessageBatchImpl : public MessageBatch {
 public:
  explicit MessageBatchImpl(rd_kafka_messages_t *batch) : batch_(batch) {
    size_t count = rd_kafka_messages_count(batch_);
    for (size_t i = 0; i < count; i++)
      messages_.push_back(
          new MessageImpl(RD_KAFKA_CONSUMER, NULL, rd_kafka_messages_get(batch_, i), MessageImpl::BORROWED));
  }

  ~MessageBatchImpl() {
    for (size_t i = 0; i < messages_.size(); i++)
      delete messages_[i];
    rd_kafka_messages_destroy(batch_);
  }

  size_t size() const {
    return messages_.size();
  }

  Message *message(size_t index) const {
    return index < messages_.size() ? messages_[index] : NULL;
  }

  int16_t delivery_count(size_t index) const {
    return rd_kafka_message_delivery_count(rd_kafka_messages_get(batch_, index));
  }

 private:
  MessageBatchImpl(const MessageBatchImpl &);
  MessageBatchImpl &operator=(const MessageBatchImpl &);

  rd_kafka_messages_t *batch_;
  std::vector<Message *> messages_;
};

/**
 * The handle that callbacks of the client get. It has no C client of its own: the share consumer's functions take its place. It outlives
 * a ShareConsumer that is deleted during a call, because C destroys no share consumer that is in use.
 */
class ShareHandle : public HandleImpl {
 public:
  /** A call of the application, which keeps the handle. It ends also if a callback throws. */
  class Call {
   public:
    explicit Call(ShareHandle *handle) : handle_(handle) {
      handle_->uses_.fetch_add(1, std::memory_order_relaxed);
    }

    ~Call() {
      handle_->release();
    }

   private:
    Call(const Call &);
    Call &operator=(const Call &);

    ShareHandle *handle_;
  };

  ShareHandle() : share_(NULL), uses_(1) {
  }

  /** The end of a call or of the ShareConsumer. The last one destroys the share consumer. */
  void release() {
    if (uses_.fetch_sub(1, std::memory_order_acq_rel) > 1)
      return;
    rd_kafka_error_t *refused = share_ != NULL ? rd_kafka_share_destroy(share_) : NULL;
    if (refused == NULL) {
      delete this;
      return;
    }
    // A call of C's functions runs. The share consumer stays, and its callbacks need this object.
    rd_kafka_error_destroy(refused);
  }

  bool open_share(const Conf *conf, std::string &errstr) {
    rd_kafka_conf_t *copy = configuration(RD_KAFKA_CONSUMER, conf, errstr);
    if (copy == NULL)
      return false;
    char why[512];
    share_ = rd_kafka_share_consumer_new(copy, why, sizeof(why));
    if (share_ == NULL) {
      // Only a handle takes the configuration over.
      rd_kafka_conf_destroy(copy);
      errstr = why;
    }
    return share_ != NULL;
  }

  ErrorCode oauthbearer_set_token(const std::string &token_value, int64_t md_lifetime_ms,
                                  const std::string &md_principal_name, const std::list<std::string> &extensions,
                                  std::string &errstr) {
    std::vector<const char *> pairs;
    for (std::list<std::string>::const_iterator it = extensions.begin(); it != extensions.end(); ++it)
      pairs.push_back(it->c_str());
    char why[512]           = "";
    rd_kafka_resp_err_t err = rd_kafka_share_oauthbearer_set_token(
        share_, token_value.c_str(), md_lifetime_ms, md_principal_name.c_str(), pairs.empty() ? NULL : &pairs[0],
        pairs.size(), why, sizeof(why));
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
      errstr = why;
    return code(err);
  }

  ErrorCode oauthbearer_set_token_failure(const std::string &errstr) {
    return code(rd_kafka_share_oauthbearer_set_token_failure(share_, errstr.c_str()));
  }

  Error *sasl_background_callbacks_enable() {
    return ErrorImpl::of(rd_kafka_share_sasl_background_callbacks_enable(share_));
  }

  Queue *get_sasl_queue() {
    return QueueImpl::of(rd_kafka_share_queue_get_sasl(share_));
  }

  Error *sasl_set_credentials(const std::string &username, const std::string &password) {
    return ErrorImpl::of(rd_kafka_share_sasl_set_credentials(share_, username.c_str(), password.c_str()));
  }

  rd_kafka_share_t *share_;

 private:
  ~ShareHandle() {
  }

  /** The number of calls, and one for the ShareConsumer. */
  std::atomic<int> uses_;
};

void acknowledged(rd_kafka_share_t *, rd_kafka_share_partition_offsets_list_t *partitions, rd_kafka_resp_err_t err,
                  void *opaque) {
  size_t count = rd_kafka_share_partition_offsets_list_count(partitions);
  for (size_t i = 0; i < count; i++) {
    const rd_kafka_share_partition_offsets_t *entry = rd_kafka_share_partition_offsets_list_get(partitions, i);
    const int64_t *first                            = rd_kafka_share_partition_offsets_offsets(entry);
    std::vector<int64_t> offsets(first, first + rd_kafka_share_partition_offsets_offsets_cnt(entry));
    TopicPartitionImpl partition(rd_kafka_share_partition_offsets_partition(entry));
    static_cast<AcknowledgementCommitCb *>(opaque)->acknowledgement_commit_cb(partition, offsets, code(err));
  }
}

/** A callback may delete this object: after a call of C, its methods use only their arguments. */
class ShareConsumerImpl : public ShareConsumer {
 public:
  ShareConsumerImpl() : handle_(new ShareHandle) {
  }

  ~ShareConsumerImpl() {
    handle_->release();
  }

  bool open(const Conf *conf, std::string &errstr) {
    std::string group;
    if (conf == NULL || conf->get("group.id", group) != Conf::CONF_OK || group.empty()) {
      errstr = "\"group.id\" must be configured";
      return false;
    }
    return handle_->open_share(conf, errstr);
  }

  ErrorCode subscribe(const std::vector<std::string> &topics) {
    ShareHandle::Call call(handle_);
    PartitionList list(rd_kafka_topic_partition_list_new(static_cast<int>(topics.size())));
    for (size_t i = 0; i < topics.size(); i++)
      rd_kafka_topic_partition_list_add(list.get(), topics[i].c_str(), RD_KAFKA_PARTITION_UA);
    return code(rd_kafka_share_subscribe(handle_->share_, list.get()));
  }

  ErrorCode unsubscribe() {
    ShareHandle::Call call(handle_);
    return code(rd_kafka_share_unsubscribe(handle_->share_));
  }

  ErrorCode subscription(std::vector<std::string> &topics) {
    ShareHandle::Call call(handle_);
    rd_kafka_topic_partition_list_t *list = NULL;
    rd_kafka_resp_err_t err               = rd_kafka_share_subscription(handle_->share_, &list);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
      return code(err);
    PartitionList owned(list);
    topics.clear();
    for (int i = 0; i < list->cnt; i++)
      topics.push_back(list->elems[i].topic);
    return ERR_NO_ERROR;
  }

  Error *poll(int timeout_ms, MessageBatch *&batch) {
    ShareHandle::Call call(handle_);
    rd_kafka_messages_t *messages = NULL;
    rd_kafka_error_t *error       = rd_kafka_share_poll(handle_->share_, timeout_ms, &messages);
    batch                         = messages != NULL ? new MessageBatchImpl(messages) : NULL;
    return ErrorImpl::of(error);
  }

  ErrorCode acknowledge(Message *message, AcknowledgeType type) {
    ShareHandle::Call call(handle_);
    return code(rd_kafka_share_acknowledge_type(handle_->share_, message != NULL ? message->c_ptr() : NULL,
                                                static_cast<rd_kafka_share_AcknowledgeType_t>(type)));
  }

  ErrorCode acknowledge(const std::string &topic, int32_t partition, int64_t offset, AcknowledgeType type) {
    ShareHandle::Call call(handle_);
    return code(rd_kafka_share_acknowledge_offset(handle_->share_, topic.c_str(), partition, offset,
                                                  static_cast<rd_kafka_share_AcknowledgeType_t>(type)));
  }

  Error *commitSync(int timeout_ms, std::vector<TopicPartition *> &results) {
    ShareHandle::Call call(handle_);
    rd_kafka_topic_partition_list_t *list = NULL;
    rd_kafka_error_t *error               = rd_kafka_share_commit_sync(handle_->share_, timeout_ms, &list);
    PartitionList owned(list);
    results.clear();
    if (list != NULL)
      PartitionList::append(list, results);
    return ErrorImpl::of(error);
  }

  Error *commitAsync() {
    ShareHandle::Call call(handle_);
    return ErrorImpl::of(rd_kafka_share_commit_async(handle_->share_));
  }

  Error *set_acknowledgement_commit_cb(AcknowledgementCommitCb *cb) {
    ShareHandle::Call call(handle_);
    return ErrorImpl::of(
        rd_kafka_share_set_acknowledgement_commit_cb(handle_->share_, cb != NULL ? acknowledged : NULL, cb));
  }

  Error *close() {
    ShareHandle::Call call(handle_);
    return ErrorImpl::of(rd_kafka_share_consumer_close(handle_->share_));
  }

  Error *close(Queue *queue) {
    ShareHandle::Call call(handle_);
    return ErrorImpl::of(rd_kafka_share_consumer_close_queue(handle_->share_, QueueImpl::c_ptr(queue)));
  }

  bool closed() {
    ShareHandle::Call call(handle_);
    return rd_kafka_share_consumer_closed(handle_->share_) != 0;
  }

  Error *set_log_queue(Queue *queue) {
    ShareHandle::Call call(handle_);
    return ErrorImpl::of(rd_kafka_share_set_log_queue(handle_->share_, QueueImpl::c_ptr(queue)));
  }

  Error *sasl_set_credentials(const std::string &username, const std::string &password) {
    ShareHandle::Call call(handle_);
    return handle_->sasl_set_credentials(username, password);
  }

  Error *sasl_background_callbacks_enable() {
    ShareHandle::Call call(handle_);
    return handle_->sasl_background_callbacks_enable();
  }

  Queue *get_sasl_queue() {
    ShareHandle::Call call(handle_);
    return handle_->get_sasl_queue();
  }

  ErrorCode oauthbearer_set_token(const std::string &token_value, int64_t md_lifetime_ms,
                                  const std::string &md_principal_name, const std::list<std::string> &extensions,
                                  std::string &errstr) {
    ShareHandle::Call call(handle_);
    return handle_->oauthbearer_set_token(token_value, md_lifetime_ms, md_principal_name, extensions, errstr);
  }

  ErrorCode oauthbearer_set_token_failure(const std::string &errstr) {
    ShareHandle::Call call(handle_);
    return handle_->oauthbearer_set_token_failure(errstr);
  }

  struct rd_kafka_share_s *c_ptr() {
    return handle_->share_;
  }

 private:
  ShareConsumerImpl(const ShareConsumerImpl &);
  ShareConsumerImpl &operator=(const ShareConsumerImpl &);

  ShareHandle *handle_;
};

}  // namespace

}  // namespace hidden

ShareConsumer *ShareConsumer::create(const Conf *conf, std::string &errstr) {
  hidden::ShareConsumerImpl *consumer = new hidden::ShareConsumerImpl;
  if (consumer->open(conf, errstr))
    return consumer;
  delete consumer;
  return NULL;
}

}  // namespace RdKafka
