/* The simple consumer. */
#include "internal.h"

namespace RdKafka {

namespace hidden {

namespace {

/** One call of consume_callback; `callback` receives its messages. */
struct Handing {
  Topic *topic;
  ConsumeCb *callback;
  void *opaque;

  static void message(rd_kafka_message_t *message, void *opaque) {
    Handing *self = static_cast<Handing *>(opaque);
    Topic *topic  = self->topic != NULL ? self->topic : MessageImpl::topic_of(message);
    MessageImpl wrapped(RD_KAFKA_CONSUMER, topic, message, MessageImpl::BORROWED);
    self->callback->consume_cb(wrapped, self->opaque);
  }
};

class ConsumerImpl : public Consumer, public HandleImpl {
 public:
  bool open(const Conf *conf, std::string &errstr) {
    return HandleImpl::open(RD_KAFKA_CONSUMER, conf, errstr);
  }

  ErrorCode start(Topic *topic, int32_t partition, int64_t offset) {
    return judge(rd_kafka_consume_start(topic->c_ptr(), partition, offset));
  }

  ErrorCode start(Topic *topic, int32_t partition, int64_t offset, Queue *queue) {
    return judge(rd_kafka_consume_start_queue(topic->c_ptr(), partition, offset, QueueImpl::c_ptr(queue)));
  }

  ErrorCode stop(Topic *topic, int32_t partition) {
    return judge(rd_kafka_consume_stop(topic->c_ptr(), partition));
  }

  ErrorCode seek(Topic *topic, int32_t partition, int64_t offset, int timeout_ms) {
    return code(rd_kafka_seek(topic->c_ptr(), partition, offset, timeout_ms));
  }

  Message *consume(Topic *topic, int32_t partition, int timeout_ms) {
    return MessageImpl::of_consume(topic, rd_kafka_consume(topic->c_ptr(), partition, timeout_ms));
  }

  Message *consume(Queue *queue, int timeout_ms) {
    return MessageImpl::of_consume(NULL, rd_kafka_consume_queue(QueueImpl::c_ptr(queue), timeout_ms));
  }

  int consume_callback(Topic *topic, int32_t partition, int timeout_ms, ConsumeCb *consume_cb, void *opaque) {
    Handing handing = {topic, consume_cb, opaque};
    return rd_kafka_consume_callback(topic->c_ptr(), partition, timeout_ms, Handing::message, &handing);
  }

  int consume_callback(Queue *queue, int timeout_ms, ConsumeCb *consume_cb, void *opaque) {
    Handing handing = {NULL, consume_cb, opaque};
    return rd_kafka_consume_callback_queue(QueueImpl::c_ptr(queue), timeout_ms, Handing::message, &handing);
  }

 private:
  static ErrorCode judge(int outcome) {
    return outcome == -1 ? code(rd_kafka_last_error()) : ERR_NO_ERROR;
  }
};

}  // namespace

}  // namespace hidden

Consumer::~Consumer() {
}

Consumer *Consumer::create(const Conf *conf, std::string &errstr) {
  hidden::ConsumerImpl *consumer = new hidden::ConsumerImpl;
  if (consumer->open(conf, errstr))
    return consumer;
  delete consumer;
  return NULL;
}

int64_t Consumer::OffsetTail(int64_t offset) {
  return RD_KAFKA_OFFSET_TAIL(offset);
}

}  // namespace RdKafka
