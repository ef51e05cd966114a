/* The classes that implement rdkafkacpp.h. The library does not export their names. */
#ifndef OTTLA_RDKAFKACPP_INTERNAL_H_
#define OTTLA_RDKAFKACPP_INTERNAL_H_

#include <map>
#include <mutex>

#include "rdkafkacpp.h"

#include "rdkafka.h"

namespace RdKafka {

namespace hidden __attribute__((visibility("hidden"))) {

inline ErrorCode code(rd_kafka_resp_err_t err) {
  return static_cast<ErrorCode>(err);
}

inline rd_kafka_resp_err_t code(ErrorCode err) {
  return static_cast<rd_kafka_resp_err_t>(err);
}

inline std::string text(const char *string) {
  return string != NULL ? string : "";
}

/** A string that the library allocated, as one of ours. */
std::string taken(rd_kafka_t *rk, char *string);

class ErrorImpl : public Error {
 public:
  explicit ErrorImpl(rd_kafka_error_t *error) : error_(error) {
  }
  ~ErrorImpl() {
    rd_kafka_error_destroy(error_);
  }

  /** NULL stays NULL: success. */
  static Error *of(rd_kafka_error_t *error) {
    return error != NULL ? new ErrorImpl(error) : NULL;
  }

  ErrorCode code() const;
  std::string name() const;
  std::string str() const;
  bool is_fatal() const;
  bool is_retriable() const;
  bool txn_requires_abort() const;

 private:
  ErrorImpl(const ErrorImpl &);
  ErrorImpl &operator=(const ErrorImpl &);

  rd_kafka_error_t *error_;
};

/** The callbacks of a Conf. Handles and topics copy them. */
struct Callbacks {
  Callbacks();

  ConsumeCb *consume;
  DeliveryReportCb *delivery_report;
  EventCb *event;
  OAuthBearerTokenRefreshCb *token_refresh;
  OffsetCommitCb *offset_commit;
  OpenCb *open;
  PartitionerCb *partitioner;
  PartitionerKeyPointerCb *partitioner_key_pointer;
  RebalanceCb *rebalance;
  SocketCb *socket;
  SslCertificateVerifyCb *certificate_verify;
};

class ConfImpl : public Conf {
 public:
  explicit ConfImpl(ConfType type);
  ~ConfImpl();

  ConfResult set(const std::string &name, const std::string &value, std::string &errstr);
  ConfResult set(const std::string &name, DeliveryReportCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, OAuthBearerTokenRefreshCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, EventCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, const Conf *topic_conf, std::string &errstr);
  ConfResult set(const std::string &name, PartitionerCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, PartitionerKeyPointerCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, SocketCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, OpenCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, RebalanceCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, OffsetCommitCb *cb, std::string &errstr);
  ConfResult set(const std::string &name, SslCertificateVerifyCb *cb, std::string &errstr);
  ConfResult set_ssl_cert(CertificateType type,
                          CertificateEncoding encoding,
                          const void *buffer,
                          size_t size,
                          std::string &errstr);
  ConfResult get(const std::string &name, std::string &value) const;
  ConfResult get(DeliveryReportCb *&cb) const;
  ConfResult get(OAuthBearerTokenRefreshCb *&cb) const;
  ConfResult get(EventCb *&cb) const;
  ConfResult get(PartitionerCb *&cb) const;
  ConfResult get(PartitionerKeyPointerCb *&cb) const;
  ConfResult get(SocketCb *&cb) const;
  ConfResult get(OpenCb *&cb) const;
  ConfResult get(RebalanceCb *&cb) const;
  ConfResult get(OffsetCommitCb *&cb) const;
  ConfResult get(SslCertificateVerifyCb *&cb) const;
  std::list<std::string> *dump();
  ConfResult set(const std::string &name, ConsumeCb *cb, std::string &errstr);
  rd_kafka_conf_t *c_ptr_global();
  rd_kafka_topic_conf_t *c_ptr_topic();
  ConfResult set_engine_callback_data(void *value, std::string &errstr);
  ConfResult enable_sasl_queue(bool enable, std::string &errstr);

  /** Copies for a handle or a topic; each is NULL in a Conf of the other type. */
  rd_kafka_conf_t *global_copy() const;
  rd_kafka_topic_conf_t *topic_copy() const;
  const Callbacks &callbacks() const {
    return callbacks_;
  }

 private:
  ConfImpl(const ConfImpl &);
  ConfImpl &operator=(const ConfImpl &);

  template <typename Cb>
  ConfResult remember(const char *expected, ConfType type, const std::string &name, Cb *&slot, Cb *cb,
                      std::string &errstr);
  template <typename Cb>
  ConfResult recall(ConfType type, Cb *slot, Cb *&cb) const;
  ConfResult requires_global(const char *what, std::string &errstr) const;

  /**
   * NULL at first, and never read. The original has its callback pointers here, directly after the pointer to the
   * virtual functions. node-rdkafka casts a Conf to a class of its own that has fields at this position: it
   * expects NULL in them and writes to them.
   */
  void *fields_of_foreign_subclasses_[11];
  ConfType type_;
  rd_kafka_conf_t *global_;
  rd_kafka_topic_conf_t *topic_;
  Callbacks callbacks_;
};

class TopicImpl;

/**
 * The Topics of one name that the application has. C's topic and its partitioner last as long as the client, and a Topic may be
 * deleted before: therefore the opaque of C's topic is this object, which the client owns.
 */
class TopicSlot {
 public:
  TopicSlot();
  /** Topics that outlive the client no longer belong to it. */
  ~TopicSlot();

  void add(TopicImpl *topic);
  /** Waits until the topic's own partitioner returns, which therefore must not delete its topic. */
  void remove(TopicImpl *topic);
  /** The oldest Topic: a known topic keeps its configuration. NULL if all are deleted. */
  Topic *topic();
  /** The same for the opaque of a C topic. NULL for an opaque that the application has set. */
  static Topic *topic_of(void *opaque);

  /** The partitioner of C's topic: that of the oldest Topic, or the default one. */
  static int32_t partition(const rd_kafka_topic_t *rkt, const void *key, size_t key_len, int32_t partition_cnt,
                           void *rkt_opaque, void *msg_opaque);

 private:
  class Call;

  TopicSlot(const TopicSlot &);
  TopicSlot &operator=(const TopicSlot &);

  std::mutex lock_;
  std::vector<TopicImpl *> topics_;
  /** The topics whose partitioners are running, once for each call. */
  std::vector<const TopicImpl *> called_;
};

/** The base of producers and consumers. Its destructor destroys the C handle. */
class HandleImpl : public virtual Handle {
 public:
  HandleImpl();

  std::string name() const;
  std::string memberid() const;
  int poll(int timeout_ms);
  int outq_len();
  ErrorCode metadata(bool all_topics, const Topic *only_rkt, Metadata **metadatap, int timeout_ms);
  ErrorCode pause(std::vector<TopicPartition *> &partitions);
  ErrorCode resume(std::vector<TopicPartition *> &partitions);
  ErrorCode query_watermark_offsets(const std::string &topic, int32_t partition, int64_t *low, int64_t *high,
                                    int timeout_ms);
  ErrorCode get_watermark_offsets(const std::string &topic, int32_t partition, int64_t *low, int64_t *high);
  ErrorCode offsetsForTimes(std::vector<TopicPartition *> &offsets, int timeout_ms);
  Queue *get_partition_queue(const TopicPartition *partition);
  ErrorCode set_log_queue(Queue *queue);
  void yield();
  std::string clusterid(int timeout_ms);
  rd_kafka_t *c_ptr();
  int32_t controllerid(int timeout_ms);
  ErrorCode fatal_error(std::string &errstr) const;
  ErrorCode oauthbearer_set_token(const std::string &token_value, int64_t md_lifetime_ms,
                                  const std::string &md_principal_name, const std::list<std::string> &extensions,
                                  std::string &errstr);
  ErrorCode oauthbearer_set_token_failure(const std::string &errstr);
  Error *sasl_background_callbacks_enable();
  Queue *get_sasl_queue();
  Queue *get_background_queue();
  void *mem_malloc(size_t size);
  void mem_free(void *ptr);
  Error *sasl_set_credentials(const std::string &username, const std::string &password);

  /** For the C callbacks, whose opaque is the handle. */
  const Callbacks &callbacks() const {
    return callbacks_;
  }
  /** The Topics of this name. */
  TopicSlot *topic_slot(const std::string &name);

 protected:
  ~HandleImpl();

  /** Returns a copy of `conf` with the callbacks of this handle; NULL with the reason in `errstr`. */
  rd_kafka_conf_t *configuration(rd_kafka_type_t type, const Conf *conf, std::string &errstr);
  /** Creates the C handle with the callbacks of `conf`. */
  bool open(rd_kafka_type_t type, const Conf *conf, std::string &errstr);

  rd_kafka_t *rk_;
  int destroy_flags_;

 private:
  HandleImpl(const HandleImpl &);
  HandleImpl &operator=(const HandleImpl &);

  void set_callbacks(rd_kafka_type_t type, rd_kafka_conf_t *conf);

  Callbacks callbacks_;
  std::mutex topic_slots_lock_;
  std::map<std::string, TopicSlot *> topic_slots_;
};

class TopicPartitionImpl : public TopicPartition {
 public:
  TopicPartitionImpl(const std::string &topic, int partition, int64_t offset);
  explicit TopicPartitionImpl(const rd_kafka_topic_partition_t *partition);

  const std::string &topic() const;
  int partition() const;
  int64_t offset() const;
  void set_offset(int64_t offset);
  ErrorCode err() const;
  int32_t get_leader_epoch();
  void set_leader_epoch(int32_t leader_epoch);
  std::vector<unsigned char> get_metadata();
  void set_metadata(std::vector<unsigned char> &metadata);

  /** Stores the results of a call for this partition. */
  void update(const rd_kafka_topic_partition_t *partition);
  void add_to(rd_kafka_topic_partition_list_t *list) const;

 private:
  std::string topic_;
  int partition_;
  int64_t offset_;
  ErrorCode err_;
  int32_t leader_epoch_;
  std::vector<unsigned char> metadata_;
};

/** A C list of partitions that is destroyed at the end of its scope. */
class PartitionList {
 public:
  explicit PartitionList(const std::vector<TopicPartition *> &partitions);
  explicit PartitionList(rd_kafka_topic_partition_list_t *list) : list_(list) {
  }
  ~PartitionList();

  rd_kafka_topic_partition_list_t *get() const {
    return list_;
  }

  /** Copies offsets, errors and epochs to `partitions`, by topic and number. */
  void update(std::vector<TopicPartition *> &partitions) const;

  static void append(const rd_kafka_topic_partition_list_t *list, std::vector<TopicPartition *> &partitions);

 private:
  PartitionList(const PartitionList &);
  PartitionList &operator=(const PartitionList &);

  rd_kafka_topic_partition_list_t *list_;
};

class TopicImpl : public Topic {
 public:
  explicit TopicImpl(const Callbacks &callbacks);
  ~TopicImpl();

  bool open(HandleImpl *handle, const std::string &name, const ConfImpl *conf, std::string &errstr);
  /** The client has ended. */
  void forget_slot() {
    slot_ = NULL;
  }
  bool has_partitioner() const {
    return partitioner_key_pointer_ != NULL || partitioner_ != NULL;
  }
  /** Calls the partitioner. */
  int32_t partition(const void *key, size_t key_len, int32_t partition_cnt, void *msg_opaque) const;

  std::string name() const;
  bool partition_available(int32_t partition) const;
  ErrorCode offset_store(int32_t partition, int64_t offset);
  rd_kafka_topic_t *c_ptr();

 private:
  TopicImpl(const TopicImpl &);
  TopicImpl &operator=(const TopicImpl &);

  rd_kafka_topic_t *rkt_;
  /** NULL after the end of the client. */
  TopicSlot *slot_;
  PartitionerCb *partitioner_;
  PartitionerKeyPointerCb *partitioner_key_pointer_;
};

class HeadersImpl : public Headers {
 public:
  explicit HeadersImpl(rd_kafka_headers_t *headers) : headers_(headers) {
  }
  ~HeadersImpl();

  ErrorCode add(const std::string &key, const void *value, size_t value_size);
  ErrorCode add(const std::string &key, const std::string &value);
  ErrorCode add(const Header &header);
  ErrorCode remove(const std::string &key);
  std::vector<Header> get(const std::string &key) const;
  Header get_last(const std::string &key) const;
  std::vector<Header> get_all() const;
  size_t size() const;

  rd_kafka_headers_t *c_ptr() const {
    return headers_;
  }
  /** A message owns the C headers now. */
  void given_away() {
    headers_ = NULL;
  }

 private:
  HeadersImpl(const HeadersImpl &);
  HeadersImpl &operator=(const HeadersImpl &);

  rd_kafka_headers_t *headers_;
};

class MessageImpl : public Message {
 public:
  enum Ownership {
    BORROWED,
    OWNED
  };

  MessageImpl(rd_kafka_type_t type, Topic *topic, rd_kafka_message_t *message, Ownership ownership);
  /** An error in place of a message. */
  MessageImpl(rd_kafka_type_t type, Topic *topic, ErrorCode err);
  ~MessageImpl();

  /** Converts the result of a consume call. For NULL, the message contains the last error. */
  static Message *of_consume(Topic *topic, rd_kafka_message_t *message);
  /** Returns the Topic of a C message, if the application created one. */
  static Topic *topic_of(const rd_kafka_message_t *message);

  std::string errstr() const;
  ErrorCode err() const;
  Topic *topic() const;
  std::string topic_name() const;
  int32_t partition() const;
  void *payload() const;
  size_t len() const;
  const std::string *key() const;
  const void *key_pointer() const;
  size_t key_len() const;
  int64_t offset() const;
  MessageTimestamp timestamp() const;
  void *msg_opaque() const;
  int64_t latency() const;
  rd_kafka_message_t *c_ptr();
  Status status() const;
  Headers *headers();
  Headers *headers(ErrorCode *err);
  int32_t broker_id() const;
  int32_t leader_epoch() const;
  Error *offset_store();

 private:
  MessageImpl(const MessageImpl &);
  MessageImpl &operator=(const MessageImpl &);

  rd_kafka_type_t type_;
  Topic *topic_;
  rd_kafka_message_t *message_;
  Ownership ownership_;
  /** The target of message_ in place of a message. */
  rd_kafka_message_t none_;
  /** Created on the first request. */
  mutable std::string *key_;
  HeadersImpl *headers_;
};

class QueueImpl : public Queue {
 public:
  explicit QueueImpl(rd_kafka_queue_t *queue) : queue_(queue) {
  }
  ~QueueImpl();

  /** NULL stays NULL. */
  static Queue *of(rd_kafka_queue_t *queue) {
    return queue != NULL ? new QueueImpl(queue) : NULL;
  }
  static rd_kafka_queue_t *c_ptr(Queue *queue) {
    return queue != NULL ? static_cast<QueueImpl *>(queue)->queue_ : NULL;
  }

  ErrorCode forward(Queue *dst);
  Message *consume(int timeout_ms);
  int poll(int timeout_ms);
  void io_event_enable(int fd, const void *payload, size_t size);

 private:
  QueueImpl(const QueueImpl &);
  QueueImpl &operator=(const QueueImpl &);

  rd_kafka_queue_t *queue_;
};

class ConsumerGroupMetadataImpl : public ConsumerGroupMetadata {
 public:
  explicit ConsumerGroupMetadataImpl(rd_kafka_consumer_group_metadata_t *metadata) : metadata_(metadata) {
  }
  ~ConsumerGroupMetadataImpl() {
    rd_kafka_consumer_group_metadata_destroy(metadata_);
  }

  const rd_kafka_consumer_group_metadata_t *c_ptr() const {
    return metadata_;
  }

 private:
  ConsumerGroupMetadataImpl(const ConsumerGroupMetadataImpl &);
  ConsumerGroupMetadataImpl &operator=(const ConsumerGroupMetadataImpl &);

  rd_kafka_consumer_group_metadata_t *metadata_;
};

/** Takes `metadata` over. */
Metadata *metadata_of(const struct rd_kafka_metadata *metadata);

/** C callback of commits; its opaque is an OffsetCommitCb. */
void offsets_committed(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *offsets,
                       void *opaque);

}  // namespace hidden

}  // namespace RdKafka

#endif  // OTTLA_RDKAFKACPP_INTERNAL_H_
