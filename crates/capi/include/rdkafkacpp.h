/*
 * The C++ interface of librdkafka, on Ottla.
 *
 * The names, signatures, values and the order of the virtual functions are librdkafka's, so that programs compiled
 * against its rdkafkacpp.h run with this library. Everything here is a thin layer over rdkafka.h.
 *
 * Three rules hold throughout:
 *  - What a static `create` or a function that says so returns belongs to the caller, who deletes it. Everything else
 *    that is returned by pointer belongs to the object it came from and lives as long.
 *  - Nothing throws. What can fail returns an ErrorCode, or an Error that is NULL on success, or fills `errstr`.
 *  - Callbacks run in the thread that polls, except logs, the partitioner and the socket callbacks.
 *
 * C++03 suffices.
 */
#ifndef _RDKAFKACPP_H_
#define _RDKAFKACPP_H_

#include <stdint.h>
#include <sys/types.h>

#include <cstdlib>
#include <cstring>
#include <list>
#include <string>
#include <vector>

#ifndef RD_EXPORT
#define RD_EXPORT
#endif

extern "C" {
struct rd_kafka_s;
struct rd_kafka_topic_s;
struct rd_kafka_message_s;
struct rd_kafka_conf_s;
struct rd_kafka_topic_conf_s;
struct rd_kafka_share_s;
}

namespace RdKafka {

/** The version of this header: MMmmrrff, major, minor, revision and 0xff for a release. */
#define RD_KAFKA_VERSION 0x021000ff

/** The version of the loaded library, in the form of RD_KAFKA_VERSION. */
RD_EXPORT int version();

/** The version of the loaded library, for people. */
RD_EXPORT std::string version_str();

/** The values that the property `debug` takes, separated by commas. */
RD_EXPORT std::string get_debug_contexts();

/** Waits until all handles that were deleted are really gone; 0, or -1 when `timeout_ms` passed first. */
RD_EXPORT int wait_destroyed(int timeout_ms);

/** Memory of the library's allocator, to be released by mem_free. */
RD_EXPORT void *mem_malloc(size_t size);

/** Releases what mem_malloc gave, and payloads that the library allocated. */
RD_EXPORT void mem_free(void *ptr);

/**
 * What went wrong. Two underscores: this side found it. One underscore: a broker said it, and the number is Kafka's.
 */
enum ErrorCode {
  ERR__BEGIN = -200,
  ERR__BAD_MSG = -199,
  ERR__BAD_COMPRESSION = -198,
  ERR__DESTROY = -197,
  ERR__FAIL = -196,
  ERR__TRANSPORT = -195,
  ERR__CRIT_SYS_RESOURCE = -194,
  ERR__RESOLVE = -193,
  ERR__MSG_TIMED_OUT = -192,
  ERR__PARTITION_EOF = -191,
  ERR__UNKNOWN_PARTITION = -190,
  ERR__FS = -189,
  ERR__UNKNOWN_TOPIC = -188,
  ERR__ALL_BROKERS_DOWN = -187,
  ERR__INVALID_ARG = -186,
  ERR__TIMED_OUT = -185,
  ERR__QUEUE_FULL = -184,
  ERR__ISR_INSUFF = -183,
  ERR__NODE_UPDATE = -182,
  ERR__SSL = -181,
  ERR__WAIT_COORD = -180,
  ERR__UNKNOWN_GROUP = -179,
  ERR__IN_PROGRESS = -178,
  ERR__PREV_IN_PROGRESS = -177,
  ERR__EXISTING_SUBSCRIPTION = -176,
  ERR__ASSIGN_PARTITIONS = -175,
  ERR__REVOKE_PARTITIONS = -174,
  ERR__CONFLICT = -173,
  ERR__STATE = -172,
  ERR__UNKNOWN_PROTOCOL = -171,
  ERR__NOT_IMPLEMENTED = -170,
  ERR__AUTHENTICATION = -169,
  ERR__NO_OFFSET = -168,
  ERR__OUTDATED = -167,
  ERR__TIMED_OUT_QUEUE = -166,
  ERR__UNSUPPORTED_FEATURE = -165,
  ERR__WAIT_CACHE = -164,
  ERR__INTR = -163,
  ERR__KEY_SERIALIZATION = -162,
  ERR__VALUE_SERIALIZATION = -161,
  ERR__KEY_DESERIALIZATION = -160,
  ERR__VALUE_DESERIALIZATION = -159,
  ERR__PARTIAL = -158,
  ERR__READ_ONLY = -157,
  ERR__NOENT = -156,
  ERR__UNDERFLOW = -155,
  ERR__INVALID_TYPE = -154,
  ERR__RETRY = -153,
  ERR__PURGE_QUEUE = -152,
  ERR__PURGE_INFLIGHT = -151,
  ERR__FATAL = -150,
  ERR__INCONSISTENT = -149,
  ERR__GAPLESS_GUARANTEE = -148,
  ERR__MAX_POLL_EXCEEDED = -147,
  ERR__UNKNOWN_BROKER = -146,
  ERR__NOT_CONFIGURED = -145,
  ERR__FENCED = -144,
  ERR__APPLICATION = -143,
  ERR__ASSIGNMENT_LOST = -142,
  ERR__NOOP = -141,
  ERR__AUTO_OFFSET_RESET = -140,
  ERR__LOG_TRUNCATION = -139,
  ERR__INVALID_DIFFERENT_RECORD = -138,
  ERR__DESTROY_BROKER = -137,
  ERR__END = -100,
  ERR_UNKNOWN = -1,
  ERR_NO_ERROR = 0,
  ERR_OFFSET_OUT_OF_RANGE = 1,
  ERR_INVALID_MSG = 2,
  ERR_UNKNOWN_TOPIC_OR_PART = 3,
  ERR_INVALID_MSG_SIZE = 4,
  ERR_LEADER_NOT_AVAILABLE = 5,
  ERR_NOT_LEADER_FOR_PARTITION = 6,
  ERR_REQUEST_TIMED_OUT = 7,
  ERR_BROKER_NOT_AVAILABLE = 8,
  ERR_REPLICA_NOT_AVAILABLE = 9,
  ERR_MSG_SIZE_TOO_LARGE = 10,
  ERR_STALE_CTRL_EPOCH = 11,
  ERR_OFFSET_METADATA_TOO_LARGE = 12,
  ERR_NETWORK_EXCEPTION = 13,
  ERR_COORDINATOR_LOAD_IN_PROGRESS = 14,
#define ERR_GROUP_LOAD_IN_PROGRESS ERR_COORDINATOR_LOAD_IN_PROGRESS
  ERR_COORDINATOR_NOT_AVAILABLE = 15,
#define ERR_GROUP_COORDINATOR_NOT_AVAILABLE ERR_COORDINATOR_NOT_AVAILABLE
  ERR_NOT_COORDINATOR = 16,
#define ERR_NOT_COORDINATOR_FOR_GROUP ERR_NOT_COORDINATOR
  ERR_TOPIC_EXCEPTION = 17,
  ERR_RECORD_LIST_TOO_LARGE = 18,
  ERR_NOT_ENOUGH_REPLICAS = 19,
  ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20,
  ERR_INVALID_REQUIRED_ACKS = 21,
  ERR_ILLEGAL_GENERATION = 22,
  ERR_INCONSISTENT_GROUP_PROTOCOL = 23,
  ERR_INVALID_GROUP_ID = 24,
  ERR_UNKNOWN_MEMBER_ID = 25,
  ERR_INVALID_SESSION_TIMEOUT = 26,
  ERR_REBALANCE_IN_PROGRESS = 27,
  ERR_INVALID_COMMIT_OFFSET_SIZE = 28,
  ERR_TOPIC_AUTHORIZATION_FAILED = 29,
  ERR_GROUP_AUTHORIZATION_FAILED = 30,
  ERR_CLUSTER_AUTHORIZATION_FAILED = 31,
  ERR_INVALID_TIMESTAMP = 32,
  ERR_UNSUPPORTED_SASL_MECHANISM = 33,
  ERR_ILLEGAL_SASL_STATE = 34,
  ERR_UNSUPPORTED_VERSION = 35,
  ERR_TOPIC_ALREADY_EXISTS = 36,
  ERR_INVALID_PARTITIONS = 37,
  ERR_INVALID_REPLICATION_FACTOR = 38,
  ERR_INVALID_REPLICA_ASSIGNMENT = 39,
  ERR_INVALID_CONFIG = 40,
  ERR_NOT_CONTROLLER = 41,
  ERR_INVALID_REQUEST = 42,
  ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT = 43,
  ERR_POLICY_VIOLATION = 44,
  ERR_OUT_OF_ORDER_SEQUENCE_NUMBER = 45,
  ERR_DUPLICATE_SEQUENCE_NUMBER = 46,
  ERR_INVALID_PRODUCER_EPOCH = 47,
  ERR_INVALID_TXN_STATE = 48,
  ERR_INVALID_PRODUCER_ID_MAPPING = 49,
  ERR_INVALID_TRANSACTION_TIMEOUT = 50,
  ERR_CONCURRENT_TRANSACTIONS = 51,
  ERR_TRANSACTION_COORDINATOR_FENCED = 52,
  ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53,
  ERR_SECURITY_DISABLED = 54,
  ERR_OPERATION_NOT_ATTEMPTED = 55,
  ERR_KAFKA_STORAGE_ERROR = 56,
  ERR_LOG_DIR_NOT_FOUND = 57,
  ERR_SASL_AUTHENTICATION_FAILED = 58,
  ERR_UNKNOWN_PRODUCER_ID = 59,
  ERR_REASSIGNMENT_IN_PROGRESS = 60,
  ERR_DELEGATION_TOKEN_AUTH_DISABLED = 61,
  ERR_DELEGATION_TOKEN_NOT_FOUND = 62,
  ERR_DELEGATION_TOKEN_OWNER_MISMATCH = 63,
  ERR_DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64,
  ERR_DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65,
  ERR_DELEGATION_TOKEN_EXPIRED = 66,
  ERR_INVALID_PRINCIPAL_TYPE = 67,
  ERR_NON_EMPTY_GROUP = 68,
  ERR_GROUP_ID_NOT_FOUND = 69,
  ERR_FETCH_SESSION_ID_NOT_FOUND = 70,
  ERR_INVALID_FETCH_SESSION_EPOCH = 71,
  ERR_LISTENER_NOT_FOUND = 72,
  ERR_TOPIC_DELETION_DISABLED = 73,
  ERR_FENCED_LEADER_EPOCH = 74,
  ERR_UNKNOWN_LEADER_EPOCH = 75,
  ERR_UNSUPPORTED_COMPRESSION_TYPE = 76,
  ERR_STALE_BROKER_EPOCH = 77,
  ERR_OFFSET_NOT_AVAILABLE = 78,
  ERR_MEMBER_ID_REQUIRED = 79,
  ERR_PREFERRED_LEADER_NOT_AVAILABLE = 80,
  ERR_GROUP_MAX_SIZE_REACHED = 81,
  ERR_FENCED_INSTANCE_ID = 82,
  ERR_ELIGIBLE_LEADERS_NOT_AVAILABLE = 83,
  ERR_ELECTION_NOT_NEEDED = 84,
  ERR_NO_REASSIGNMENT_IN_PROGRESS = 85,
  ERR_GROUP_SUBSCRIBED_TO_TOPIC = 86,
  ERR_INVALID_RECORD = 87,
  ERR_UNSTABLE_OFFSET_COMMIT = 88,
  ERR_THROTTLING_QUOTA_EXCEEDED = 89,
  ERR_PRODUCER_FENCED = 90,
  ERR_RESOURCE_NOT_FOUND = 91,
  ERR_DUPLICATE_RESOURCE = 92,
  ERR_UNACCEPTABLE_CREDENTIAL = 93,
  ERR_INCONSISTENT_VOTER_SET = 94,
  ERR_INVALID_UPDATE_VERSION = 95,
  ERR_FEATURE_UPDATE_FAILED = 96,
  ERR_PRINCIPAL_DESERIALIZATION_FAILURE = 97,
  ERR_UNKNOWN_TOPIC_ID = 100,
  ERR_FENCED_MEMBER_EPOCH = 110,
  ERR_UNRELEASED_INSTANCE_ID = 111,
  ERR_UNSUPPORTED_ASSIGNOR = 112,
  ERR_STALE_MEMBER_EPOCH = 113,
  ERR_UNKNOWN_SUBSCRIPTION_ID = 117,
  ERR_TELEMETRY_TOO_LARGE = 118,
  ERR_REBOOTSTRAP_REQUIRED = 129
};

/** A sentence for people. */
RD_EXPORT std::string err2str(RdKafka::ErrorCode err);

/** What Conf::set_ssl_cert is given. */
enum CertificateType {
  CERT_PUBLIC_KEY,  /**< The client's certificate. */
  CERT_PRIVATE_KEY, /**< The client's key. */
  CERT_CA,          /**< Certificates to trust. */
  CERT__CNT
};

/** In which form. */
enum CertificateEncoding {
  CERT_ENC_PKCS12,
  CERT_ENC_DER,
  CERT_ENC_PEM,
  CERT_ENC__CNT
};

class Handle;
class Producer;
class Message;
class Headers;
class Queue;
class Event;
class Topic;
class TopicPartition;
class Metadata;
class KafkaConsumer;

/** An error with its flags. Whoever receives one deletes it. */
class RD_EXPORT Error {
 public:
  /** An error with `code`; without `errstr` it says what err2str says. */
  static Error *create(ErrorCode code, const std::string *errstr);

  virtual ~Error() {
  }

  virtual ErrorCode code() const = 0;
  /** The code's name, such as `_QUEUE_FULL`. */
  virtual std::string name() const = 0;
  /** What happened, for people. */
  virtual std::string str() const = 0;
  /** The client is of no more use. */
  virtual bool is_fatal() const = 0;
  /** The same call may succeed later. */
  virtual bool is_retriable() const = 0;
  /** The transaction must be aborted before anything else. */
  virtual bool txn_requires_abort() const = 0;
};

/** Told of every produced message once: delivered or failed. Property `dr_cb`. */
class RD_EXPORT DeliveryReportCb {
 public:
  /** `message` lives until this returns. */
  virtual void dr_cb(Message &message) = 0;

  virtual ~DeliveryReportCb() {
  }
};

/** Asked for a new token when the old one expires. Property `oauthbearer_token_refresh_cb`. */
class RD_EXPORT OAuthBearerTokenRefreshCb {
 public:
  /** Calls Handle::oauthbearer_set_token or Handle::oauthbearer_set_token_failure, now or later. */
  virtual void oauthbearer_token_refresh_cb(RdKafka::Handle *handle, const std::string &oauthbearer_config) = 0;

  virtual ~OAuthBearerTokenRefreshCb() {
  }
};

/** Chooses partitions. Property `partitioner_cb` of a topic's configuration. */
class RD_EXPORT PartitionerCb {
 public:
  /**
   * A partition from 0 to `partition_cnt` - 1, or Topic::PARTITION_UA when there is none to be chosen.
   *
   * Runs in any thread, possibly several times for one message, and must neither block nor call this library, except
   * for Topic::partition_available. `key` is NULL when the message has none.
   */
  virtual int32_t partitioner_cb(const Topic *topic,
                                 const std::string *key,
                                 int32_t partition_cnt,
                                 void *msg_opaque) = 0;

  virtual ~PartitionerCb() {
  }
};

/** Like PartitionerCb, but is given the key's bytes where they lie. Property `partitioner_key_pointer_cb`. */
class PartitionerKeyPointerCb {
 public:
  virtual int32_t partitioner_cb(const Topic *topic,
                                 const void *key,
                                 size_t key_len,
                                 int32_t partition_cnt,
                                 void *msg_opaque) = 0;

  virtual ~PartitionerKeyPointerCb() {
  }
};

/** Told of errors, statistics, log lines and throttling. Property `event_cb`. */
class RD_EXPORT EventCb {
 public:
  /** `event` lives until this returns. */
  virtual void event_cb(Event &event) = 0;

  virtual ~EventCb() {
  }
};

/** What an EventCb is told. */
class RD_EXPORT Event {
 public:
  enum Type {
    EVENT_ERROR,
    EVENT_STATS,
    EVENT_LOG,
    EVENT_THROTTLE
  };

  /** Of log lines: syslog's levels. */
  enum Severity {
    EVENT_SEVERITY_EMERG = 0,
    EVENT_SEVERITY_ALERT = 1,
    EVENT_SEVERITY_CRITICAL = 2,
    EVENT_SEVERITY_ERROR = 3,
    EVENT_SEVERITY_WARNING = 4,
    EVENT_SEVERITY_NOTICE = 5,
    EVENT_SEVERITY_INFO = 6,
    EVENT_SEVERITY_DEBUG = 7
  };

  virtual ~Event() {
  }

  virtual Type type() const = 0;
  /** Of EVENT_ERROR. */
  virtual ErrorCode err() const = 0;
  /** Of EVENT_LOG. */
  virtual Severity severity() const = 0;
  /** Of EVENT_LOG: the facility, such as `FAIL`. */
  virtual std::string fac() const = 0;
  /** The error's or log line's text, or the statistics as JSON. */
  virtual std::string str() const = 0;
  /** Of EVENT_THROTTLE, in milliseconds. */
  virtual int throttle_time() const = 0;
  /** Of EVENT_THROTTLE. */
  virtual std::string broker_name() const = 0;
  /** Of EVENT_THROTTLE. */
  virtual int broker_id() const = 0;
  /** Of EVENT_ERROR: the client is of no more use, and err() says why. */
  virtual bool fatal() const = 0;
};

/** Given each message of Consumer::consume_callback. */
class RD_EXPORT ConsumeCb {
 public:
  /** `message` lives until this returns. */
  virtual void consume_cb(Message &message, void *opaque) = 0;

  virtual ~ConsumeCb() {
  }
};

/** Told of partitions given and taken, inside KafkaConsumer::consume. Property `rebalance_cb`. */
class RD_EXPORT RebalanceCb {
 public:
  /**
   * ERR__ASSIGN_PARTITIONS: answer with assign(partitions), or with incremental_assign(partitions) when
   * rebalance_protocol() is COOPERATIVE. ERR__REVOKE_PARTITIONS: commit what is to be committed, then unassign() or
   * incremental_unassign(partitions). Anything else: unassign().
   */
  virtual void rebalance_cb(RdKafka::KafkaConsumer *consumer,
                            RdKafka::ErrorCode err,
                            std::vector<TopicPartition *> &partitions) = 0;

  virtual ~RebalanceCb() {
  }
};

/** Told how commits went. Property `offset_commit_cb`. */
class RD_EXPORT OffsetCommitCb {
 public:
  /** ERR__NO_OFFSET: there was nothing to commit. Each of `offsets` has an error of its own besides. */
  virtual void offset_commit_cb(RdKafka::ErrorCode err, std::vector<TopicPartition *> &offsets) = 0;

  virtual ~OffsetCommitCb() {
  }
};

/** Judges brokers' certificates. Property `ssl_cert_verify_cb`. */
class RD_EXPORT SslCertificateVerifyCb {
 public:
  /**
   * Whether the certificate in `buf` (DER), `depth` steps above the broker's own, is to be trusted; if not, `errstr`
   * says why. `x509_error` is what the library found: a certificate with an error is only trusted if the function sets it
   * to 0 as well. Runs in a thread of the library.
   */
  virtual bool ssl_cert_verify_cb(const std::string &broker_name,
                                  int32_t broker_id,
                                  int *x509_error,
                                  int depth,
                                  const char *buf,
                                  size_t size,
                                  std::string &errstr) = 0;

  virtual ~SslCertificateVerifyCb() {
  }
};

/** Opens sockets. Property `socket_cb`. */
class RD_EXPORT SocketCb {
 public:
  /** A file descriptor, or -1. Runs in a thread of the library. */
  virtual int socket_cb(int domain, int type, int protocol) = 0;

  virtual ~SocketCb() {
  }
};

/** Opens files. Property `open_cb`. */
class RD_EXPORT OpenCb {
 public:
  /** A file descriptor, or -1. Runs in a thread of the library. */
  virtual int open_cb(const std::string &path, int flags, int mode) = 0;

  virtual ~OpenCb() {
  }
};

/**
 * Properties of a client, or of a topic. Clients and topics copy what they are made with: a Conf can be used again,
 * and is deleted by who made it. The callbacks must live as long as the clients made with them.
 */
class RD_EXPORT Conf {
 public:
  enum ConfType {
    CONF_GLOBAL, /**< For clients; takes topics' properties too, as defaults of their topics. */
    CONF_TOPIC   /**< For Topic::create. */
  };

  enum ConfResult {
    CONF_UNKNOWN = -2, /**< There is no such property. */
    CONF_INVALID = -1, /**< The property does not take this value. */
    CONF_OK      = 0
  };

  static Conf *create(ConfType type);

  virtual ~Conf() {
  }

  /** Sets a property. When it cannot be set, `errstr` names it and says why. */
  virtual Conf::ConfResult set(const std::string &name, const std::string &value, std::string &errstr) = 0;
  /** `dr_cb` */
  virtual Conf::ConfResult set(const std::string &name, DeliveryReportCb *dr_cb, std::string &errstr) = 0;
  /** `oauthbearer_token_refresh_cb` */
  virtual Conf::ConfResult set(const std::string &name,
                               OAuthBearerTokenRefreshCb *oauthbearer_token_refresh_cb,
                               std::string &errstr) = 0;
  /** `event_cb` */
  virtual Conf::ConfResult set(const std::string &name, EventCb *event_cb, std::string &errstr) = 0;
  /** `default_topic_conf`: what topics without a configuration of their own get. It is copied. */
  virtual Conf::ConfResult set(const std::string &name, const Conf *topic_conf, std::string &errstr) = 0;
  /** `partitioner_cb`, of a topic's configuration */
  virtual Conf::ConfResult set(const std::string &name, PartitionerCb *partitioner_cb, std::string &errstr) = 0;
  /** `partitioner_key_pointer_cb`, of a topic's configuration */
  virtual Conf::ConfResult set(const std::string &name,
                               PartitionerKeyPointerCb *partitioner_kp_cb,
                               std::string &errstr) = 0;
  /** `socket_cb` */
  virtual Conf::ConfResult set(const std::string &name, SocketCb *socket_cb, std::string &errstr) = 0;
  /** `open_cb` */
  virtual Conf::ConfResult set(const std::string &name, OpenCb *open_cb, std::string &errstr) = 0;
  /** `rebalance_cb` */
  virtual Conf::ConfResult set(const std::string &name, RebalanceCb *rebalance_cb, std::string &errstr) = 0;
  /** `offset_commit_cb` */
  virtual Conf::ConfResult set(const std::string &name, OffsetCommitCb *offset_commit_cb, std::string &errstr) = 0;
  /** `ssl_cert_verify_cb` */
  virtual Conf::ConfResult set(const std::string &name,
                               SslCertificateVerifyCb *ssl_cert_verify_cb,
                               std::string &errstr) = 0;
  /** A certificate or key from memory instead of a file; a NULL `buffer` takes it back. */
  virtual Conf::ConfResult set_ssl_cert(RdKafka::CertificateType cert_type,
                                        RdKafka::CertificateEncoding cert_enc,
                                        const void *buffer,
                                        size_t size,
                                        std::string &errstr) = 0;
  /** The value of a property, given or default. */
  virtual Conf::ConfResult get(const std::string &name, std::string &value) const = 0;
  /** The callbacks that were set, or NULL. */
  virtual Conf::ConfResult get(DeliveryReportCb *&dr_cb) const = 0;
  virtual Conf::ConfResult get(OAuthBearerTokenRefreshCb *&oauthbearer_token_refresh_cb) const = 0;
  virtual Conf::ConfResult get(EventCb *&event_cb) const = 0;
  virtual Conf::ConfResult get(PartitionerCb *&partitioner_cb) const = 0;
  virtual Conf::ConfResult get(PartitionerKeyPointerCb *&partitioner_kp_cb) const = 0;
  virtual Conf::ConfResult get(SocketCb *&socket_cb) const = 0;
  virtual Conf::ConfResult get(OpenCb *&open_cb) const = 0;
  virtual Conf::ConfResult get(RebalanceCb *&rebalance_cb) const = 0;
  virtual Conf::ConfResult get(OffsetCommitCb *&offset_commit_cb) const = 0;
  virtual Conf::ConfResult get(SslCertificateVerifyCb *&ssl_cert_verify_cb) const = 0;
  /** All properties: name, value, name, value. The caller deletes the list. */
  virtual std::list<std::string> *dump() = 0;
  /** `consume_cb` */
  virtual Conf::ConfResult set(const std::string &name, ConsumeCb *consume_cb, std::string &errstr) = 0;
  /** The C object below, or NULL when this is a topic's configuration. It remains this object's. */
  virtual struct rd_kafka_conf_s *c_ptr_global() = 0;
  /** The C object below, or NULL when this is a client's configuration. It remains this object's. */
  virtual struct rd_kafka_topic_conf_s *c_ptr_topic() = 0;
  /** What TLS engines are given as callback data. */
  virtual Conf::ConfResult set_engine_callback_data(void *value, std::string &errstr) = 0;
  /** Whether token refreshes are served by a queue of their own: Handle::get_sasl_queue. */
  virtual Conf::ConfResult enable_sasl_queue(bool enable, std::string &errstr) = 0;
};

/** What producers and consumers have in common. All of it may be called from any thread. */
class RD_EXPORT Handle {
 public:
  virtual ~Handle() {
  }

  virtual std::string name() const = 0;
  /** The group's name for this member, empty without a group. */
  virtual std::string memberid() const = 0;
  /** Waits up to `timeout_ms` (-1: for ever) for something to happen, runs its callbacks; how many it served. */
  virtual int poll(int timeout_ms) = 0;
  /** How many messages and requests are under way, and delivery reports not yet served. */
  virtual int outq_len() = 0;
  /** Brokers and topics: all, or `only_rkt`, or those this client uses. The caller deletes `*metadatap`. */
  virtual ErrorCode metadata(bool all_topics, const Topic *only_rkt, Metadata **metadatap, int timeout_ms) = 0;
  /** Stops delivering these partitions until resume; each gets its result. */
  virtual ErrorCode pause(std::vector<TopicPartition *> &partitions) = 0;
  virtual ErrorCode resume(std::vector<TopicPartition *> &partitions) = 0;
  /** Asks the leader for the first offset and the one after the last. */
  virtual ErrorCode query_watermark_offsets(const std::string &topic,
                                            int32_t partition,
                                            int64_t *low,
                                            int64_t *high,
                                            int timeout_ms) = 0;
  /** The same, as last seen by this consumer; Topic::OFFSET_INVALID is unknown. */
  virtual ErrorCode get_watermark_offsets(const std::string &topic,
                                          int32_t partition,
                                          int64_t *low,
                                          int64_t *high) = 0;
  /** Replaces each offset, taken as a timestamp in milliseconds, by the first offset not before it. */
  virtual ErrorCode offsetsForTimes(std::vector<TopicPartition *> &offsets, int timeout_ms) = 0;
  /** The queue of one partition alone, or NULL. The caller deletes it. */
  virtual Queue *get_partition_queue(const TopicPartition *partition) = 0;
  /** Where log lines go when `log.queue` is true; NULL: to poll(). */
  virtual ErrorCode set_log_queue(Queue *queue) = 0;
  /** Called from a callback: the poll that runs it returns next. */
  virtual void yield() = 0;
  /** The cluster's id, or an empty string when it is not known within `timeout_ms`. */
  virtual std::string clusterid(int timeout_ms) = 0;
  /** The C object below. It remains this object's. */
  virtual struct rd_kafka_s *c_ptr() = 0;
  /** The controller's broker id, or -1 when it is not known within `timeout_ms`. */
  virtual int32_t controllerid(int timeout_ms) = 0;
  /** The first fatal error with its text, or ERR_NO_ERROR. */
  virtual ErrorCode fatal_error(std::string &errstr) const = 0;
  /** A token for SASL/OAUTHBEARER; `extensions` is key, value, key, value. */
  virtual ErrorCode oauthbearer_set_token(const std::string &token_value,
                                          int64_t md_lifetime_ms,
                                          const std::string &md_principal_name,
                                          const std::list<std::string> &extensions,
                                          std::string &errstr) = 0;
  /** No token could be had; the refresh callback is asked again after 10 s. */
  virtual ErrorCode oauthbearer_set_token_failure(const std::string &errstr) = 0;
  /** Token refreshes run in the background thread from now on. */
  virtual Error *sasl_background_callbacks_enable() = 0;
  /** The queue of Conf::enable_sasl_queue, or NULL. The caller deletes it. */
  virtual Queue *get_sasl_queue() = 0;
  /** The background thread's queue, or NULL. The caller deletes it. */
  virtual Queue *get_background_queue() = 0;
  virtual void *mem_malloc(size_t size) = 0;
  virtual void mem_free(void *ptr) = 0;
  /** New user name and password; connections made from now on use them. */
  virtual Error *sasl_set_credentials(const std::string &username, const std::string &password) = 0;
};

/** A partition of a topic, with an offset, an error and what else is said of it. */
class RD_EXPORT TopicPartition {
 public:
  static TopicPartition *create(const std::string &topic, int partition);
  static TopicPartition *create(const std::string &topic, int partition, int64_t offset);

  virtual ~TopicPartition() = 0;

  /** Deletes all of them and empties the vector. */
  static void destroy(std::vector<TopicPartition *> &partitions);

  virtual const std::string &topic() const = 0;
  virtual int partition() const = 0;
  virtual int64_t offset() const = 0;
  virtual void set_offset(int64_t offset) = 0;
  virtual ErrorCode err() const = 0;
  /** The epoch of the leader that wrote the message before the offset, or -1. */
  virtual int32_t get_leader_epoch() = 0;
  virtual void set_leader_epoch(int32_t leader_epoch) = 0;
  /** What is committed along with the offset. */
  virtual std::vector<unsigned char> get_metadata() = 0;
  virtual void set_metadata(std::vector<unsigned char> &metadata) = 0;
};

/** A topic of a client. Delete it before its client. */
class RD_EXPORT Topic {
 public:
  /** The partitioner chooses. */
  static const int32_t PARTITION_UA;
  static const int64_t OFFSET_BEGINNING;
  static const int64_t OFFSET_END;
  /** Where the group, or the offset file, stands. */
  static const int64_t OFFSET_STORED;
  static const int64_t OFFSET_INVALID;

  /** With `conf`, which may be NULL, of type Conf::CONF_TOPIC. NULL and `errstr` when it cannot be. */
  static Topic *create(Handle *base, const std::string &topic_str, const Conf *conf, std::string &errstr);

  virtual ~Topic() = 0;

  virtual std::string name() const = 0;
  /** Whether the partition has a leader. To be called in partitioners only. */
  virtual bool partition_available(int32_t partition) const = 0;
  /** Stores `offset` + 1, to be committed; `enable.auto.offset.store` must be false. */
  virtual ErrorCode offset_store(int32_t partition, int64_t offset) = 0;
  /** The C object below. It remains this object's. */
  virtual struct rd_kafka_topic_s *c_ptr() = 0;
};

/** When a message was made or written. */
class RD_EXPORT MessageTimestamp {
 public:
  enum MessageTimestampType {
    MSG_TIMESTAMP_NOT_AVAILABLE,
    MSG_TIMESTAMP_CREATE_TIME,
    MSG_TIMESTAMP_LOG_APPEND_TIME
  };

  MessageTimestampType type;
  /** Milliseconds since 1970, UTC. */
  int64_t timestamp;
};

/** A message's headers, in order; keys may repeat. */
class RD_EXPORT Headers {
 public:
  virtual ~Headers() = 0;

  /** A key with a copy of a value. */
  class Header {
   public:
    Header(const std::string &key, const void *value, size_t value_size) :
        key_(key), err_(ERR_NO_ERROR), value_(duplicate(value, value_size)), value_size_(value_size) {
    }

    /** An `err` instead of a value: what get_last gives when there is no such key. */
    Header(const std::string &key, const void *value, size_t value_size, const RdKafka::ErrorCode err) :
        key_(key),
        err_(err),
        value_(err == ERR_NO_ERROR ? duplicate(value, value_size) : NULL),
        value_size_(value_size) {
    }

    Header(const Header &other) :
        key_(other.key_),
        err_(other.err_),
        value_(duplicate(other.value_, other.value_size_)),
        value_size_(other.value_size_) {
    }

    Header &operator=(const Header &other) {
      if (this != &other) {
        char *copy = duplicate(other.value_, other.value_size_);
        release();
        key_        = other.key_;
        err_        = other.err_;
        value_      = copy;
        value_size_ = other.value_size_;
      }
      return *this;
    }

    ~Header() {
      release();
    }

    std::string key() const {
      return key_;
    }

    /** NULL when the value is null. */
    const void *value() const {
      return value_;
    }

    /** The value, which a zero follows. */
    const char *value_string() const {
      return value_;
    }

    size_t value_size() const {
      return value_size_;
    }

    RdKafka::ErrorCode err() const {
      return err_;
    }

   private:
    static char *duplicate(const void *value, size_t size) {
      if (value == NULL)
        return NULL;
      char *copy = static_cast<char *>(mem_malloc(size + 1));
      if (size != 0)
        memcpy(copy, value, size);
      copy[size] = '\0';
      return copy;
    }

    void release() {
      if (value_ != NULL)
        mem_free(value_);
    }

    std::string key_;
    RdKafka::ErrorCode err_;
    char *value_;
    size_t value_size_;

    void *operator new(size_t);
  };

  static Headers *create();
  static Headers *create(const std::vector<Header> &headers);

  virtual ErrorCode add(const std::string &key, const void *value, size_t value_size) = 0;
  virtual ErrorCode add(const std::string &key, const std::string &value) = 0;
  virtual ErrorCode add(const Header &header) = 0;
  /** Removes all headers with this key; ERR__NOENT when there is none. */
  virtual ErrorCode remove(const std::string &key) = 0;
  virtual std::vector<Header> get(const std::string &key) const = 0;
  /** The last one with this key; its err() is ERR__NOENT when there is none. */
  virtual Header get_last(const std::string &key) const = 0;
  virtual std::vector<Header> get_all() const = 0;
  virtual size_t size() const = 0;
};

/** A consumed message, a delivery report, or what there is instead of a message: see err(). */
class RD_EXPORT Message {
 public:
  /** Of delivery reports: whether the message is in the log. */
  enum Status {
    MSG_STATUS_NOT_PERSISTED      = 0,
    MSG_STATUS_POSSIBLY_PERSISTED = 1,
    MSG_STATUS_PERSISTED          = 2
  };

  virtual std::string errstr() const = 0;
  /** ERR_NO_ERROR: this is a message. Otherwise payload() is no payload. */
  virtual ErrorCode err() const = 0;
  /** NULL when the application has made no Topic: see topic_name(). */
  virtual Topic *topic() const = 0;
  virtual std::string topic_name() const = 0;
  virtual int32_t partition() const = 0;
  /** NULL when the value is null. */
  virtual void *payload() const = 0;
  virtual size_t len() const = 0;
  /** NULL when the key is null. */
  virtual const std::string *key() const = 0;
  virtual const void *key_pointer() const = 0;
  virtual size_t key_len() const = 0;
  virtual int64_t offset() const = 0;
  virtual MessageTimestamp timestamp() const = 0;
  /** Of delivery reports: what was passed to produce. */
  virtual void *msg_opaque() const = 0;
  virtual ~Message() = 0;
  /** Of delivery reports: microseconds since produce. */
  virtual int64_t latency() const = 0;
  /** The C object below. It remains this object's. */
  virtual struct rd_kafka_message_s *c_ptr() = 0;
  virtual Status status() const = 0;
  /** NULL when there are none. They remain the message's. */
  virtual RdKafka::Headers *headers() = 0;
  virtual RdKafka::Headers *headers(RdKafka::ErrorCode *err) = 0;
  /** The broker it came from or went to, or -1. */
  virtual int32_t broker_id() const = 0;
  /** Of consumed messages: the leader's epoch, or -1. */
  virtual int32_t leader_epoch() const = 0;
  /** Of consumed messages: stores offset() + 1, to be committed. */
  virtual Error *offset_store() = 0;
};

/** Where messages and events wait. Delete it before its client. */
class RD_EXPORT Queue {
 public:
  static Queue *create(Handle *handle);

  /** What comes here goes to `dst` from now on; NULL ends that. */
  virtual ErrorCode forward(Queue *dst) = 0;
  /** The next message. The caller deletes it; its err() is ERR__TIMED_OUT when there was none. */
  virtual Message *consume(int timeout_ms) = 0;
  /** Runs the callbacks of what waits here; how many. Not for queues with messages. */
  virtual int poll(int timeout_ms) = 0;
  virtual ~Queue() = 0;
  /**
   * Writes `payload` to `fd` when something comes, and not again before the queue is polled: poll it
   * until it is empty. `fd` must not block; -1 ends that.
   */
  virtual void io_event_enable(int fd, const void *payload, size_t size) = 0;
};

/** A consumer's membership, for Producer::send_offsets_to_transaction. */
class RD_EXPORT ConsumerGroupMetadata {
 public:
  virtual ~ConsumerGroupMetadata() = 0;
};

/** A consumer, in a group or with partitions that the application assigns. */
class RD_EXPORT KafkaConsumer : public virtual Handle {
 public:
  /** `conf` must name a `group.id`. NULL and `errstr` when it cannot be. */
  static KafkaConsumer *create(const Conf *conf, std::string &errstr);

  /** Does not leave the group: call close() first. */
  virtual ~KafkaConsumer() = 0;

  /** The caller destroys `partitions`. */
  virtual ErrorCode assignment(std::vector<RdKafka::TopicPartition *> &partitions) = 0;
  virtual ErrorCode subscription(std::vector<std::string> &topics) = 0;
  /** Topics by name, or by a regular expression where a name begins with `^`. */
  virtual ErrorCode subscribe(const std::vector<std::string> &topics) = 0;
  virtual ErrorCode unsubscribe() = 0;
  virtual ErrorCode assign(const std::vector<TopicPartition *> &partitions) = 0;
  virtual ErrorCode unassign() = 0;
  /** The next message or event; never NULL. The caller deletes it; its err() is ERR__TIMED_OUT when there was none. */
  virtual Message *consume(int timeout_ms) = 0;
  /** Commits what is stored, of all assigned partitions, and waits for the answer. */
  virtual ErrorCode commitSync() = 0;
  virtual ErrorCode commitAsync() = 0;
  /** Commits the offset after `message`. */
  virtual ErrorCode commitSync(Message *message) = 0;
  virtual ErrorCode commitAsync(Message *message) = 0;
  /** Commits these offsets; each gets its result. */
  virtual ErrorCode commitSync(std::vector<TopicPartition *> &offsets) = 0;
  virtual ErrorCode commitAsync(const std::vector<TopicPartition *> &offsets) = 0;
  /** Like commitSync(), and the callback is called, in this thread, before it returns. */
  virtual ErrorCode commitSync(OffsetCommitCb *offset_commit_cb) = 0;
  virtual ErrorCode commitSync(std::vector<TopicPartition *> &offsets, OffsetCommitCb *offset_commit_cb) = 0;
  /** Asks the group's coordinator where the group stands; Topic::OFFSET_INVALID: nowhere. */
  virtual ErrorCode committed(std::vector<TopicPartition *> &partitions, int timeout_ms) = 0;
  /** The offset after the last message that the application was given; Topic::OFFSET_INVALID: none. */
  virtual ErrorCode position(std::vector<TopicPartition *> &partitions) = 0;
  /** Revokes, commits and leaves, and waits for it; rebalance callbacks run meanwhile, in this thread. */
  virtual ErrorCode close() = 0;
  virtual ErrorCode seek(const TopicPartition &partition, int timeout_ms) = 0;
  /** Offsets to be committed next; `enable.auto.offset.store` must be false. */
  virtual ErrorCode offsets_store(std::vector<TopicPartition *> &offsets) = 0;
  /** The caller deletes it. */
  virtual ConsumerGroupMetadata *groupMetadata() = 0;
  /** Inside a rebalance callback: the partitions were lost, and commits are in vain. */
  virtual bool assignment_lost() = 0;
  /** NONE, EAGER or COOPERATIVE. */
  virtual std::string rebalance_protocol() = 0;
  virtual Error *incremental_assign(const std::vector<TopicPartition *> &partitions) = 0;
  virtual Error *incremental_unassign(const std::vector<TopicPartition *> &partitions) = 0;
  /** Begins to close; what comes of it is served from `queue`, until closed(). */
  virtual Error *close(Queue *queue) = 0;
  virtual bool closed() = 0;
};

/** Gets the results of a share consumer's acknowledgements. ShareConsumer::set_acknowledgement_commit_cb. */
class RD_EXPORT AcknowledgementCommitCb {
 public:
  /**
   * These offsets of `partition` are acknowledged, or failed with `err`. A call of poll(), commitSync(), commitAsync(), close() or
   * the destructor makes it, in its thread. Functions of the consumer return ERR__STATE inside. The consumer can be deleted inside.
   */
  virtual void acknowledgement_commit_cb(const TopicPartition &partition,
                                         const std::vector<int64_t> &offsets,
                                         ErrorCode err) = 0;

  virtual ~AcknowledgementCommitCb() {
  }
};

/** The messages of one ShareConsumer::poll. They are destroyed with it. */
class RD_EXPORT MessageBatch {
 public:
  virtual ~MessageBatch() = 0;

  virtual size_t size() const = 0;
  /** The message at this index, which belongs to the batch; NULL if there is none. */
  virtual Message *message(size_t index) const = 0;
  /** The number of deliveries of that message to members of the group, with this one; 0 if there is none. */
  virtual int16_t delivery_count(size_t index) const = 0;
};

/**
 * A consumer of a share group (KIP-932): the group delivers each record to one of its members, and again until a member accepts or
 * rejects it. The original library has no such class. One thread at a time uses a share consumer.
 */
class RD_EXPORT ShareConsumer {
 public:
  enum AcknowledgeType {
    ACKNOWLEDGE_ACCEPT  = 1, /**< The record is processed. */
    ACKNOWLEDGE_RELEASE = 2, /**< The record is delivered again. */
    ACKNOWLEDGE_REJECT  = 3  /**< The record is not delivered again. */
  };

  /** Creates a share consumer; NULL with the reason in `errstr`. `conf` must name a `group.id`. */
  static ShareConsumer *create(const Conf *conf, std::string &errstr);

  /**
   * Closes the consumer if that was not done. Batches can be deleted later. During another call, of a callback or of another thread,
   * the destructor returns at once, and the consumer ends when that call returns. The objects for callbacks must live until then.
   * Calls of the C interface are not known here: a consumer that one of them uses meanwhile is not destroyed.
   */
  virtual ~ShareConsumer() = 0;

  /** Replaces the subscription, by names of topics. */
  virtual ErrorCode subscribe(const std::vector<std::string> &topics) = 0;
  virtual ErrorCode unsubscribe() = 0;
  virtual ErrorCode subscription(std::vector<std::string> &topics) = 0;
  /**
   * Stores the next records in `batch`, or NULL if none come within `timeout_ms`. The caller deletes both the batch and the error.
   * With `share.acknowledgement.mode=implicit` it accepts the records of the last poll.
   */
  virtual Error *poll(int timeout_ms, MessageBatch *&batch) = 0;
  /** Acknowledges a record of the last polls, with `share.acknowledgement.mode=explicit`. */
  virtual ErrorCode acknowledge(Message *message, AcknowledgeType type) = 0;
  virtual ErrorCode acknowledge(const std::string &topic, int32_t partition, int64_t offset, AcknowledgeType type) = 0;
  /** Sends the acknowledgements and waits up to `timeout_ms`. The caller deletes the partitions in `results`, which have errors. */
  virtual Error *commitSync(int timeout_ms, std::vector<TopicPartition *> &results) = 0;
  /** Sends the acknowledgements without waiting. */
  virtual Error *commitAsync() = 0;
  /** Sets the object that gets the results of acknowledgements; NULL removes it. It must live as long as the consumer. */
  virtual Error *set_acknowledgement_commit_cb(AcknowledgementCommitCb *cb) = 0;
  /** Sends acknowledgements, releases the other records, leaves the group and waits for it. */
  virtual Error *close() = 0;
  /** Begins to close. Callbacks run in polls of `queue`, until closed(). */
  virtual Error *close(Queue *queue) = 0;
  virtual bool closed() = 0;
  /** Sends log lines to `queue`, with `log.queue`. */
  virtual Error *set_log_queue(Queue *queue) = 0;
  virtual Error *sasl_set_credentials(const std::string &username, const std::string &password) = 0;
  virtual Error *sasl_background_callbacks_enable() = 0;
  /** The caller deletes it. */
  virtual Queue *get_sasl_queue() = 0;
  virtual ErrorCode oauthbearer_set_token(const std::string &token_value,
                                          int64_t md_lifetime_ms,
                                          const std::string &md_principal_name,
                                          const std::list<std::string> &extensions,
                                          std::string &errstr) = 0;
  virtual ErrorCode oauthbearer_set_token_failure(const std::string &errstr) = 0;
  /** The handle of the C interface. */
  virtual struct rd_kafka_share_s *c_ptr() = 0;
};

/** The simple consumer: partitions are started and stopped one by one, without a group. */
class RD_EXPORT Consumer : public virtual Handle {
 public:
  static Consumer *create(const Conf *conf, std::string &errstr);

  virtual ~Consumer() = 0;

  /** Fetches a partition from `offset` on: a number, Topic::OFFSET_BEGINNING and so on, or OffsetTail(n). */
  virtual ErrorCode start(Topic *topic, int32_t partition, int64_t offset) = 0;
  /** The same; its messages go to `queue`. */
  virtual ErrorCode start(Topic *topic, int32_t partition, int64_t offset, Queue *queue) = 0;
  virtual ErrorCode stop(Topic *topic, int32_t partition) = 0;
  virtual ErrorCode seek(Topic *topic, int32_t partition, int64_t offset, int timeout_ms) = 0;
  /** The next message; never NULL. The caller deletes it; its err() is ERR__TIMED_OUT when there was none. */
  virtual Message *consume(Topic *topic, int32_t partition, int timeout_ms) = 0;
  virtual Message *consume(Queue *queue, int timeout_ms) = 0;
  /** Hands all waiting messages to the callback; how many, or -1. */
  virtual int consume_callback(Topic *topic,
                               int32_t partition,
                               int timeout_ms,
                               ConsumeCb *consume_cb,
                               void *opaque) = 0;
  virtual int consume_callback(Queue *queue, int timeout_ms, RdKafka::ConsumeCb *consume_cb, void *opaque) = 0;

  /** `offset` messages before the end. */
  static int64_t OffsetTail(int64_t offset);
};

/** A producer. */
class RD_EXPORT Producer : public virtual Handle {
 public:
  static Producer *create(const Conf *conf, std::string &errstr);

  /** Drops what is not delivered: call flush() first. */
  virtual ~Producer() = 0;

  /** Flags of produce. Without the first two the payload remains the application's, until the delivery report. */
  enum {
    RK_MSG_FREE  = 0x1, /**< The library frees the payload, if produce succeeds. */
    RK_MSG_COPY  = 0x2, /**< The payload is copied. */
    RK_MSG_BLOCK = 0x4  /**< A full queue makes produce wait instead of fail. */
#ifndef MSG_COPY
    ,
    MSG_FREE = RK_MSG_FREE,
    MSG_COPY = RK_MSG_COPY
#endif
  };

  /** Takes a message. ERR__QUEUE_FULL: poll, then try again. It never waits, but for RK_MSG_BLOCK. */
  virtual ErrorCode produce(Topic *topic,
                            int32_t partition,
                            int msgflags,
                            void *payload,
                            size_t len,
                            const std::string *key,
                            void *msg_opaque) = 0;
  virtual ErrorCode produce(Topic *topic,
                            int32_t partition,
                            int msgflags,
                            void *payload,
                            size_t len,
                            const void *key,
                            size_t key_len,
                            void *msg_opaque) = 0;
  /** By the topic's name; a `timestamp` of 0 is now. */
  virtual ErrorCode produce(const std::string topic_name,
                            int32_t partition,
                            int msgflags,
                            void *payload,
                            size_t len,
                            const void *key,
                            size_t key_len,
                            int64_t timestamp,
                            void *msg_opaque) = 0;
  /** With headers, which are the library's when it succeeds, and the caller's otherwise. */
  virtual ErrorCode produce(const std::string topic_name,
                            int32_t partition,
                            int msgflags,
                            void *payload,
                            size_t len,
                            const void *key,
                            size_t key_len,
                            int64_t timestamp,
                            RdKafka::Headers *headers,
                            void *msg_opaque) = 0;
  /** Copies payload and key; NULL is null. */
  virtual ErrorCode produce(Topic *topic,
                            int32_t partition,
                            const std::vector<char> *payload,
                            const std::vector<char> *key,
                            void *msg_opaque) = 0;
  /** Waits until everything is delivered or failed, and serves the reports; ERR__TIMED_OUT if not. */
  virtual ErrorCode flush(int timeout_ms) = 0;
  /** Fails what waits with ERR__PURGE_QUEUE, what is under way with ERR__PURGE_INFLIGHT. */
  virtual ErrorCode purge(int purge_flags) = 0;

  enum {
    PURGE_QUEUE        = 0x1,
    PURGE_INFLIGHT     = 0x2,
    PURGE_NON_BLOCKING = 0x4
  };

  /** Once, before the first transaction; fences other producers with the same `transactional.id`. */
  virtual Error *init_transactions(int timeout_ms) = 0;
  virtual Error *begin_transaction() = 0;
  /** Offsets of what was consumed, committed if and when the transaction is. */
  virtual Error *send_offsets_to_transaction(const std::vector<TopicPartition *> &offsets,
                                             const ConsumerGroupMetadata *group_metadata,
                                             int timeout_ms) = 0;
  /** Flushes, then commits. Error::txn_requires_abort says when abort_transaction must follow. */
  virtual Error *commit_transaction(int timeout_ms) = 0;
  virtual Error *abort_transaction(int timeout_ms) = 0;
};

/** A broker in a Metadata. */
class BrokerMetadata {
 public:
  virtual int32_t id() const = 0;
  virtual std::string host() const = 0;
  virtual int port() const = 0;
  virtual ~BrokerMetadata() = 0;
};

/** A partition in a TopicMetadata. */
class PartitionMetadata {
 public:
  typedef std::vector<int32_t> ReplicasVector;
  typedef std::vector<int32_t> ISRSVector;
  typedef ReplicasVector::const_iterator ReplicasIterator;
  typedef ISRSVector::const_iterator ISRSIterator;

  virtual int32_t id() const = 0;
  virtual ErrorCode err() const = 0;
  /** The leader's broker id, or -1. */
  virtual int32_t leader() const = 0;
  virtual const std::vector<int32_t> *replicas() const = 0;
  virtual const std::vector<int32_t> *isrs() const = 0;
  virtual ~PartitionMetadata() = 0;
};

/** A topic in a Metadata. */
class TopicMetadata {
 public:
  typedef std::vector<const PartitionMetadata *> PartitionMetadataVector;
  typedef PartitionMetadataVector::const_iterator PartitionMetadataIterator;

  virtual std::string topic() const = 0;
  virtual const PartitionMetadataVector *partitions() const = 0;
  virtual ErrorCode err() const = 0;
  virtual ~TopicMetadata() = 0;
};

/** What Handle::metadata found. */
class Metadata {
 public:
  typedef std::vector<const BrokerMetadata *> BrokerMetadataVector;
  typedef std::vector<const TopicMetadata *> TopicMetadataVector;
  typedef BrokerMetadataVector::const_iterator BrokerMetadataIterator;
  typedef TopicMetadataVector::const_iterator TopicMetadataIterator;

  virtual const BrokerMetadataVector *brokers() const = 0;
  virtual const TopicMetadataVector *topics() const = 0;
  /** The broker that answered. */
  virtual int32_t orig_broker_id() const = 0;
  virtual std::string orig_broker_name() const = 0;
  virtual ~Metadata() = 0;
};

}  // namespace RdKafka

#endif  // _RDKAFKACPP_H_
