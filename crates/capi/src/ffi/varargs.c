/*
 * Converts variable arguments to arrays, because Rust cannot read them. The exported symbols are in varargs.rs and jump
 * to the functions here, which call Rust with the arrays.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../include/rdkafka.h"
#include "../../include/rdkafka_mock.h"

#define HIDDEN __attribute__((visibility("hidden")))

/* The limit for the fields of one record; it is larger than any known program needs. */
#define FIELDS_MAX 512
/* Longer texts are truncated. */
#define TEXT_MAX 4096
/* A larger count is an error of the caller. */
#define ERRORS_MAX 65536

HIDDEN rd_kafka_resp_err_t ottla_produce_fields(rd_kafka_t *rk, const rd_kafka_vu_t *vus, size_t cnt);
HIDDEN rd_kafka_error_t *ottla_error(rd_kafka_resp_err_t code, const char *text);
HIDDEN void ottla_mock_errors(rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey, size_t cnt,
                              const rd_kafka_resp_err_t *errors);
HIDDEN rd_kafka_resp_err_t ottla_mock_broker_errors(rd_kafka_mock_cluster_t *mcluster, int32_t broker_id,
                                                    int16_t ApiKey, size_t cnt,
                                                    const rd_kafka_resp_err_t *errors, const int *rtts_ms);
HIDDEN rd_kafka_resp_err_t ottla_mock_partition_errors(rd_kafka_mock_cluster_t *mcluster, const char *topic,
                                                       int32_t partition, int16_t ApiKey, size_t cnt,
                                                       const rd_kafka_resp_err_t *errors);

HIDDEN rd_kafka_resp_err_t ottla_producev_varargs(rd_kafka_t *rk, ...) {
    rd_kafka_vu_t fields[FIELDS_MAX];
    size_t cnt = 0;
    va_list ap;
    va_start(ap, rk);
    for (;;) {
        rd_kafka_vu_t *field = &fields[cnt];
        int vtype = va_arg(ap, int);
        if (vtype == RD_KAFKA_VTYPE_END)
            break;
        if (cnt == FIELDS_MAX) {
            va_end(ap);
            return RD_KAFKA_RESP_ERR__INVALID_ARG;
        }
        field->vtype = (rd_kafka_vtype_t)vtype;
        switch (vtype) {
        case RD_KAFKA_VTYPE_TOPIC:
            field->u.cstr = va_arg(ap, const char *);
            break;
        case RD_KAFKA_VTYPE_RKT:
            field->u.rkt = va_arg(ap, rd_kafka_topic_t *);
            break;
        case RD_KAFKA_VTYPE_PARTITION:
            field->u.i32 = va_arg(ap, int32_t);
            break;
        case RD_KAFKA_VTYPE_VALUE:
        case RD_KAFKA_VTYPE_KEY:
            field->u.mem.ptr = va_arg(ap, void *);
            field->u.mem.size = va_arg(ap, size_t);
            break;
        case RD_KAFKA_VTYPE_OPAQUE:
            field->u.ptr = va_arg(ap, void *);
            break;
        case RD_KAFKA_VTYPE_MSGFLAGS:
            field->u.i = va_arg(ap, int);
            break;
        case RD_KAFKA_VTYPE_TIMESTAMP:
            field->u.i64 = va_arg(ap, int64_t);
            break;
        case RD_KAFKA_VTYPE_HEADER:
            field->u.header.name = va_arg(ap, const char *);
            field->u.header.val = va_arg(ap, const void *);
            field->u.header.size = va_arg(ap, ssize_t);
            break;
        case RD_KAFKA_VTYPE_HEADERS:
            field->u.headers = va_arg(ap, rd_kafka_headers_t *);
            break;
        default:
            /* The size of an unknown field is unknown, so the arguments after it cannot be read. */
            va_end(ap);
            return RD_KAFKA_RESP_ERR__INVALID_ARG;
        }
        cnt++;
    }
    va_end(ap);
    return ottla_produce_fields(rk, fields, cnt);
}

HIDDEN rd_kafka_error_t *ottla_error_new_varargs(rd_kafka_resp_err_t code, const char *fmt, ...) {
    char text[TEXT_MAX];
    va_list ap;
    text[0] = '\0';
    if (fmt) {
        va_start(ap, fmt);
        if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
            text[0] = '\0';
        va_end(ap);
    }
    return ottla_error(code, text);
}

/* Reads `cnt` error codes. Returns NULL if `cnt` is too large. */
static rd_kafka_resp_err_t *codes(size_t cnt, va_list *ap) {
    rd_kafka_resp_err_t *errors = cnt <= ERRORS_MAX ? calloc(cnt + 1, sizeof(*errors)) : NULL;
    for (size_t i = 0; errors && i < cnt; i++)
        errors[i] = (rd_kafka_resp_err_t)va_arg(*ap, int);
    return errors;
}

HIDDEN void ottla_mock_errors_varargs(rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey, size_t cnt, ...) {
    rd_kafka_resp_err_t *errors;
    va_list ap;
    va_start(ap, cnt);
    errors = codes(cnt, &ap);
    va_end(ap);
    if (errors)
        ottla_mock_errors(mcluster, ApiKey, cnt, errors);
    free(errors);
}

HIDDEN rd_kafka_resp_err_t ottla_mock_partition_errors_varargs(rd_kafka_mock_cluster_t *mcluster,
                                                               const char *topic, int32_t partition,
                                                               int16_t ApiKey, size_t cnt, ...) {
    rd_kafka_resp_err_t *errors, outcome = RD_KAFKA_RESP_ERR__INVALID_ARG;
    va_list ap;
    va_start(ap, cnt);
    errors = codes(cnt, &ap);
    va_end(ap);
    if (errors)
        outcome = ottla_mock_partition_errors(mcluster, topic, partition, ApiKey, cnt, errors);
    free(errors);
    return outcome;
}

HIDDEN rd_kafka_resp_err_t ottla_mock_broker_errors_varargs(rd_kafka_mock_cluster_t *mcluster, int32_t broker_id,
                                                            int16_t ApiKey, size_t cnt, ...) {
    rd_kafka_resp_err_t *errors = NULL, outcome = RD_KAFKA_RESP_ERR__INVALID_ARG;
    int *rtts_ms = NULL;
    va_list ap;
    if (cnt <= ERRORS_MAX) {
        errors = calloc(cnt + 1, sizeof(*errors));
        rtts_ms = calloc(cnt + 1, sizeof(*rtts_ms));
    }
    if (errors && rtts_ms) {
        va_start(ap, cnt);
        for (size_t i = 0; i < cnt; i++) {
            errors[i] = (rd_kafka_resp_err_t)va_arg(ap, int);
            rtts_ms[i] = va_arg(ap, int);
        }
        va_end(ap);
        outcome = ottla_mock_broker_errors(mcluster, broker_id, ApiKey, cnt, errors, rtts_ms);
    }
    free(errors);
    free(rtts_ms);
    return outcome;
}
