/* C callbacks that call the application's objects. Their opaque is the handle. */
#include "internal.h"

namespace RdKafka {

namespace hidden {

namespace {

class EventImpl : public Event {
 public:
  explicit EventImpl(Type type) :
      type_(type), err_(ERR_NO_ERROR), severity_(EVENT_SEVERITY_EMERG), throttle_time_(0), broker_id_(0), fatal_(false) {
  }

  Type type() const {
    return type_;
  }
  ErrorCode err() const {
    return err_;
  }
  Severity severity() const {
    return severity_;
  }
  std::string fac() const {
    return fac_;
  }
  std::string str() const {
    return str_;
  }
  int throttle_time() const {
    return throttle_time_;
  }
  std::string broker_name() const {
    return broker_name_;
  }
  int broker_id() const {
    return broker_id_;
  }
  bool fatal() const {
    return fatal_;
  }

  Type type_;
  ErrorCode err_;
  Severity severity_;
  std::string fac_;
  std::string str_;
  int throttle_time_;
  std::string broker_name_;
  int broker_id_;
  bool fatal_;
};

HandleImpl *handle_of(void *opaque) {
  return static_cast<HandleImpl *>(opaque);
}

const Callbacks &callbacks_of(void *opaque) {
  return handle_of(opaque)->callbacks();
}

void errored(rd_kafka_t *rk, int err, const char *reason, void *opaque) {
  EventImpl event(Event::EVENT_ERROR);
  event.err_      = static_cast<ErrorCode>(err);
  event.str_      = text(reason);
  event.severity_ = Event::EVENT_SEVERITY_ERROR;
  if (event.err_ == ERR__FATAL) {
    // The application receives the cause of the fatal error.
    char why[512];
    rd_kafka_resp_err_t cause = rd_kafka_fatal_error(rk, why, sizeof(why));
    if (cause != RD_KAFKA_RESP_ERR_NO_ERROR) {
      event.err_ = code(cause);
      event.str_ = why;
    }
    event.fatal_ = true;
  }
  callbacks_of(opaque).event->event_cb(event);
}

void throttled(rd_kafka_t *, const char *broker_name, int32_t broker_id, int throttle_time_ms, void *opaque) {
  EventImpl event(Event::EVENT_THROTTLE);
  event.str_           = text(broker_name);
  event.broker_name_   = event.str_;
  event.broker_id_     = broker_id;
  event.throttle_time_ = throttle_time_ms;
  callbacks_of(opaque).event->event_cb(event);
}

void logged(const rd_kafka_t *rk, int level, const char *fac, const char *buf) {
  // Before the handle is complete, it has no callbacks that could receive the line.
  void *opaque = rk != NULL ? rd_kafka_opaque(rk) : NULL;
  if (opaque == NULL) {
    rd_kafka_log_print(rk, level, fac, buf);
    return;
  }
  EventImpl event(Event::EVENT_LOG);
  event.severity_ = static_cast<Event::Severity>(level);
  event.fac_      = text(fac);
  event.str_      = text(buf);
  callbacks_of(opaque).event->event_cb(event);
}

int counted(rd_kafka_t *, char *json, size_t json_len, void *opaque) {
  EventImpl event(Event::EVENT_STATS);
  event.severity_ = Event::EVENT_SEVERITY_INFO;
  event.str_.assign(json, json_len);
  callbacks_of(opaque).event->event_cb(event);
  return 0;
}

void token_expired(rd_kafka_t *, const char *oauthbearer_config, void *opaque) {
  HandleImpl *handle = handle_of(opaque);
  handle->callbacks().token_refresh->oauthbearer_token_refresh_cb(handle, text(oauthbearer_config));
}

void delivered(rd_kafka_t *, const rd_kafka_message_t *message, void *opaque) {
  // A delivery report must not be changed. MessageImpl only detaches its headers. The application may have deleted its topic object:
  // a report has the topic's name only.
  MessageImpl report(RD_KAFKA_PRODUCER, NULL, const_cast<rd_kafka_message_t *>(message), MessageImpl::BORROWED);
  callbacks_of(opaque).delivery_report->dr_cb(report);
}

void consumed(rd_kafka_message_t *message, void *opaque) {
  MessageImpl wrapped(RD_KAFKA_CONSUMER, MessageImpl::topic_of(message), message, MessageImpl::BORROWED);
  callbacks_of(opaque).consume->consume_cb(wrapped, opaque);
}

void rebalanced(rd_kafka_t *, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *list, void *opaque) {
  HandleImpl *handle      = handle_of(opaque);
  KafkaConsumer *consumer = dynamic_cast<KafkaConsumer *>(static_cast<Handle *>(handle));
  std::vector<TopicPartition *> partitions;
  PartitionList::append(list, partitions);
  handle->callbacks().rebalance->rebalance_cb(consumer, code(err), partitions);
  TopicPartition::destroy(partitions);
}

void committed_by_handle(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *offsets,
                         void *opaque) {
  offsets_committed(rk, err, offsets, callbacks_of(opaque).offset_commit);
}

int socket_wanted(int domain, int type, int protocol, void *opaque) {
  return callbacks_of(opaque).socket->socket_cb(domain, type, protocol);
}

int file_wanted(const char *path, int flags, mode_t mode, void *opaque) {
  return callbacks_of(opaque).open->open_cb(path, flags, static_cast<int>(mode));
}

int certificate_seen(rd_kafka_t *, const char *broker_name, int32_t broker_id, int *x509_error, int depth,
                     const char *buf, size_t size, char *errstr, size_t errstr_size, void *opaque) {
  std::string why;
  if (callbacks_of(opaque).certificate_verify->ssl_cert_verify_cb(text(broker_name), broker_id, x509_error, depth, buf,
                                                                  size, why))
    return 1;
  if (errstr_size > 0) {
    size_t length = why.size() < errstr_size - 1 ? why.size() : errstr_size - 1;
    memcpy(errstr, why.data(), length);
    errstr[length] = '\0';
  }
  return 0;
}

}  // namespace

void offsets_committed(rd_kafka_t *, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *offsets, void *opaque) {
  std::vector<TopicPartition *> partitions;
  if (offsets != NULL)
    PartitionList::append(offsets, partitions);
  static_cast<OffsetCommitCb *>(opaque)->offset_commit_cb(code(err), partitions);
  TopicPartition::destroy(partitions);
}

void HandleImpl::set_callbacks(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
  rd_kafka_conf_set_opaque(conf, this);
  if (callbacks_.event != NULL) {
    rd_kafka_conf_set_log_cb(conf, logged);
    rd_kafka_conf_set_error_cb(conf, errored);
    rd_kafka_conf_set_throttle_cb(conf, throttled);
    rd_kafka_conf_set_stats_cb(conf, counted);
  }
  if (callbacks_.token_refresh != NULL)
    rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, token_expired);
  if (callbacks_.socket != NULL)
    rd_kafka_conf_set_socket_cb(conf, socket_wanted);
  if (callbacks_.open != NULL)
    rd_kafka_conf_set_open_cb(conf, file_wanted);
  if (callbacks_.certificate_verify != NULL)
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, certificate_seen);
  if (type == RD_KAFKA_PRODUCER) {
    if (callbacks_.delivery_report != NULL)
      rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    return;
  }
  if (callbacks_.rebalance != NULL)
    rd_kafka_conf_set_rebalance_cb(conf, rebalanced);
  if (callbacks_.offset_commit != NULL)
    rd_kafka_conf_set_offset_commit_cb(conf, committed_by_handle);
  if (callbacks_.consume != NULL)
    rd_kafka_conf_set_consume_cb(conf, consumed);
}

}  // namespace hidden

}  // namespace RdKafka
