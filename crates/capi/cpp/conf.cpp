/* Properties: the C object stores strings; callbacks are stored here until a handle is created. */
#include "internal.h"

namespace RdKafka {

Conf *Conf::create(ConfType type) {
  return type == CONF_GLOBAL || type == CONF_TOPIC ? new hidden::ConfImpl(type) : NULL;
}

namespace hidden {

namespace {

Conf::ConfResult result(rd_kafka_conf_res_t res) {
  return static_cast<Conf::ConfResult>(res);
}

/** The size of the buffer for error texts of the C interface. */
struct ErrorText {
  ErrorText() {
    text[0] = '\0';
  }

  Conf::ConfResult judge(rd_kafka_conf_res_t res, std::string &errstr) const {
    if (res != RD_KAFKA_CONF_OK)
      errstr = text;
    return result(res);
  }

  char text[512];
};

}  // namespace

Callbacks::Callbacks() :
    consume(NULL),
    delivery_report(NULL),
    event(NULL),
    token_refresh(NULL),
    offset_commit(NULL),
    open(NULL),
    partitioner(NULL),
    partitioner_key_pointer(NULL),
    rebalance(NULL),
    socket(NULL),
    certificate_verify(NULL) {
}

ConfImpl::ConfImpl(ConfType type) :
    fields_of_foreign_subclasses_(),
    type_(type),
    global_(type == CONF_GLOBAL ? rd_kafka_conf_new() : NULL),
    topic_(type == CONF_TOPIC ? rd_kafka_topic_conf_new() : NULL) {
}

ConfImpl::~ConfImpl() {
  if (global_ != NULL)
    rd_kafka_conf_destroy(global_);
  if (topic_ != NULL)
    rd_kafka_topic_conf_destroy(topic_);
}

Conf::ConfResult ConfImpl::set(const std::string &name, const std::string &value, std::string &errstr) {
  ErrorText why;
  rd_kafka_conf_res_t res =
      global_ != NULL ? rd_kafka_conf_set(global_, name.c_str(), value.c_str(), why.text, sizeof(why.text))
                      : rd_kafka_topic_conf_set(topic_, name.c_str(), value.c_str(), why.text, sizeof(why.text));
  return why.judge(res, errstr);
}

template <typename Cb>
Conf::ConfResult ConfImpl::remember(const char *expected, ConfType type, const std::string &name, Cb *&slot, Cb *cb,
                                    std::string &errstr) {
  if (name != expected) {
    errstr = "\"" + name + "\" does not take this type of value, which is for \"" + expected + "\"";
    return CONF_INVALID;
  }
  if (type != type_) {
    errstr = "\"" + name + "\" belongs into a Conf of type " + (type == CONF_GLOBAL ? "CONF_GLOBAL" : "CONF_TOPIC");
    return CONF_INVALID;
  }
  slot = cb;
  return CONF_OK;
}

Conf::ConfResult ConfImpl::set(const std::string &name, DeliveryReportCb *cb, std::string &errstr) {
  return remember("dr_cb", CONF_GLOBAL, name, callbacks_.delivery_report, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, OAuthBearerTokenRefreshCb *cb, std::string &errstr) {
  return remember("oauthbearer_token_refresh_cb", CONF_GLOBAL, name, callbacks_.token_refresh, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, EventCb *cb, std::string &errstr) {
  return remember("event_cb", CONF_GLOBAL, name, callbacks_.event, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, const Conf *topic_conf, std::string &errstr) {
  const ConfImpl *given = static_cast<const ConfImpl *>(topic_conf);
  const ConfImpl *slot  = NULL;
  ConfResult res        = remember("default_topic_conf", CONF_GLOBAL, name, slot, given, errstr);
  if (res != CONF_OK)
    return res;
  if (given == NULL || given->topic_ == NULL) {
    errstr = "\"default_topic_conf\" takes a Conf of type CONF_TOPIC";
    return CONF_INVALID;
  }
  rd_kafka_conf_set_default_topic_conf(global_, given->topic_copy());
  return CONF_OK;
}

Conf::ConfResult ConfImpl::set(const std::string &name, PartitionerCb *cb, std::string &errstr) {
  return remember("partitioner_cb", CONF_TOPIC, name, callbacks_.partitioner, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, PartitionerKeyPointerCb *cb, std::string &errstr) {
  return remember("partitioner_key_pointer_cb", CONF_TOPIC, name, callbacks_.partitioner_key_pointer, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, SocketCb *cb, std::string &errstr) {
  return remember("socket_cb", CONF_GLOBAL, name, callbacks_.socket, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, OpenCb *cb, std::string &errstr) {
  return remember("open_cb", CONF_GLOBAL, name, callbacks_.open, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, RebalanceCb *cb, std::string &errstr) {
  return remember("rebalance_cb", CONF_GLOBAL, name, callbacks_.rebalance, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, OffsetCommitCb *cb, std::string &errstr) {
  return remember("offset_commit_cb", CONF_GLOBAL, name, callbacks_.offset_commit, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, SslCertificateVerifyCb *cb, std::string &errstr) {
  return remember("ssl_cert_verify_cb", CONF_GLOBAL, name, callbacks_.certificate_verify, cb, errstr);
}

Conf::ConfResult ConfImpl::set(const std::string &name, ConsumeCb *cb, std::string &errstr) {
  return remember("consume_cb", CONF_GLOBAL, name, callbacks_.consume, cb, errstr);
}

Conf::ConfResult ConfImpl::requires_global(const char *what, std::string &errstr) const {
  if (global_ != NULL)
    return CONF_OK;
  errstr = std::string(what) + " belongs into a Conf of type CONF_GLOBAL";
  return CONF_INVALID;
}

Conf::ConfResult ConfImpl::set_ssl_cert(CertificateType type, CertificateEncoding encoding, const void *buffer,
                                        size_t size, std::string &errstr) {
  ConfResult res = requires_global("a certificate", errstr);
  if (res != CONF_OK)
    return res;
  ErrorText why;
  return why.judge(rd_kafka_conf_set_ssl_cert(global_, static_cast<rd_kafka_cert_type_t>(type),
                                              static_cast<rd_kafka_cert_enc_t>(encoding), buffer, size, why.text,
                                              sizeof(why.text)),
                   errstr);
}

Conf::ConfResult ConfImpl::get(const std::string &name, std::string &value) const {
  size_t size             = 0;
  const char *property    = name.c_str();
  rd_kafka_conf_res_t res = global_ != NULL ? rd_kafka_conf_get(global_, property, NULL, &size)
                                            : rd_kafka_topic_conf_get(topic_, property, NULL, &size);
  if (res != RD_KAFKA_CONF_OK)
    return result(res);
  // The size counts the zero at the end.
  std::vector<char> room(size + 1);
  size = room.size();
  res  = global_ != NULL ? rd_kafka_conf_get(global_, property, &room[0], &size)
                         : rd_kafka_topic_conf_get(topic_, property, &room[0], &size);
  if (res == RD_KAFKA_CONF_OK)
    value = &room[0];
  return result(res);
}

template <typename Cb>
Conf::ConfResult ConfImpl::recall(ConfType type, Cb *slot, Cb *&cb) const {
  if (type != type_)
    return CONF_INVALID;
  cb = slot;
  return CONF_OK;
}

Conf::ConfResult ConfImpl::get(DeliveryReportCb *&cb) const {
  return recall(CONF_GLOBAL, callbacks_.delivery_report, cb);
}

Conf::ConfResult ConfImpl::get(OAuthBearerTokenRefreshCb *&cb) const {
  return recall(CONF_GLOBAL, callbacks_.token_refresh, cb);
}

Conf::ConfResult ConfImpl::get(EventCb *&cb) const {
  return recall(CONF_GLOBAL, callbacks_.event, cb);
}

Conf::ConfResult ConfImpl::get(PartitionerCb *&cb) const {
  return recall(CONF_TOPIC, callbacks_.partitioner, cb);
}

Conf::ConfResult ConfImpl::get(PartitionerKeyPointerCb *&cb) const {
  return recall(CONF_TOPIC, callbacks_.partitioner_key_pointer, cb);
}

Conf::ConfResult ConfImpl::get(SocketCb *&cb) const {
  return recall(CONF_GLOBAL, callbacks_.socket, cb);
}

Conf::ConfResult ConfImpl::get(OpenCb *&cb) const {
  return recall(CONF_GLOBAL, callbacks_.open, cb);
}

Conf::ConfResult ConfImpl::get(RebalanceCb *&cb) const {
  return recall(CONF_GLOBAL, callbacks_.rebalance, cb);
}

Conf::ConfResult ConfImpl::get(OffsetCommitCb *&cb) const {
  return recall(CONF_GLOBAL, callbacks_.offset_commit, cb);
}

Conf::ConfResult ConfImpl::get(SslCertificateVerifyCb *&cb) const {
  return recall(CONF_GLOBAL, callbacks_.certificate_verify, cb);
}

std::list<std::string> *ConfImpl::dump() {
  size_t count       = 0;
  const char **pairs = global_ != NULL ? rd_kafka_conf_dump(global_, &count) : rd_kafka_topic_conf_dump(topic_, &count);
  std::list<std::string> *list = new std::list<std::string>;
  for (size_t i = 0; i < count; i++)
    list->push_back(text(pairs[i]));
  rd_kafka_conf_dump_free(pairs, count);
  return list;
}

rd_kafka_conf_t *ConfImpl::c_ptr_global() {
  return global_;
}

rd_kafka_topic_conf_t *ConfImpl::c_ptr_topic() {
  return topic_;
}

Conf::ConfResult ConfImpl::set_engine_callback_data(void *value, std::string &errstr) {
  ConfResult res = requires_global("the engine's callback data", errstr);
  if (res == CONF_OK)
    rd_kafka_conf_set_engine_callback_data(global_, value);
  return res;
}

Conf::ConfResult ConfImpl::enable_sasl_queue(bool enable, std::string &errstr) {
  ConfResult res = requires_global("the SASL queue", errstr);
  if (res == CONF_OK)
    rd_kafka_conf_enable_sasl_queue(global_, enable ? 1 : 0);
  return res;
}

rd_kafka_conf_t *ConfImpl::global_copy() const {
  return global_ != NULL ? rd_kafka_conf_dup(global_) : NULL;
}

rd_kafka_topic_conf_t *ConfImpl::topic_copy() const {
  return topic_ != NULL ? rd_kafka_topic_conf_dup(topic_) : NULL;
}

}  // namespace hidden

}  // namespace RdKafka
