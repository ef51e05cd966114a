/* Functions that belong to no object: versions, errors, memory. */
#include "internal.h"

namespace RdKafka {

int version() {
  return rd_kafka_version();
}

std::string version_str() {
  return hidden::text(rd_kafka_version_str());
}

std::string get_debug_contexts() {
  return hidden::text(rd_kafka_get_debug_contexts());
}

int wait_destroyed(int timeout_ms) {
  return rd_kafka_wait_destroyed(timeout_ms);
}

void *mem_malloc(size_t size) {
  return rd_kafka_mem_malloc(NULL, size);
}

void mem_free(void *ptr) {
  rd_kafka_mem_free(NULL, ptr);
}

std::string err2str(ErrorCode err) {
  return hidden::text(rd_kafka_err2str(hidden::code(err)));
}

Error *Error::create(ErrorCode code, const std::string *errstr) {
  rd_kafka_resp_err_t c_code = hidden::code(code);
  return new hidden::ErrorImpl(errstr != NULL ? rd_kafka_error_new(c_code, "%s", errstr->c_str())
                                              : rd_kafka_error_new(c_code, NULL));
}

namespace hidden {

std::string taken(rd_kafka_t *rk, char *string) {
  std::string copy = text(string);
  if (string != NULL)
    rd_kafka_mem_free(rk, string);
  return copy;
}

ErrorCode ErrorImpl::code() const {
  return hidden::code(rd_kafka_error_code(error_));
}

std::string ErrorImpl::name() const {
  return text(rd_kafka_error_name(error_));
}

std::string ErrorImpl::str() const {
  return text(rd_kafka_error_string(error_));
}

bool ErrorImpl::is_fatal() const {
  return rd_kafka_error_is_fatal(error_) != 0;
}

bool ErrorImpl::is_retriable() const {
  return rd_kafka_error_is_retriable(error_) != 0;
}

bool ErrorImpl::txn_requires_abort() const {
  return rd_kafka_error_txn_requires_abort(error_) != 0;
}

}  // namespace hidden

}  // namespace RdKafka
