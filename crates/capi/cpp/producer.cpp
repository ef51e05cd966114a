#include "internal.h"

namespace RdKafka {

namespace hidden {

namespace {

class ProducerImpl : public Producer, public HandleImpl {
 public:
  bool open(const Conf *conf, std::string &errstr) {
    return HandleImpl::open(RD_KAFKA_PRODUCER, conf, errstr);
  }

  ErrorCode produce(Topic *topic, int32_t partition, int msgflags, void *payload, size_t len, const std::string *key,
                    void *msg_opaque) {
    return produce(topic, partition, msgflags, payload, len, key != NULL ? key->data() : NULL,
                   key != NULL ? key->size() : 0, msg_opaque);
  }

  ErrorCode produce(Topic *topic, int32_t partition, int msgflags, void *payload, size_t len, const void *key,
                    size_t key_len, void *msg_opaque) {
    if (rd_kafka_produce(topic->c_ptr(), partition, msgflags, payload, len, key, key_len, msg_opaque) == -1)
      return code(rd_kafka_last_error());
    return ERR_NO_ERROR;
  }

  ErrorCode produce(const std::string topic_name, int32_t partition, int msgflags, void *payload, size_t len,
                    const void *key, size_t key_len, int64_t timestamp, void *msg_opaque) {
    return code(rd_kafka_producev(rk_, RD_KAFKA_V_TOPIC(topic_name.c_str()), RD_KAFKA_V_PARTITION(partition),
                                  RD_KAFKA_V_MSGFLAGS(msgflags), RD_KAFKA_V_VALUE(payload, len),
                                  RD_KAFKA_V_KEY(key, key_len), RD_KAFKA_V_TIMESTAMP(timestamp),
                                  RD_KAFKA_V_OPAQUE(msg_opaque), RD_KAFKA_V_END));
  }

  ErrorCode produce(const std::string topic_name, int32_t partition, int msgflags, void *payload, size_t len,
                    const void *key, size_t key_len, int64_t timestamp, Headers *headers, void *msg_opaque) {
    if (headers == NULL)
      return produce(topic_name, partition, msgflags, payload, len, key, key_len, timestamp, msg_opaque);
    HeadersImpl *given = static_cast<HeadersImpl *>(headers);
    rd_kafka_resp_err_t err =
        rd_kafka_producev(rk_, RD_KAFKA_V_TOPIC(topic_name.c_str()), RD_KAFKA_V_PARTITION(partition),
                          RD_KAFKA_V_MSGFLAGS(msgflags), RD_KAFKA_V_VALUE(payload, len), RD_KAFKA_V_KEY(key, key_len),
                          RD_KAFKA_V_TIMESTAMP(timestamp), RD_KAFKA_V_OPAQUE(msg_opaque),
                          RD_KAFKA_V_HEADERS(given->c_ptr()), RD_KAFKA_V_END);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      given->given_away();
      delete given;
    }
    return code(err);
  }

  ErrorCode produce(Topic *topic, int32_t partition, const std::vector<char> *payload, const std::vector<char> *key,
                    void *msg_opaque) {
    return produce(topic, partition, RK_MSG_COPY, const_cast<char *>(bytes(payload)), size(payload), bytes(key),
                   size(key), msg_opaque);
  }

  ErrorCode flush(int timeout_ms) {
    return code(rd_kafka_flush(rk_, timeout_ms));
  }

  ErrorCode purge(int purge_flags) {
    return code(rd_kafka_purge(rk_, purge_flags));
  }

  Error *init_transactions(int timeout_ms) {
    return ErrorImpl::of(rd_kafka_init_transactions(rk_, timeout_ms));
  }

  Error *begin_transaction() {
    return ErrorImpl::of(rd_kafka_begin_transaction(rk_));
  }

  Error *send_offsets_to_transaction(const std::vector<TopicPartition *> &offsets,
                                     const ConsumerGroupMetadata *group_metadata, int timeout_ms) {
    PartitionList list(offsets);
    const ConsumerGroupMetadataImpl *group = static_cast<const ConsumerGroupMetadataImpl *>(group_metadata);
    return ErrorImpl::of(rd_kafka_send_offsets_to_transaction(
        rk_, list.get(), group != NULL ? group->c_ptr() : NULL, timeout_ms));
  }

  Error *commit_transaction(int timeout_ms) {
    return ErrorImpl::of(rd_kafka_commit_transaction(rk_, timeout_ms));
  }

  Error *abort_transaction(int timeout_ms) {
    return ErrorImpl::of(rd_kafka_abort_transaction(rk_, timeout_ms));
  }

 private:
  /** None is null, and so is a vector that never had bytes; another empty one is an empty value. */
  static const char *bytes(const std::vector<char> *vector) {
    if (vector == NULL || vector->capacity() == 0)
      return NULL;
    return vector->empty() ? "" : &(*vector)[0];
  }

  static size_t size(const std::vector<char> *vector) {
    return vector != NULL ? vector->size() : 0;
  }
};

}  // namespace

}  // namespace hidden

Producer::~Producer() {
}

Producer *Producer::create(const Conf *conf, std::string &errstr) {
  hidden::ProducerImpl *producer = new hidden::ProducerImpl;
  if (producer->open(conf, errstr))
    return producer;
  delete producer;
  return NULL;
}

}  // namespace RdKafka
