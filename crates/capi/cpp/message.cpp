/* Messages with their headers, and the queues they come from. */
#include "internal.h"

namespace RdKafka {

Headers::~Headers() {
}

Headers *Headers::create() {
  return new hidden::HeadersImpl(rd_kafka_headers_new(8));
}

Headers *Headers::create(const std::vector<Header> &headers) {
  Headers *made = new hidden::HeadersImpl(rd_kafka_headers_new(headers.size()));
  for (size_t i = 0; i < headers.size(); i++)
    made->add(headers[i]);
  return made;
}

Message::~Message() {
}

Queue::~Queue() {
}

Queue *Queue::create(Handle *handle) {
  return hidden::QueueImpl::of(rd_kafka_queue_new(handle->c_ptr()));
}

namespace hidden {

HeadersImpl::~HeadersImpl() {
  if (headers_ != NULL)
    rd_kafka_headers_destroy(headers_);
}

ErrorCode HeadersImpl::add(const std::string &key, const void *value, size_t value_size) {
  return code(rd_kafka_header_add(headers_, key.data(), static_cast<ssize_t>(key.size()), value,
                                  static_cast<ssize_t>(value_size)));
}

ErrorCode HeadersImpl::add(const std::string &key, const std::string &value) {
  return add(key, value.data(), value.size());
}

ErrorCode HeadersImpl::add(const Header &header) {
  return add(header.key(), header.value(), header.value_size());
}

ErrorCode HeadersImpl::remove(const std::string &key) {
  return code(rd_kafka_header_remove(headers_, key.c_str()));
}

std::vector<Headers::Header> HeadersImpl::get(const std::string &key) const {
  std::vector<Header> found;
  const void *value;
  size_t size;
  for (size_t i = 0; rd_kafka_header_get(headers_, i, key.c_str(), &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
    found.push_back(Header(key, value, size));
  return found;
}

Headers::Header HeadersImpl::get_last(const std::string &key) const {
  const void *value = NULL;
  size_t size       = 0;
  rd_kafka_resp_err_t err = rd_kafka_header_get_last(headers_, key.c_str(), &value, &size);
  return Header(key, value, size, code(err));
}

std::vector<Headers::Header> HeadersImpl::get_all() const {
  std::vector<Header> all;
  const char *key;
  const void *value;
  size_t size;
  for (size_t i = 0; rd_kafka_header_get_all(headers_, i, &key, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
    all.push_back(Header(key, value, size));
  return all;
}

size_t HeadersImpl::size() const {
  return rd_kafka_header_cnt(headers_);
}

MessageImpl::MessageImpl(rd_kafka_type_t type, Topic *topic, rd_kafka_message_t *message, Ownership ownership) :
    type_(type), topic_(topic), message_(message), ownership_(ownership), none_(), key_(NULL), headers_(NULL) {
}

MessageImpl::MessageImpl(rd_kafka_type_t type, Topic *topic, ErrorCode err) :
    type_(type), topic_(topic), message_(&none_), ownership_(BORROWED), none_(), key_(NULL), headers_(NULL) {
  none_.err       = code(err);
  none_.partition = RD_KAFKA_PARTITION_UA;
  none_.offset    = RD_KAFKA_OFFSET_INVALID;
}

MessageImpl::~MessageImpl() {
  delete key_;
  delete headers_;
  if (ownership_ == OWNED)
    rd_kafka_message_destroy(message_);
}

Message *MessageImpl::of_consume(Topic *topic, rd_kafka_message_t *message) {
  if (message == NULL)
    return new MessageImpl(RD_KAFKA_CONSUMER, topic, code(rd_kafka_last_error()));
  return new MessageImpl(RD_KAFKA_CONSUMER, topic != NULL ? topic : topic_of(message), message, OWNED);
}

Topic *MessageImpl::topic_of(const rd_kafka_message_t *message) {
  void *opaque = message->rkt != NULL ? rd_kafka_topic_opaque(message->rkt) : NULL;
  return opaque != NULL ? TopicSlot::topic_of(opaque) : NULL;
}

std::string MessageImpl::errstr() const {
  // The payload of a delivery report belongs to the application and is not an error text.
  return text(type_ == RD_KAFKA_CONSUMER && message_ != &none_ ? rd_kafka_message_errstr(message_)
                                                               : rd_kafka_err2str(message_->err));
}

ErrorCode MessageImpl::err() const {
  return code(message_->err);
}

Topic *MessageImpl::topic() const {
  return topic_;
}

std::string MessageImpl::topic_name() const {
  if (message_->rkt != NULL)
    return text(rd_kafka_topic_name(message_->rkt));
  return topic_ != NULL ? topic_->name() : "";
}

int32_t MessageImpl::partition() const {
  return message_->partition;
}

void *MessageImpl::payload() const {
  return message_->payload;
}

size_t MessageImpl::len() const {
  return message_->len;
}

const std::string *MessageImpl::key() const {
  if (key_ == NULL && message_->key != NULL)
    key_ = new std::string(static_cast<const char *>(message_->key), message_->key_len);
  return key_;
}

const void *MessageImpl::key_pointer() const {
  return message_->key;
}

size_t MessageImpl::key_len() const {
  return message_->key_len;
}

int64_t MessageImpl::offset() const {
  return message_->offset;
}

MessageTimestamp MessageImpl::timestamp() const {
  MessageTimestamp found = {MessageTimestamp::MSG_TIMESTAMP_NOT_AVAILABLE, -1};
  if (message_ == &none_)
    return found;
  rd_kafka_timestamp_type_t type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
  found.timestamp                = rd_kafka_message_timestamp(message_, &type);
  found.type                     = static_cast<MessageTimestamp::MessageTimestampType>(type);
  return found;
}

void *MessageImpl::msg_opaque() const {
  return message_->_private;
}

int64_t MessageImpl::latency() const {
  return message_ == &none_ ? -1 : rd_kafka_message_latency(message_);
}

rd_kafka_message_t *MessageImpl::c_ptr() {
  return message_;
}

Message::Status MessageImpl::status() const {
  return message_ == &none_ ? MSG_STATUS_NOT_PERSISTED : static_cast<Status>(rd_kafka_message_status(message_));
}

Headers *MessageImpl::headers() {
  return headers(NULL);
}

Headers *MessageImpl::headers(ErrorCode *err) {
  rd_kafka_resp_err_t outcome = RD_KAFKA_RESP_ERR_NO_ERROR;
  if (headers_ == NULL) {
    rd_kafka_headers_t *found = NULL;
    outcome = message_ == &none_ ? RD_KAFKA_RESP_ERR__NOENT : rd_kafka_message_detach_headers(message_, &found);
    if (outcome == RD_KAFKA_RESP_ERR_NO_ERROR)
      headers_ = new HeadersImpl(found);
  }
  if (err != NULL)
    *err = code(outcome);
  return headers_;
}

int32_t MessageImpl::broker_id() const {
  return message_ == &none_ ? -1 : rd_kafka_message_broker_id(message_);
}

int32_t MessageImpl::leader_epoch() const {
  return message_ == &none_ ? -1 : rd_kafka_message_leader_epoch(message_);
}

Error *MessageImpl::offset_store() {
  if (message_ == &none_)
    return ErrorImpl::of(rd_kafka_error_new(RD_KAFKA_RESP_ERR__INVALID_ARG, "there is no message"));
  return ErrorImpl::of(rd_kafka_offset_store_message(message_));
}

QueueImpl::~QueueImpl() {
  rd_kafka_queue_destroy(queue_);
}

ErrorCode QueueImpl::forward(Queue *dst) {
  rd_kafka_queue_forward(queue_, c_ptr(dst));
  return ERR_NO_ERROR;
}

Message *QueueImpl::consume(int timeout_ms) {
  rd_kafka_message_t *message = rd_kafka_consume_queue(queue_, timeout_ms);
  return message != NULL ? MessageImpl::of_consume(NULL, message)
                         : new MessageImpl(RD_KAFKA_CONSUMER, NULL, ERR__TIMED_OUT);
}

int QueueImpl::poll(int timeout_ms) {
  return rd_kafka_queue_poll_callback(queue_, timeout_ms);
}

void QueueImpl::io_event_enable(int fd, const void *payload, size_t size) {
  rd_kafka_queue_io_event_enable(queue_, fd, payload, size);
}

}  // namespace hidden

}  // namespace RdKafka
