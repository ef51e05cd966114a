/*
 * The C interface of librdkafka 2.16, on the Ottla client: names, types, values and layouts are those of librdkafka's
 * own header, so that programs written for it compile with this one and run with either library.
 *
 * Rules that hold for all functions:
 * - A handle may be used by any thread at any time, but not while or after it is destroyed. Lists, headers, messages
 *   and configurations belong to one thread at a time.
 * - `timeout_ms` is in milliseconds: 0 does not wait, -1 waits for ever.
 * - `errstr` is a buffer of `errstr_size` bytes for an explanation; NULL and 0 if none is wanted.
 * - Texts that a function returns live as long as what they were read from, unless it says otherwise.
 * - Functions of the application run in the thread that polls, and may call the library, except as their setter says.
 * - A client does not survive fork(): make it in the process that uses it.
 */

#ifndef _RDKAFKA_H_
#define _RDKAFKA_H_

#include <inttypes.h>
#include <stdio.h>
#include <sys/types.h>

#ifdef _WIN32
#include <winsock2.h>
#else
#include <sys/socket.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifdef _MSC_VER
#include <basetsd.h>
#ifndef _SSIZE_T_DEFINED
#define _SSIZE_T_DEFINED
typedef SSIZE_T ssize_t;
#endif
#define RD_UNUSED
#define RD_INLINE __inline
#define RD_DEPRECATED __declspec(deprecated)
#define RD_FORMAT(...)
#define RD_EXPORT __declspec(dllimport)
#else
#define RD_UNUSED __attribute__((unused))
#define RD_INLINE inline
#define RD_DEPRECATED __attribute__((deprecated))
#define RD_EXPORT
#ifndef __cplusplus
#define RD_FORMAT(...) __attribute__((format(__VA_ARGS__)))
#else
#define RD_FORMAT(...)
#endif
#endif

struct addrinfo;
struct sockaddr;

/** The interface's version, as 0xMMmmrrxx: major, minor, revision, and 0xff for a final release. */
#define RD_KAFKA_VERSION 0x021000ff

/** The contexts of `debug`; rd_kafka_get_debug_contexts() has those of the library at run time. */
#define RD_KAFKA_DEBUG_CONTEXTS                                                                    \
    "all,generic,broker,topic,metadata,feature,queue,msg,protocol,cgrp,security,fetch,"            \
    "interceptor,plugin,consumer,admin,eos,mock,assignor,conf"

/** What a client is. */
typedef enum rd_kafka_type_t {
    RD_KAFKA_PRODUCER = 0,
    RD_KAFKA_CONSUMER = 1
} rd_kafka_type_t;

/* Types whose inside is the library's. */
typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_op_s rd_kafka_event_t;
typedef struct rd_kafka_topic_result_s rd_kafka_topic_result_t;
typedef struct rd_kafka_consumer_group_metadata_s rd_kafka_consumer_group_metadata_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_group_result_s rd_kafka_group_result_t;
typedef struct rd_kafka_acl_result_s rd_kafka_acl_result_t;
typedef struct rd_kafka_Uuid_s rd_kafka_Uuid_t;
typedef struct rd_kafka_topic_partition_result_s rd_kafka_topic_partition_result_t;

/** Flags of rd_kafka_destroy_flags(): do not leave the group first, the broker will notice in time. */
#define RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE 0x8

/** What rd_kafka_purge() gives up: what waits, what is on its way; and whether it waits for that. */
#define RD_KAFKA_PURGE_F_QUEUE 0x1
#define RD_KAFKA_PURGE_F_INFLIGHT 0x2
#define RD_KAFKA_PURGE_F_NON_BLOCKING 0x4

/* ---- Version ---- */

/**
 * The version at run time, in the form of RD_KAFKA_VERSION; the library may be newer than this
 * header.
 */
RD_EXPORT int rd_kafka_version(void);

/** The version at run time as text, such as "2.16.0". */
RD_EXPORT const char *rd_kafka_version_str(void);

/** The contexts that `debug` takes, separated by commas. */
RD_EXPORT const char *rd_kafka_get_debug_contexts(void);

/* ---- Errors ---- */

/**
 * What went wrong. The negative ones, with two underscores in their names, arise in the library;
 * the others come from brokers and have the numbers of Kafka's protocol. What each means,
 * rd_kafka_err2str() says.
 */
typedef enum {
    RD_KAFKA_RESP_ERR__BEGIN = -200,
    RD_KAFKA_RESP_ERR__BAD_MSG = -199,
    RD_KAFKA_RESP_ERR__BAD_COMPRESSION = -198,
    RD_KAFKA_RESP_ERR__DESTROY = -197,
    RD_KAFKA_RESP_ERR__FAIL = -196,
    RD_KAFKA_RESP_ERR__TRANSPORT = -195,
    RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE = -194,
    RD_KAFKA_RESP_ERR__RESOLVE = -193,
    RD_KAFKA_RESP_ERR__MSG_TIMED_OUT = -192,
    RD_KAFKA_RESP_ERR__PARTITION_EOF = -191,
    RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION = -190,
    RD_KAFKA_RESP_ERR__FS = -189,
    RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC = -188,
    RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN = -187,
    RD_KAFKA_RESP_ERR__INVALID_ARG = -186,
    RD_KAFKA_RESP_ERR__TIMED_OUT = -185,
    RD_KAFKA_RESP_ERR__QUEUE_FULL = -184,
    RD_KAFKA_RESP_ERR__ISR_INSUFF = -183,
    RD_KAFKA_RESP_ERR__NODE_UPDATE = -182,
    RD_KAFKA_RESP_ERR__SSL = -181,
    RD_KAFKA_RESP_ERR__WAIT_COORD = -180,
    RD_KAFKA_RESP_ERR__UNKNOWN_GROUP = -179,
    RD_KAFKA_RESP_ERR__IN_PROGRESS = -178,
    RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS = -177,
    RD_KAFKA_RESP_ERR__EXISTING_SUBSCRIPTION = -176,
    RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS = -175,
    RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS = -174,
    RD_KAFKA_RESP_ERR__CONFLICT = -173,
    RD_KAFKA_RESP_ERR__STATE = -172,
    RD_KAFKA_RESP_ERR__UNKNOWN_PROTOCOL = -171,
    RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED = -170,
    RD_KAFKA_RESP_ERR__AUTHENTICATION = -169,
    RD_KAFKA_RESP_ERR__NO_OFFSET = -168,
    RD_KAFKA_RESP_ERR__OUTDATED = -167,
    RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE = -166,
    RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE = -165,
    RD_KAFKA_RESP_ERR__WAIT_CACHE = -164,
    RD_KAFKA_RESP_ERR__INTR = -163,
    RD_KAFKA_RESP_ERR__KEY_SERIALIZATION = -162,
    RD_KAFKA_RESP_ERR__VALUE_SERIALIZATION = -161,
    RD_KAFKA_RESP_ERR__KEY_DESERIALIZATION = -160,
    RD_KAFKA_RESP_ERR__VALUE_DESERIALIZATION = -159,
    RD_KAFKA_RESP_ERR__PARTIAL = -158,
    RD_KAFKA_RESP_ERR__READ_ONLY = -157,
    RD_KAFKA_RESP_ERR__NOENT = -156,
    RD_KAFKA_RESP_ERR__UNDERFLOW = -155,
    RD_KAFKA_RESP_ERR__INVALID_TYPE = -154,
    RD_KAFKA_RESP_ERR__RETRY = -153,
    RD_KAFKA_RESP_ERR__PURGE_QUEUE = -152,
    RD_KAFKA_RESP_ERR__PURGE_INFLIGHT = -151,
    RD_KAFKA_RESP_ERR__FATAL = -150,
    RD_KAFKA_RESP_ERR__INCONSISTENT = -149,
    RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE = -148,
    RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED = -147,
    RD_KAFKA_RESP_ERR__UNKNOWN_BROKER = -146,
    RD_KAFKA_RESP_ERR__NOT_CONFIGURED = -145,
    RD_KAFKA_RESP_ERR__FENCED = -144,
    RD_KAFKA_RESP_ERR__APPLICATION = -143,
    RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST = -142,
    RD_KAFKA_RESP_ERR__NOOP = -141,
    RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET = -140,
    RD_KAFKA_RESP_ERR__LOG_TRUNCATION = -139,
    RD_KAFKA_RESP_ERR__INVALID_DIFFERENT_RECORD = -138,
    RD_KAFKA_RESP_ERR__DESTROY_BROKER = -137,
    RD_KAFKA_RESP_ERR__END = -100,
    RD_KAFKA_RESP_ERR_UNKNOWN = -1,
    RD_KAFKA_RESP_ERR_NO_ERROR = 0,
    RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE = 1,
    RD_KAFKA_RESP_ERR_INVALID_MSG = 2,
    RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART = 3,
    RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE = 4,
    RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE = 5,
    RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION = 6,
    RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT = 7,
    RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE = 8,
    RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE = 9,
    RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE = 10,
    RD_KAFKA_RESP_ERR_STALE_CTRL_EPOCH = 11,
    RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE = 12,
    RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION = 13,
    RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS = 14,
    RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE = 15,
    RD_KAFKA_RESP_ERR_NOT_COORDINATOR = 16,
    RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION = 17,
    RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE = 18,
    RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS = 19,
    RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20,
    RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS = 21,
    RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION = 22,
    RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL = 23,
    RD_KAFKA_RESP_ERR_INVALID_GROUP_ID = 24,
    RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID = 25,
    RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT = 26,
    RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS = 27,
    RD_KAFKA_RESP_ERR_INVALID_COMMIT_OFFSET_SIZE = 28,
    RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED = 29,
    RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED = 30,
    RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED = 31,
    RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP = 32,
    RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM = 33,
    RD_KAFKA_RESP_ERR_ILLEGAL_SASL_STATE = 34,
    RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION = 35,
    RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS = 36,
    RD_KAFKA_RESP_ERR_INVALID_PARTITIONS = 37,
    RD_KAFKA_RESP_ERR_INVALID_REPLICATION_FACTOR = 38,
    RD_KAFKA_RESP_ERR_INVALID_REPLICA_ASSIGNMENT = 39,
    RD_KAFKA_RESP_ERR_INVALID_CONFIG = 40,
    RD_KAFKA_RESP_ERR_NOT_CONTROLLER = 41,
    RD_KAFKA_RESP_ERR_INVALID_REQUEST = 42,
    RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT = 43,
    RD_KAFKA_RESP_ERR_POLICY_VIOLATION = 44,
    RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER = 45,
    RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER = 46,
    RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH = 47,
    RD_KAFKA_RESP_ERR_INVALID_TXN_STATE = 48,
    RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING = 49,
    RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT = 50,
    RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS = 51,
    RD_KAFKA_RESP_ERR_TRANSACTION_COORDINATOR_FENCED = 52,
    RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53,
    RD_KAFKA_RESP_ERR_SECURITY_DISABLED = 54,
    RD_KAFKA_RESP_ERR_OPERATION_NOT_ATTEMPTED = 55,
    RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR = 56,
    RD_KAFKA_RESP_ERR_LOG_DIR_NOT_FOUND = 57,
    RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED = 58,
    RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID = 59,
    RD_KAFKA_RESP_ERR_REASSIGNMENT_IN_PROGRESS = 60,
    RD_KAFKA_RESP_ERR_DELEGATION_TOKEN_AUTH_DISABLED = 61,
    RD_KAFKA_RESP_ERR_DELEGATION_TOKEN_NOT_FOUND = 62,
    RD_KAFKA_RESP_ERR_DELEGATION_TOKEN_OWNER_MISMATCH = 63,
    RD_KAFKA_RESP_ERR_DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64,
    RD_KAFKA_RESP_ERR_DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65,
    RD_KAFKA_RESP_ERR_DELEGATION_TOKEN_EXPIRED = 66,
    RD_KAFKA_RESP_ERR_INVALID_PRINCIPAL_TYPE = 67,
    RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP = 68,
    RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND = 69,
    RD_KAFKA_RESP_ERR_FETCH_SESSION_ID_NOT_FOUND = 70,
    RD_KAFKA_RESP_ERR_INVALID_FETCH_SESSION_EPOCH = 71,
    RD_KAFKA_RESP_ERR_LISTENER_NOT_FOUND = 72,
    RD_KAFKA_RESP_ERR_TOPIC_DELETION_DISABLED = 73,
    RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH = 74,
    RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH = 75,
    RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE = 76,
    RD_KAFKA_RESP_ERR_STALE_BROKER_EPOCH = 77,
    RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE = 78,
    RD_KAFKA_RESP_ERR_MEMBER_ID_REQUIRED = 79,
    RD_KAFKA_RESP_ERR_PREFERRED_LEADER_NOT_AVAILABLE = 80,
    RD_KAFKA_RESP_ERR_GROUP_MAX_SIZE_REACHED = 81,
    RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID = 82,
    RD_KAFKA_RESP_ERR_ELIGIBLE_LEADERS_NOT_AVAILABLE = 83,
    RD_KAFKA_RESP_ERR_ELECTION_NOT_NEEDED = 84,
    RD_KAFKA_RESP_ERR_NO_REASSIGNMENT_IN_PROGRESS = 85,
    RD_KAFKA_RESP_ERR_GROUP_SUBSCRIBED_TO_TOPIC = 86,
    RD_KAFKA_RESP_ERR_INVALID_RECORD = 87,
    RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT = 88,
    RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED = 89,
    RD_KAFKA_RESP_ERR_PRODUCER_FENCED = 90,
    RD_KAFKA_RESP_ERR_RESOURCE_NOT_FOUND = 91,
    RD_KAFKA_RESP_ERR_DUPLICATE_RESOURCE = 92,
    RD_KAFKA_RESP_ERR_UNACCEPTABLE_CREDENTIAL = 93,
    RD_KAFKA_RESP_ERR_INCONSISTENT_VOTER_SET = 94,
    RD_KAFKA_RESP_ERR_INVALID_UPDATE_VERSION = 95,
    RD_KAFKA_RESP_ERR_FEATURE_UPDATE_FAILED = 96,
    RD_KAFKA_RESP_ERR_PRINCIPAL_DESERIALIZATION_FAILURE = 97,
    RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_ID = 100,
    RD_KAFKA_RESP_ERR_INCONSISTENT_TOPIC_ID = 103,
    RD_KAFKA_RESP_ERR_FENCED_MEMBER_EPOCH = 110,
    RD_KAFKA_RESP_ERR_UNRELEASED_INSTANCE_ID = 111,
    RD_KAFKA_RESP_ERR_UNSUPPORTED_ASSIGNOR = 112,
    RD_KAFKA_RESP_ERR_STALE_MEMBER_EPOCH = 113,
    RD_KAFKA_RESP_ERR_MISMATCHED_ENDPOINT_TYPE = 114,
    RD_KAFKA_RESP_ERR_UNSUPPORTED_ENDPOINT_TYPE = 115,
    RD_KAFKA_RESP_ERR_UNKNOWN_CONTROLLER_ID = 116,
    RD_KAFKA_RESP_ERR_UNKNOWN_SUBSCRIPTION_ID = 117,
    RD_KAFKA_RESP_ERR_TELEMETRY_TOO_LARGE = 118,
    RD_KAFKA_RESP_ERR_INVALID_REGISTRATION = 119,
    RD_KAFKA_RESP_ERR_TRANSACTION_ABORTABLE = 120,
    RD_KAFKA_RESP_ERR_INVALID_RECORD_STATE = 121,
    RD_KAFKA_RESP_ERR_SHARE_SESSION_NOT_FOUND = 122,
    RD_KAFKA_RESP_ERR_INVALID_SHARE_SESSION_EPOCH = 123,
    RD_KAFKA_RESP_ERR_FENCED_STATE_EPOCH = 124,
    RD_KAFKA_RESP_ERR_INVALID_VOTER_KEY = 125,
    RD_KAFKA_RESP_ERR_DUPLICATE_VOTER = 126,
    RD_KAFKA_RESP_ERR_VOTER_NOT_FOUND = 127,
    RD_KAFKA_RESP_ERR_INVALID_REGULAR_EXPRESSION = 128,
    RD_KAFKA_RESP_ERR_REBOOTSTRAP_REQUIRED = 129,
    RD_KAFKA_RESP_ERR_STREAMS_INVALID_TOPOLOGY = 130,
    RD_KAFKA_RESP_ERR_STREAMS_INVALID_TOPOLOGY_EPOCH = 131,
    RD_KAFKA_RESP_ERR_STREAMS_TOPOLOGY_FENCED = 132,
    RD_KAFKA_RESP_ERR_SHARE_SESSION_LIMIT_REACHED = 133,
    RD_KAFKA_RESP_ERR_END_ALL
} rd_kafka_resp_err_t;

/** Other names of some codes. */
#define RD_KAFKA_RESP_ERR_NOT_LEADER_OR_FOLLOWER RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION
#define RD_KAFKA_RESP_ERR_GROUP_LOAD_IN_PROGRESS RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS
#define RD_KAFKA_RESP_ERR_GROUP_COORDINATOR_NOT_AVAILABLE RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE
#define RD_KAFKA_RESP_ERR_NOT_COORDINATOR_FOR_GROUP RD_KAFKA_RESP_ERR_NOT_COORDINATOR

/** An entry of the table that rd_kafka_get_err_descs() gives. */
struct rd_kafka_err_desc {
    rd_kafka_resp_err_t code;
    const char *name; /**< Without RD_KAFKA_RESP_ERR_. */
    const char *desc; /**< As rd_kafka_err2str() says it. */
};

/**
 * Gives the table of error codes: its first entry to `errdescs`, its length to `cntp`. Entries
 * of codes that nobody uses have a NULL name. The table lives as long as the library.
 */
RD_EXPORT void rd_kafka_get_err_descs(const struct rd_kafka_err_desc **errdescs, size_t *cntp);

/**
 * What an error code means, for people. The text of a known code lives as long as the library;
 * that of an unknown one until the same thread has asked for several others.
 */
RD_EXPORT const char *rd_kafka_err2str(rd_kafka_resp_err_t err);

/**
 * The name of an error code without RD_KAFKA_RESP_ERR_; its text lives as that of
 * rd_kafka_err2str() does.
 */
RD_EXPORT const char *rd_kafka_err2name(rd_kafka_resp_err_t err);

/**
 * The error of this thread's last call of a function that returns no code itself:
 * rd_kafka_topic_new(), rd_kafka_produce(), rd_kafka_consume_start() and the other consume
 * functions. Ask before any other call of the library.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_last_error(void);

/**
 * The error code that stands for this errno after one of the older functions;
 * rd_kafka_last_error() is the better way.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_errno2err(int errnox);

/** This thread's errno as the library sees it, which on some systems is not the application's. */
RD_EXPORT int rd_kafka_errno(void);

/**
 * The fatal error that the client is in, its text to `errstr`; RD_KAFKA_RESP_ERR_NO_ERROR if it
 * is well. Such a client can do nothing more but be destroyed.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_fatal_error(
    rd_kafka_t *rk, char *errstr, size_t errstr_size);

/**
 * Puts the client into a fatal error, for tests of what the application does then;
 * RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS if it is in one already.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_test_fatal_error(
    rd_kafka_t *rk, rd_kafka_resp_err_t err, const char *reason);

/** The code of an error object; RD_KAFKA_RESP_ERR_NO_ERROR for NULL. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_error_code(const rd_kafka_error_t *error);

/**
 * The name of the error's code, as rd_kafka_err2name() gives it; "" for NULL. It lives as long
 * as the object.
 */
RD_EXPORT const char *rd_kafka_error_name(const rd_kafka_error_t *error);

/** What went wrong, for people; "" for NULL. It lives as long as the object. */
RD_EXPORT const char *rd_kafka_error_string(const rd_kafka_error_t *error);

/** 1 if the client can go on with nothing after this error, else 0. */
RD_EXPORT int rd_kafka_error_is_fatal(const rd_kafka_error_t *error);

/** 1 if the same call may succeed when it is made again, else 0. */
RD_EXPORT int rd_kafka_error_is_retriable(const rd_kafka_error_t *error);

/**
 * 1 if the transaction can only be aborted, with rd_kafka_abort_transaction(), and a new one
 * begun; else 0.
 */
RD_EXPORT int rd_kafka_error_txn_requires_abort(const rd_kafka_error_t *error);

/** Frees an error object; NULL is fine. */
RD_EXPORT void rd_kafka_error_destroy(rd_kafka_error_t *error);

/**
 * Makes an error object of a code and a printf format; with format NULL it says what the code
 * says. Free it with rd_kafka_error_destroy().
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_error_new(
    rd_kafka_resp_err_t code, const char *fmt, ...) RD_FORMAT(printf, 2, 3);

/* ---- Topics and partitions in lists ---- */

/** An offset, or where one would be. */
#define RD_KAFKA_PARTITION_UA ((int32_t)-1) /**< No partition: one is to be chosen. */
#define RD_KAFKA_OFFSET_BEGINNING -2        /**< The first offset there is. */
#define RD_KAFKA_OFFSET_END -1              /**< After the last. */
#define RD_KAFKA_OFFSET_STORED -1000        /**< The committed one. */
#define RD_KAFKA_OFFSET_INVALID -1001       /**< None. */
#define RD_KAFKA_OFFSET_TAIL_BASE -2000     /**< For the next. */
/** So many before the end. */
#define RD_KAFKA_OFFSET_TAIL(CNT) (RD_KAFKA_OFFSET_TAIL_BASE - (CNT))

/** A partition of a topic, with what a function says of it or is to do with it. */
typedef struct rd_kafka_topic_partition_s {
    char *topic;             /**< The list's. */
    int32_t partition;
    int64_t offset;          /**< Or one of RD_KAFKA_OFFSET_. */
    void *metadata;          /**< Of a commit: from malloc(), and freed with the list. */
    size_t metadata_size;
    void *opaque;            /**< The application's. */
    rd_kafka_resp_err_t err; /**< The outcome for this partition. */
    void *_private;          /**< The library's: leave it alone. */
} rd_kafka_topic_partition_t;

/** A list that grows: the array moves then. */
typedef struct rd_kafka_topic_partition_list_s {
    int cnt;  /**< How many there are. */
    int size; /**< For how many there is room. */
    rd_kafka_topic_partition_t *elems;
} rd_kafka_topic_partition_list_t;

/** Frees an element that is not part of a list. */
RD_EXPORT void rd_kafka_topic_partition_destroy(rd_kafka_topic_partition_t *rktpar);

/** Sets the leader epoch of the element's offset; -1 for none. */
RD_EXPORT void rd_kafka_topic_partition_set_leader_epoch(
    rd_kafka_topic_partition_t *rktpar, int32_t leader_epoch);

/** The leader epoch of the element's offset; -1 if it is not known. */
RD_EXPORT int32_t rd_kafka_topic_partition_get_leader_epoch(
    const rd_kafka_topic_partition_t *rktpar);

/**
 * Makes an empty list with room for `size` elements; it grows as needed. Free it with
 * rd_kafka_topic_partition_list_destroy().
 */
RD_EXPORT rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);

/** Frees a list with its elements, their topics and metadata; NULL is fine. */
RD_EXPORT void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *rkparlist);

/**
 * Adds an element with no offset (RD_KAFKA_OFFSET_INVALID), whether or not there is an equal
 * one, and returns it. It may be filled in; it moves when the list grows.
 */
RD_EXPORT rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(
    rd_kafka_topic_partition_list_t *rktparlist, const char *topic, int32_t partition);

/** Adds one element for each partition from `start` to `stop`, both included. */
RD_EXPORT void rd_kafka_topic_partition_list_add_range(
    rd_kafka_topic_partition_list_t *rktparlist, const char *topic, int32_t start, int32_t stop);

/** Removes the first element of this topic and partition; 1 if there was one, else 0. */
RD_EXPORT int rd_kafka_topic_partition_list_del(
    rd_kafka_topic_partition_list_t *rktparlist, const char *topic, int32_t partition);

/** Removes the element at this index; 1 if there was one, else 0. */
RD_EXPORT int rd_kafka_topic_partition_list_del_by_idx(
    rd_kafka_topic_partition_list_t *rktparlist, int idx);

/** A copy of the list with all that its elements have. */
RD_EXPORT rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_copy(
    const rd_kafka_topic_partition_list_t *src);

/**
 * Sets the offset of an element; RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION if the list does not have
 * it.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_topic_partition_list_set_offset(
    rd_kafka_topic_partition_list_t *rktparlist, const char *topic, int32_t partition,
    int64_t offset);

/** The first element of this topic and partition, which stays the list's; NULL if there is none. */
RD_EXPORT rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_find(
    const rd_kafka_topic_partition_list_t *rktparlist, const char *topic, int32_t partition);

/**
 * Sorts the elements by `cmp`, which gets two elements and `cmp_opaque`; by topic and partition
 * if it is NULL.
 */
RD_EXPORT void rd_kafka_topic_partition_list_sort(
    rd_kafka_topic_partition_list_t *rktparlist,
    int (*cmp)(const void *a, const void *b, void *cmp_opaque), void *cmp_opaque);

/* ---- The fields of rd_kafka_producev() ---- */

/** What a field of rd_kafka_producev() is. */
typedef enum rd_kafka_vtype_t {
    RD_KAFKA_VTYPE_END = 0,
    RD_KAFKA_VTYPE_TOPIC = 1,
    RD_KAFKA_VTYPE_RKT = 2,
    RD_KAFKA_VTYPE_PARTITION = 3,
    RD_KAFKA_VTYPE_VALUE = 4,
    RD_KAFKA_VTYPE_KEY = 5,
    RD_KAFKA_VTYPE_OPAQUE = 6,
    RD_KAFKA_VTYPE_MSGFLAGS = 7,
    RD_KAFKA_VTYPE_TIMESTAMP = 8,
    RD_KAFKA_VTYPE_HEADER = 9,
    RD_KAFKA_VTYPE_HEADERS = 10
} rd_kafka_vtype_t;

/** A field for rd_kafka_produceva(): its kind, and what that kind reads. */
typedef struct rd_kafka_vu_s {
    rd_kafka_vtype_t vtype;
    union {
        const char *cstr;
        rd_kafka_topic_t *rkt;
        int i;
        int32_t i32;
        int64_t i64;
        struct {
            void *ptr;
            size_t size;
        } mem;
        struct {
            const char *name;
            const void *val;
            ssize_t size;
        } header;
        rd_kafka_headers_t *headers;
        void *ptr;
        char _pad[64]; /**< Room for what may come. */
    } u;
} rd_kafka_vu_t;

/** Fields for rd_kafka_producev(); each reads the member of rd_kafka_vu_t that is named. */
#define RD_KAFKA_V_END RD_KAFKA_VTYPE_END
#define RD_KAFKA_V_TOPIC(topic) RD_KAFKA_VTYPE_TOPIC, (const char *)(topic) /* u.cstr */
#define RD_KAFKA_V_RKT(rkt) RD_KAFKA_VTYPE_RKT, (rd_kafka_topic_t *)(rkt)   /* u.rkt */
#define RD_KAFKA_V_PARTITION(partition) RD_KAFKA_VTYPE_PARTITION, (int32_t)(partition) /* u.i32 */
/** Value and length; u.mem. */
#define RD_KAFKA_V_VALUE(VALUE, LEN) RD_KAFKA_VTYPE_VALUE, (void *)(VALUE), (size_t)(LEN)
/** Key and length; u.mem. */
#define RD_KAFKA_V_KEY(KEY, LEN) RD_KAFKA_VTYPE_KEY, (const void *)(KEY), (size_t)(LEN)
#define RD_KAFKA_V_OPAQUE(msg_opaque) RD_KAFKA_VTYPE_OPAQUE, (void *)(msg_opaque)      /* u.ptr */
#define RD_KAFKA_V_MSGFLAGS(msgflags) RD_KAFKA_VTYPE_MSGFLAGS, (int)(msgflags)         /* u.i */
/** Milliseconds since 1970; 0 is now. u.i64. */
#define RD_KAFKA_V_TIMESTAMP(timestamp) RD_KAFKA_VTYPE_TIMESTAMP, (int64_t)(timestamp)
/** One header, copied; a length of -1 means up to the NUL. Not together with HEADERS. u.header. */
#define RD_KAFKA_V_HEADER(NAME, VALUE, LEN)                                                        \
    RD_KAFKA_VTYPE_HEADER, (const char *)(NAME), (const void *)(VALUE), (ssize_t)(LEN)
/** Headers, which become the message's unless the call fails. Not together with HEADER. u.headers. */
#define RD_KAFKA_V_HEADERS(HDRS) RD_KAFKA_VTYPE_HEADERS, (rd_kafka_headers_t *)(HDRS)

/* ---- Headers of messages ---- */

/**
 * Makes a list of headers with room for `initial_count`. Free it with
 * rd_kafka_headers_destroy(), unless a message takes it over.
 */
RD_EXPORT rd_kafka_headers_t *rd_kafka_headers_new(size_t initial_count);

/** Frees headers; NULL is fine. Names and values that were read from them are gone then. */
RD_EXPORT void rd_kafka_headers_destroy(rd_kafka_headers_t *hdrs);

/** A copy of the headers. */
RD_EXPORT rd_kafka_headers_t *rd_kafka_headers_copy(const rd_kafka_headers_t *src);

/**
 * Adds a header; name and value are copied. A size of -1 means up to the NUL; a NULL value is a
 * header without value.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_header_add(
    rd_kafka_headers_t *hdrs, const char *name, ssize_t name_size, const void *value,
    ssize_t value_size);

/**
 * Removes all headers of this name; RD_KAFKA_RESP_ERR__NOENT if there is none,
 * RD_KAFKA_RESP_ERR__READ_ONLY if the headers must not be changed.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_header_remove(rd_kafka_headers_t *hdrs, const char *name);

/**
 * Gives the value of the last header of this name, or RD_KAFKA_RESP_ERR__NOENT. A NUL follows
 * the value, which stays the headers'.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_header_get_last(
    const rd_kafka_headers_t *hdrs, const char *name, const void **valuep, size_t *sizep);

/**
 * Gives the value of the header of this name that has index `idx` among those of the same name;
 * else as rd_kafka_header_get_last().
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_header_get(
    const rd_kafka_headers_t *hdrs, size_t idx, const char *name, const void **valuep,
    size_t *sizep);

/**
 * Gives name and value of the header at index `idx` among all, or RD_KAFKA_RESP_ERR__NOENT; for
 * going through them.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_header_get_all(
    const rd_kafka_headers_t *hdrs, size_t idx, const char **namep, const void **valuep,
    size_t *sizep);

/** How many headers there are. */
RD_EXPORT size_t rd_kafka_header_cnt(const rd_kafka_headers_t *hdrs);

/* ---- Messages ---- */

/** What a message's time is the time of. */
typedef enum rd_kafka_timestamp_type_t {
    RD_KAFKA_TIMESTAMP_NOT_AVAILABLE = 0,
    RD_KAFKA_TIMESTAMP_CREATE_TIME = 1,
    RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME = 2
} rd_kafka_timestamp_type_t;

/**
 * Whether a produced message is in the log: surely not, perhaps (it was sent and no answer
 * came), or surely.
 */
typedef enum rd_kafka_msg_status_t {
    RD_KAFKA_MSG_STATUS_NOT_PERSISTED = 0,
    RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED = 1,
    RD_KAFKA_MSG_STATUS_PERSISTED = 2
} rd_kafka_msg_status_t;

/** What becomes of the payload of a produced message, and of a call that finds the queue full. */
#define RD_KAFKA_MSG_F_FREE 0x1      /**< The library frees it with free(). */
#define RD_KAFKA_MSG_F_COPY 0x2      /**< The library copies it. */
#define RD_KAFKA_MSG_F_BLOCK 0x4     /**< Wait while the queue is full; somebody else must poll then. */
#define RD_KAFKA_MSG_F_PARTITION 0x8 /**< rd_kafka_produce_batch(): each message has its partition. */

/** A message that was consumed, or a produced one in its delivery report. */
typedef struct rd_kafka_message_s {
    rd_kafka_resp_err_t err; /**< If not 0, this is an error and no message, or was not delivered. */
    rd_kafka_topic_t *rkt;   /**< Its topic; NULL for some errors. */
    int32_t partition;
    void *payload;           /**< Of a consumer's error: a text. */
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;          /**< Of a delivered message: where it is. */
    void *_private;          /**< Produced: its opaque. Consumed: the library's. */
} rd_kafka_message_t;

/** Gives a message back; nothing that its fields point to is valid afterwards. */
RD_EXPORT void rd_kafka_message_destroy(rd_kafka_message_t *rkmessage);

/**
 * What a message's error says, in words; NULL if it has none. For the messages of consumers the
 * payload may hold a better text, which this returns.
 */
RD_EXPORT const char *rd_kafka_message_errstr(const rd_kafka_message_t *rkmessage);

/**
 * What went wrong with a produced message, with more detail than its code; NULL if nothing did.
 * For delivery reports only.
 */
RD_EXPORT const char *rd_kafka_message_produce_errstr(const rd_kafka_message_t *rkmessage);

/**
 * The message's time in milliseconds since 1970, -1 if it has none; what kind of time it is goes
 * to `tstype`, which may be NULL.
 */
RD_EXPORT int64_t rd_kafka_message_timestamp(
    const rd_kafka_message_t *rkmessage, rd_kafka_timestamp_type_t *tstype);

/**
 * Microseconds between rd_kafka_produce() and the acknowledgement; for delivery reports. Those that
 * went in one batch tell how long the first of them took. -1 if it is not known.
 */
RD_EXPORT int64_t rd_kafka_message_latency(const rd_kafka_message_t *rkmessage);

/** The broker that a message was fetched from or acknowledged by; -1 if it is not known. */
RD_EXPORT int32_t rd_kafka_message_broker_id(const rd_kafka_message_t *rkmessage);

/**
 * Gives the headers of a message, which stay the message's, or RD_KAFKA_RESP_ERR__NOENT if it
 * has none.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_message_headers(
    const rd_kafka_message_t *rkmessage, rd_kafka_headers_t **hdrsp);

/**
 * Gives the headers of a message to the caller, who frees them; the message has none afterwards.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_message_detach_headers(
    rd_kafka_message_t *rkmessage, rd_kafka_headers_t **hdrsp);

/** Replaces the headers of a message; they become the message's. */
RD_EXPORT void rd_kafka_message_set_headers(
    rd_kafka_message_t *rkmessage, rd_kafka_headers_t *hdrs);

/** Whether a produced message is in the log, may be, or is not; for delivery reports. */
RD_EXPORT rd_kafka_msg_status_t rd_kafka_message_status(const rd_kafka_message_t *rkmessage);

/** The leader epoch with which a message was fetched; -1 if it is not known. */
RD_EXPORT int32_t rd_kafka_message_leader_epoch(const rd_kafka_message_t *rkmessage);

/**
 * The number of deliveries of a record to members of its share group, with this one; 0 for messages
 * that are not from a share consumer.
 */
RD_EXPORT int16_t rd_kafka_message_delivery_count(const rd_kafka_message_t *rkmessage);

/* ---- UUIDs ---- */

/** Makes an id of its two halves. Free it with rd_kafka_Uuid_destroy(). */
RD_EXPORT rd_kafka_Uuid_t *rd_kafka_Uuid_new(
    int64_t most_significant_bits, int64_t least_significant_bits);

/** A copy of the id. */
RD_EXPORT rd_kafka_Uuid_t *rd_kafka_Uuid_copy(const rd_kafka_Uuid_t *uuid);

/** Frees an id; NULL is fine. */
RD_EXPORT void rd_kafka_Uuid_destroy(rd_kafka_Uuid_t *uuid);

/** The id in base64 without padding; the text lives as long as the id. */
RD_EXPORT const char *rd_kafka_Uuid_base64str(const rd_kafka_Uuid_t *uuid);

/** The lower 64 bits. */
RD_EXPORT int64_t rd_kafka_Uuid_least_significant_bits(const rd_kafka_Uuid_t *uuid);

/** The upper 64 bits. */
RD_EXPORT int64_t rd_kafka_Uuid_most_significant_bits(const rd_kafka_Uuid_t *uuid);

/* ---- Configuration of clients ---- */

/** The outcome of setting or reading a property. */
typedef enum rd_kafka_conf_res_t {
    RD_KAFKA_CONF_UNKNOWN = -2,
    RD_KAFKA_CONF_INVALID = -1,
    RD_KAFKA_CONF_OK = 0
} rd_kafka_conf_res_t;

/** What a certificate in memory is. */
typedef enum rd_kafka_cert_type_t {
    RD_KAFKA_CERT_PUBLIC_KEY = 0,
    RD_KAFKA_CERT_PRIVATE_KEY = 1,
    RD_KAFKA_CERT_CA = 2,
    RD_KAFKA_CERT__CNT = 3
} rd_kafka_cert_type_t;

/** How it is written. */
typedef enum rd_kafka_cert_enc_t {
    RD_KAFKA_CERT_ENC_PKCS12 = 0,
    RD_KAFKA_CERT_ENC_DER = 1,
    RD_KAFKA_CERT_ENC_PEM = 2,
    RD_KAFKA_CERT_ENC__CNT = 3
} rd_kafka_cert_enc_t;

/**
 * Makes a configuration with the default of every property. rd_kafka_new() takes it over;
 * otherwise free it with rd_kafka_conf_destroy().
 */
RD_EXPORT rd_kafka_conf_t *rd_kafka_conf_new(void);

/** Frees a configuration that no client took over; NULL is fine. */
RD_EXPORT void rd_kafka_conf_destroy(rd_kafka_conf_t *conf);

/**
 * A copy of the configuration, without interceptors: those that want to be in the copy add
 * themselves from their on_conf_dup.
 */
RD_EXPORT rd_kafka_conf_t *rd_kafka_conf_dup(const rd_kafka_conf_t *conf);

/**
 * As rd_kafka_conf_dup(), but properties whose names begin with one of the `filter_cnt` prefixes
 * keep their defaults.
 */
RD_EXPORT rd_kafka_conf_t *rd_kafka_conf_dup_filter(
    const rd_kafka_conf_t *conf, size_t filter_cnt, const char **filter);

/**
 * The configuration that a client runs with; read it, do not change it, and do not keep it
 * longer than the client.
 */
RD_EXPORT const rd_kafka_conf_t *rd_kafka_conf(rd_kafka_t *rk);

/**
 * Sets a property from text; NULL or "" takes a text back to its default. RD_KAFKA_CONF_UNKNOWN
 * or RD_KAFKA_CONF_INVALID come with an explanation in `errstr` that names the property. A
 * topic's property goes to the default topic configuration.
 */
RD_EXPORT rd_kafka_conf_res_t rd_kafka_conf_set(
    rd_kafka_conf_t *conf, const char *name, const char *value, char *errstr, size_t errstr_size);

/**
 * Chooses with RD_KAFKA_EVENT_ bits what reaches the application as events in queues instead of
 * calls of its functions.
 */
RD_EXPORT void rd_kafka_conf_set_events(rd_kafka_conf_t *conf, int events);

/**
 * Has a thread of the library call the application with the events that are sent to the
 * background queue; the application destroys each.
 */
RD_EXPORT void rd_kafka_conf_set_background_event_cb(
    rd_kafka_conf_t *conf, void (*event_cb)(rd_kafka_t *rk, rd_kafka_event_t *rkev, void *opaque));

/** The older form of delivery reports; use rd_kafka_conf_set_dr_msg_cb(). */
RD_EXPORT void rd_kafka_conf_set_dr_cb(
    rd_kafka_conf_t *conf,
    void (*dr_cb)(rd_kafka_t *rk, void *payload, size_t len, rd_kafka_resp_err_t err, void
        *opaque, void *msg_opaque));

/**
 * Is called from rd_kafka_poll() and rd_kafka_flush() once for each message that was produced,
 * with its fate in `err` and its opaque in `_private`. The message is valid during the call.
 */
RD_EXPORT void rd_kafka_conf_set_dr_msg_cb(
    rd_kafka_conf_t *conf,
    void (*dr_msg_cb)(rd_kafka_t *rk, const rd_kafka_message_t *rkmessage, void *opaque));

/**
 * Is called from rd_kafka_queue_poll_callback() and rd_kafka_poll() with each message that comes
 * to the queue that they serve; rd_kafka_consumer_poll() returns messages all the same. The
 * message stays the library's.
 */
RD_EXPORT void rd_kafka_conf_set_consume_cb(
    rd_kafka_conf_t *conf, void (*consume_cb)(rd_kafka_message_t *rkmessage, void *opaque));

/**
 * Is called from rd_kafka_consumer_poll() and rd_kafka_consumer_close() when partitions come
 * (RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) or go (RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS). It must
 * then call rd_kafka_assign(), or the incremental functions if rd_kafka_rebalance_protocol()
 * says COOPERATIVE; on any other `err` it must call rd_kafka_assign() with NULL.
 */
RD_EXPORT void rd_kafka_conf_set_rebalance_cb(
    rd_kafka_conf_t *conf,
    void (*rebalance_cb)(rd_kafka_t *rk, rd_kafka_resp_err_t err,
        rd_kafka_topic_partition_list_t *partitions, void *opaque));

/**
 * Is called from polling with the outcome of commits in the background and of those with
 * `async`; RD_KAFKA_RESP_ERR__NO_OFFSET says there was nothing to commit.
 */
RD_EXPORT void rd_kafka_conf_set_offset_commit_cb(
    rd_kafka_conf_t *conf,
    void (*offset_commit_cb)(rd_kafka_t *rk, rd_kafka_resp_err_t err,
        rd_kafka_topic_partition_list_t *offsets, void *opaque));

/**
 * Is called from polling with errors of the client as a whole. Most are for information, and the
 * client goes on by itself; RD_KAFKA_RESP_ERR__FATAL means that rd_kafka_fatal_error() has the
 * reason and the client is of no more use.
 */
RD_EXPORT void rd_kafka_conf_set_error_cb(
    rd_kafka_conf_t *conf,
    void (*error_cb)(rd_kafka_t *rk, int err, const char *reason, void *opaque));

/** Is called from polling when a broker has delayed the client because of its quotas. */
RD_EXPORT void rd_kafka_conf_set_throttle_cb(
    rd_kafka_conf_t *conf,
    void (*throttle_cb)(rd_kafka_t *rk, const char *broker_name, int32_t broker_id, int
        throttle_time_ms, void *opaque));

/**
 * Takes the log lines, from any thread and without delay, unless `log.queue` puts them into a
 * queue. NULL is silence; the default is rd_kafka_log_print().
 */
RD_EXPORT void rd_kafka_conf_set_log_cb(
    rd_kafka_conf_t *conf,
    void (*log_cb)(const rd_kafka_t *rk, int level, const char *fac, const char *buf));

/**
 * Is called from polling every `statistics.interval.ms` with statistics as JSON. Returning 1
 * keeps the text, to be freed with rd_kafka_mem_free(); 0 leaves it to the library.
 */
RD_EXPORT void rd_kafka_conf_set_stats_cb(
    rd_kafka_conf_t *conf,
    int (*stats_cb)(rd_kafka_t *rk, char *json, size_t json_len, void *opaque));

/**
 * Is called from polling, or from the queue of SASL, when SASL/OAUTHBEARER needs a token: answer
 * with rd_kafka_oauthbearer_set_token() or rd_kafka_oauthbearer_set_token_failure().
 */
RD_EXPORT void rd_kafka_conf_set_oauthbearer_token_refresh_cb(
    rd_kafka_conf_t *conf,
    void (*oauthbearer_token_refresh_cb)(rd_kafka_t *rk, const char *oauthbearer_config, void
        *opaque));

/**
 * Sends token refreshes to the queue of rd_kafka_queue_get_sasl() instead of the main queue, if
 * `enable` is not 0.
 */
RD_EXPORT void rd_kafka_conf_enable_sasl_queue(rd_kafka_conf_t *conf, int enable);

/**
 * Makes the sockets: returns a file descriptor, close-on-exec where it matters, or -1. This
 * version keeps the function and does not call it.
 */
RD_EXPORT void rd_kafka_conf_set_socket_cb(
    rd_kafka_conf_t *conf, int (*socket_cb)(int domain, int type, int protocol, void *opaque));

/**
 * Connects the sockets: returns 0 or an errno. This version keeps the function and does not call
 * it.
 */
RD_EXPORT void rd_kafka_conf_set_connect_cb(
    rd_kafka_conf_t *conf,
    int (*connect_cb)(int sockfd, const struct sockaddr *addr, int addrlen, const char *id, void
        *opaque));

/** Closes the sockets. This version keeps the function and does not call it. */
RD_EXPORT void rd_kafka_conf_set_closesocket_cb(
    rd_kafka_conf_t *conf, int (*closesocket_cb)(int sockfd, void *opaque));

#ifndef _WIN32
/**
 * Opens files: returns a file descriptor or -1. This version keeps the function and does not
 * call it.
 */
RD_EXPORT void rd_kafka_conf_set_open_cb(
    rd_kafka_conf_t *conf,
    int (*open_cb)(const char *pathname, int flags, mode_t mode, void *opaque));
#endif

/**
 * Resolves names as getaddrinfo() does, and frees the result when it is called with all but
 * `res` NULL. This version keeps the function and does not call it.
 */
RD_EXPORT void rd_kafka_conf_set_resolve_cb(
    rd_kafka_conf_t *conf,
    int (*resolve_cb)(const char *node, const char *service, const struct addrinfo *hints,
        struct addrinfo **res, void *opaque));

/**
 * Judges a broker's certificate in DER: returns 1 to take it, or 0 with a text in `errstr`.
 * `x509_error` is OpenSSL's number of the problem that the verification found, or 0. A
 * certificate with a problem is only taken if the function also sets `*x509_error` to 0.
 */
RD_EXPORT rd_kafka_conf_res_t rd_kafka_conf_set_ssl_cert_verify_cb(
    rd_kafka_conf_t *conf,
    int (*ssl_cert_verify_cb)(rd_kafka_t *rk, const char *broker_name, int32_t broker_id, int
        *x509_error, int depth, const char *buf, size_t size, char *errstr, size_t errstr_size,
        void *opaque));

/** Sets a certificate or key from memory, which is copied; a NULL `buffer` removes it. */
RD_EXPORT rd_kafka_conf_res_t rd_kafka_conf_set_ssl_cert(
    rd_kafka_conf_t *conf, rd_kafka_cert_type_t cert_type, rd_kafka_cert_enc_t cert_enc,
    const void *buffer, size_t size, char *errstr, size_t errstr_size);

/** Keeps a pointer for an OpenSSL engine, of which this library has none. */
RD_EXPORT void rd_kafka_conf_set_engine_callback_data(rd_kafka_conf_t *conf, void *callback_data);

/** Sets the pointer that callbacks get as their opaque. */
RD_EXPORT void rd_kafka_conf_set_opaque(rd_kafka_conf_t *conf, void *opaque);

/**
 * Sets the configuration of topics that bring none of their own, and takes it over. Topic
 * properties can as well be set with rd_kafka_conf_set().
 */
RD_EXPORT void rd_kafka_conf_set_default_topic_conf(
    rd_kafka_conf_t *conf, rd_kafka_topic_conf_t *tconf);

/** The default topic configuration, which stays the configuration's; NULL if none was set. */
RD_EXPORT rd_kafka_topic_conf_t *rd_kafka_conf_get_default_topic_conf(rd_kafka_conf_t *conf);

/**
 * Reads a property: copies its text to `dest`, as far as `*dest_size` allows, and sets
 * `*dest_size` to the size it needs with its NUL. With `dest` NULL only the size.
 * RD_KAFKA_CONF_UNKNOWN if there is no such property or it has no value.
 */
RD_EXPORT rd_kafka_conf_res_t rd_kafka_conf_get(
    const rd_kafka_conf_t *conf, const char *name, char *dest, size_t *dest_size);

/**
 * All properties that have a value, as an array of `*cntp` strings, names and values in turn.
 * Free it with rd_kafka_conf_dump_free().
 */
RD_EXPORT const char **rd_kafka_conf_dump(rd_kafka_conf_t *conf, size_t *cntp);

/** Frees what the dump functions returned. */
RD_EXPORT void rd_kafka_conf_dump_free(const char **arr, size_t cnt);

/** Prints all properties with range, default and description. */
RD_EXPORT void rd_kafka_conf_properties_show(FILE *fp);

/** The pointer that was set with rd_kafka_conf_set_opaque(). */
RD_EXPORT void *rd_kafka_opaque(const rd_kafka_t *rk);

/* ---- Configuration of topics ---- */

/**
 * Makes a topic configuration with the default of every property. rd_kafka_topic_new() takes it
 * over; otherwise free it with rd_kafka_topic_conf_destroy().
 */
RD_EXPORT rd_kafka_topic_conf_t *rd_kafka_topic_conf_new(void);

/** A copy of the topic configuration. */
RD_EXPORT rd_kafka_topic_conf_t *rd_kafka_topic_conf_dup(const rd_kafka_topic_conf_t *conf);

/** A copy of the default topic configuration of a client. */
RD_EXPORT rd_kafka_topic_conf_t *rd_kafka_default_topic_conf_dup(rd_kafka_t *rk);

/** Frees a topic configuration that nothing took over; NULL is fine. */
RD_EXPORT void rd_kafka_topic_conf_destroy(rd_kafka_topic_conf_t *topic_conf);

/** Sets a topic's property from text; else as rd_kafka_conf_set(). */
RD_EXPORT rd_kafka_conf_res_t rd_kafka_topic_conf_set(
    rd_kafka_topic_conf_t *conf, const char *name, const char *value, char *errstr,
    size_t errstr_size);

/** Reads a topic's property; else as rd_kafka_conf_get(). */
RD_EXPORT rd_kafka_conf_res_t rd_kafka_topic_conf_get(
    const rd_kafka_topic_conf_t *conf, const char *name, char *dest, size_t *dest_size);

/** All properties of the topic configuration that have a value; else as rd_kafka_conf_dump(). */
RD_EXPORT const char **rd_kafka_topic_conf_dump(rd_kafka_topic_conf_t *conf, size_t *cntp);

/** Sets the pointer that callbacks of the topic get, and rd_kafka_topic_opaque() returns. */
RD_EXPORT void rd_kafka_topic_conf_set_opaque(rd_kafka_topic_conf_t *conf, void *rkt_opaque);

/**
 * Chooses the partition of each message that names none: returns it, or RD_KAFKA_PARTITION_UA to
 * refuse the message. It may be called from any thread, at any time, and more than once for a
 * message; it must not block and must call nothing of the library but
 * rd_kafka_topic_partition_available().
 */
RD_EXPORT void rd_kafka_topic_conf_set_partitioner_cb(
    rd_kafka_topic_conf_t *topic_conf,
    int32_t (*partitioner)(const rd_kafka_topic_t *rkt, const void *keydata, size_t keylen,
        int32_t partition_cnt, void *rkt_opaque, void *msg_opaque));

/** Orders the queued messages of a partition; the order of producing is the default. */
RD_EXPORT void rd_kafka_topic_conf_set_msg_order_cmp(
    rd_kafka_topic_conf_t *topic_conf,
    int (*msg_order_cmp)(const rd_kafka_message_t *a, const rd_kafka_message_t *b));

/* ---- Partitioners ---- */

/** 1 if the partition has a leader at this moment, else 0. For partitioners only. */
RD_EXPORT int rd_kafka_topic_partition_available(const rd_kafka_topic_t *rkt, int32_t partition);

/** Any partition, preferably an available one. */
RD_EXPORT int32_t rd_kafka_msg_partitioner_random(
    const rd_kafka_topic_t *rkt, const void *key, size_t keylen, int32_t partition_cnt,
    void *rkt_opaque, void *msg_opaque);

/** By the CRC32 of the key; all messages without key go to one partition. */
RD_EXPORT int32_t rd_kafka_msg_partitioner_consistent(
    const rd_kafka_topic_t *rkt, const void *key, size_t keylen, int32_t partition_cnt,
    void *rkt_opaque, void *msg_opaque);

/**
 * By the CRC32 of the key; messages without key or with an empty one go anywhere. This is the
 * default.
 */
RD_EXPORT int32_t rd_kafka_msg_partitioner_consistent_random(
    const rd_kafka_topic_t *rkt, const void *key, size_t keylen, int32_t partition_cnt,
    void *rkt_opaque, void *msg_opaque);

/** By Java's hash of the key; all messages without key go to one partition. */
RD_EXPORT int32_t rd_kafka_msg_partitioner_murmur2(
    const rd_kafka_topic_t *rkt, const void *key, size_t keylen, int32_t partition_cnt,
    void *rkt_opaque, void *msg_opaque);

/**
 * By Java's hash of the key; messages with a NULL key go anywhere. Java's producer chooses the
 * same partitions.
 */
RD_EXPORT int32_t rd_kafka_msg_partitioner_murmur2_random(
    const rd_kafka_topic_t *rkt, const void *key, size_t keylen, int32_t partition_cnt,
    void *rkt_opaque, void *msg_opaque);

/** By the FNV-1a hash of the key; all messages without key go to one partition. */
RD_EXPORT int32_t rd_kafka_msg_partitioner_fnv1a(
    const rd_kafka_topic_t *rkt, const void *key, size_t keylen, int32_t partition_cnt,
    void *rkt_opaque, void *msg_opaque);

/** By the FNV-1a hash of the key; messages with a NULL key go anywhere. */
RD_EXPORT int32_t rd_kafka_msg_partitioner_fnv1a_random(
    const rd_kafka_topic_t *rkt, const void *key, size_t keylen, int32_t partition_cnt,
    void *rkt_opaque, void *msg_opaque);

/* ---- Clients ---- */

/**
 * Makes a client and starts its threads. On success `conf` is taken over (NULL stands for the
 * defaults); on failure NULL is returned, the reason is in `errstr` and rd_kafka_last_error(),
 * and `conf` stays the caller's.
 */
RD_EXPORT rd_kafka_t *rd_kafka_new(
    rd_kafka_type_t type, rd_kafka_conf_t *conf, char *errstr, size_t errstr_size);

/**
 * Closes the consumer if that was not done, and frees the client when its last work is done.
 * A close that has begun is awaited, for 11 seconds at most. Messages not delivered by then are
 * lost: rd_kafka_flush() first. Destroy queues, topics, messages and events of the client before.
 */
RD_EXPORT void rd_kafka_destroy(rd_kafka_t *rk);

/** As rd_kafka_destroy(), with RD_KAFKA_DESTROY_F_ flags. */
RD_EXPORT void rd_kafka_destroy_flags(rd_kafka_t *rk, int flags);

/** The client's name, as in its logs and statistics. */
RD_EXPORT const char *rd_kafka_name(const rd_kafka_t *rk);

/** Whether the client is a producer or a consumer. */
RD_EXPORT rd_kafka_type_t rd_kafka_type(const rd_kafka_t *rk);

/** The client's id in its group, to be freed with rd_kafka_mem_free(); NULL if it has none. */
RD_EXPORT char *rd_kafka_memberid(const rd_kafka_t *rk);

/**
 * The cluster's id, to be freed with rd_kafka_mem_free(); waits up to `timeout_ms` for the
 * metadata, 0 is not at all; NULL if it does not come.
 */
RD_EXPORT char *rd_kafka_clusterid(rd_kafka_t *rk, int timeout_ms);

/**
 * The broker id of the cluster's controller; waits up to `timeout_ms` for the metadata; -1 if it
 * is not known.
 */
RD_EXPORT int32_t rd_kafka_controllerid(rd_kafka_t *rk, int timeout_ms);

/**
 * Makes a topic handle, or returns the one there is, which keeps its configuration. `conf` is
 * taken over in any case, and NULL stands for the default. NULL on failure, with the reason in
 * rd_kafka_last_error().
 */
RD_EXPORT rd_kafka_topic_t *rd_kafka_topic_new(
    rd_kafka_t *rk, const char *topic, rd_kafka_topic_conf_t *conf);

/** Gives a topic handle back, once for each rd_kafka_topic_new(). */
RD_EXPORT void rd_kafka_topic_destroy(rd_kafka_topic_t *rkt);

/** The topic's name; it lives as long as the handle. */
RD_EXPORT const char *rd_kafka_topic_name(const rd_kafka_topic_t *rkt);

/** The pointer that was set with rd_kafka_topic_conf_set_opaque(). */
RD_EXPORT void *rd_kafka_topic_opaque(const rd_kafka_topic_t *rkt);

/**
 * Calls the application's functions for what has happened, and waits up to `timeout_ms` for the
 * first (-1 is for ever); returns how many events it served. A producer must call it regularly,
 * or delivery reports pile up.
 */
RD_EXPORT int rd_kafka_poll(rd_kafka_t *rk, int timeout_ms);

/** To be called from a callback: makes the poll function that called it return soon. */
RD_EXPORT void rd_kafka_yield(rd_kafka_t *rk);

/**
 * Stops fetching from these partitions, which stay assigned; each gets its outcome in its `err`.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_pause_partitions(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t *partitions);

/** Goes on fetching from these partitions; each gets its outcome in its `err`. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_resume_partitions(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t *partitions);

/**
 * Asks the leader for the first offset and the one after the last, and waits up to `timeout_ms`.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_query_watermark_offsets(
    rd_kafka_t *rk, const char *topic, int32_t partition, int64_t *low, int64_t *high,
    int timeout_ms);

/**
 * The offsets as the consumer saw them last, without asking; RD_KAFKA_OFFSET_INVALID where it
 * has not.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_get_watermark_offsets(
    rd_kafka_t *rk, const char *topic, int32_t partition, int64_t *low, int64_t *high);

/**
 * Turns the times in `offset` (milliseconds since 1970) into the first offset that is not
 * earlier, for each partition; RD_KAFKA_OFFSET_END if there is none, errors in `err`.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_offsets_for_times(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t *offsets, int timeout_ms);

/** As calloc(), from the allocator that rd_kafka_mem_free() frees to; `rk` may be NULL. */
RD_EXPORT void *rd_kafka_mem_calloc(rd_kafka_t *rk, size_t num, size_t size);

/** As malloc(), from the allocator that rd_kafka_mem_free() frees to; `rk` may be NULL. */
RD_EXPORT void *rd_kafka_mem_malloc(rd_kafka_t *rk, size_t size);

/** Frees memory that the library gave away; `rk` may be NULL. */
RD_EXPORT void rd_kafka_mem_free(rd_kafka_t *rk, void *ptr);

/**
 * How many messages and requests of the client wait to be sent, acknowledged or served by
 * polling.
 */
RD_EXPORT int rd_kafka_outq_len(rd_kafka_t *rk);

/**
 * Sends what waits without lingering and serves delivery reports until all is done;
 * RD_KAFKA_RESP_ERR__TIMED_OUT if it is not within `timeout_ms`.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_flush(rd_kafka_t *rk, int timeout_ms);

/**
 * Gives up messages that wait (RD_KAFKA_PURGE_F_QUEUE), or are on their way
 * (RD_KAFKA_PURGE_F_INFLIGHT); they are reported as failed. A purged message on its way may be
 * in the log all the same.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_purge(rd_kafka_t *rk, int purge_flags);

/** Adds bootstrap brokers, separated by commas; returns how many were added. */
RD_EXPORT int rd_kafka_brokers_add(rd_kafka_t *rk, const char *brokerlist);

/**
 * The ids of the brokers that the client knows from metadata, to be freed with
 * rd_kafka_mem_free(); their number goes to `cntp`.
 */
RD_EXPORT int32_t *rd_kafka_brokers_learned_ids(rd_kafka_t *rk, size_t *cntp);

/** The older form of rd_kafka_conf_set_log_cb(). */
RD_EXPORT void rd_kafka_set_logger(
    rd_kafka_t *rk,
    void (*func)(const rd_kafka_t *rk, int level, const char *fac, const char *buf));

/** Changes which log lines there are: up to this level of syslog. */
RD_EXPORT void rd_kafka_set_log_level(rd_kafka_t *rk, int level);

/** Prints a log line to stderr; the default log function. */
RD_EXPORT void rd_kafka_log_print(
    const rd_kafka_t *rk, int level, const char *fac, const char *buf);

/** Hands a log line to syslog. */
RD_EXPORT void rd_kafka_log_syslog(
    const rd_kafka_t *rk, int level, const char *fac, const char *buf);

/** Prints the client's state, for debugging. */
RD_EXPORT void rd_kafka_dump(FILE *fp, rd_kafka_t *rk);

/** How many threads of the library run. */
RD_EXPORT int rd_kafka_thread_cnt(void);

/** Waits up to `timeout_ms` until all clients are gone; 0 if they are, else -1. */
RD_EXPORT int rd_kafka_wait_destroyed(int timeout_ms);

/** Runs the tests inside the library, if it was built with them; returns how many failed. */
RD_EXPORT int rd_kafka_unittest(void);

/* ---- Queues ---- */

/** Makes a queue of the application's. Destroy it before the client. */
RD_EXPORT rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *rk);

/**
 * Gives a queue back. A queue of rd_kafka_queue_new() ends: its contents are dropped, and its function has returned in
 * all other threads.
 */
RD_EXPORT void rd_kafka_queue_destroy(rd_kafka_queue_t *rkqu);

/** The queue that rd_kafka_poll() serves. Destroy what is returned. */
RD_EXPORT rd_kafka_queue_t *rd_kafka_queue_get_main(rd_kafka_t *rk);

/**
 * The queue of token refreshes, NULL if rd_kafka_conf_enable_sasl_queue() did not ask for one.
 * Destroy what is returned.
 */
RD_EXPORT rd_kafka_queue_t *rd_kafka_queue_get_sasl(rd_kafka_t *rk);

/**
 * Has the background thread call the token refresh function, so that nobody needs to poll for
 * it.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_sasl_background_callbacks_enable(rd_kafka_t *rk);

/**
 * Sets the user and password of SASL/PLAIN and SCRAM, for connections made from now on. Both are
 * copied.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_sasl_set_credentials(
    rd_kafka_t *rk, const char *username, const char *password);

/**
 * The queue that rd_kafka_consumer_poll() serves; NULL for a client that has none. Destroy what
 * is returned.
 */
RD_EXPORT rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *rk);

/**
 * The queue of one partition; NULL if there is none. Forward it to NULL to serve it apart.
 * Destroy what is returned.
 */
RD_EXPORT rd_kafka_queue_t *rd_kafka_queue_get_partition(
    rd_kafka_t *rk, const char *topic, int32_t partition);

/**
 * The queue that the background thread serves; NULL if no function was set for it. Destroy what
 * is returned.
 */
RD_EXPORT rd_kafka_queue_t *rd_kafka_queue_get_background(rd_kafka_t *rk);

/** From now on, what comes to `src` goes to `dst`; NULL ends that. */
RD_EXPORT void rd_kafka_queue_forward(rd_kafka_queue_t *src, rd_kafka_queue_t *dst);

/** Sends log lines to this queue, with `log.queue`; NULL is the main queue. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_set_log_queue(rd_kafka_t *rk, rd_kafka_queue_t *rkqu);

/** How many events are in the queue. */
RD_EXPORT size_t rd_kafka_queue_length(rd_kafka_queue_t *rkqu);

/**
 * Writes `payload` to the file descriptor when the queue gets an event, so that poll() and its like
 * can wait for it, and not again before the queue is polled: poll it until it is empty. The
 * descriptor must not block. A `fd` of -1 ends it.
 */
RD_EXPORT void rd_kafka_queue_io_event_enable(
    rd_kafka_queue_t *rkqu, int fd, const void *payload, size_t size);

/**
 * Calls `event_cb` when the queue gets an event, in the thread that adds it, and not again before
 * the queue is polled: poll it until it is empty. A thread that waits at the queue changes nothing
 * about that. The function must not block or poll. NULL ends it.
 */
RD_EXPORT void rd_kafka_queue_cb_event_enable(
    rd_kafka_queue_t *rkqu, void (*event_cb)(rd_kafka_t *rk, void *qev_opaque), void *qev_opaque);

/** Makes whoever waits at the queue return now. */
RD_EXPORT void rd_kafka_queue_yield(rd_kafka_queue_t *rkqu);

/* ---- The simple consumer ---- */

/**
 * Starts fetching a partition from this offset, or from one of the RD_KAFKA_OFFSET_ values; 0,
 * or -1 with the reason in rd_kafka_last_error().
 */
RD_EXPORT int rd_kafka_consume_start(rd_kafka_topic_t *rkt, int32_t partition, int64_t offset);

/** As rd_kafka_consume_start(), and messages go to `rkqu`, where several partitions can meet. */
RD_EXPORT int rd_kafka_consume_start_queue(
    rd_kafka_topic_t *rkt, int32_t partition, int64_t offset, rd_kafka_queue_t *rkqu);

/**
 * Stops fetching a partition and drops what was fetched; 0, or -1 with the reason in
 * rd_kafka_last_error().
 */
RD_EXPORT int rd_kafka_consume_stop(rd_kafka_topic_t *rkt, int32_t partition);

/**
 * Moves a partition to another offset and waits up to `timeout_ms` until that is done; 0 is not
 * waiting. Use rd_kafka_seek_partitions() instead.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_seek(
    rd_kafka_topic_t *rkt, int32_t partition, int64_t offset, int timeout_ms);

/**
 * Moves partitions to the offsets in the list; each gets its outcome in `err`. Waits up to
 * `timeout_ms`, 0 is not waiting.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_seek_partitions(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t *partitions, int timeout_ms);

/**
 * The next message of a partition, waiting up to `timeout_ms`; NULL if none came, and
 * rd_kafka_last_error() says why.
 */
RD_EXPORT rd_kafka_message_t *rd_kafka_consume(
    rd_kafka_topic_t *rkt, int32_t partition, int timeout_ms);

/**
 * Up to `rkmessages_size` messages of a partition, waiting up to `timeout_ms` for all; returns
 * how many, or -1. Destroy each.
 */
RD_EXPORT ssize_t rd_kafka_consume_batch(
    rd_kafka_topic_t *rkt, int32_t partition, int timeout_ms, rd_kafka_message_t **rkmessages,
    size_t rkmessages_size);

/**
 * Calls `consume_cb` with the messages of a partition that come within `timeout_ms`; returns how
 * many, or -1. The messages stay the library's.
 */
RD_EXPORT int rd_kafka_consume_callback(
    rd_kafka_topic_t *rkt, int32_t partition, int timeout_ms,
    void (*consume_cb)(rd_kafka_message_t *rkmessage, void *commit_opaque), void *commit_opaque);

/** As rd_kafka_consume(), from a queue. */
RD_EXPORT rd_kafka_message_t *rd_kafka_consume_queue(rd_kafka_queue_t *rkqu, int timeout_ms);

/** As rd_kafka_consume_batch(), from a queue. */
RD_EXPORT ssize_t rd_kafka_consume_batch_queue(
    rd_kafka_queue_t *rkqu, int timeout_ms, rd_kafka_message_t **rkmessages,
    size_t rkmessages_size);

/** As rd_kafka_consume_callback(), from a queue. */
RD_EXPORT int rd_kafka_consume_callback_queue(
    rd_kafka_queue_t *rkqu, int timeout_ms,
    void (*consume_cb)(rd_kafka_message_t *rkmessage, void *commit_opaque), void *commit_opaque);

/**
 * Stores `offset` + 1 to be committed, of a partition with `enable.auto.offset.store=false`. Use
 * rd_kafka_offsets_store().
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_offset_store(
    rd_kafka_topic_t *rkt, int32_t partition, int64_t offset);

/**
 * Stores the offsets of the list to be committed by the next commit; each is that of the next
 * message to read, and gets its outcome in `err`. Only for assigned partitions, and with
 * `enable.auto.offset.store=false`.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_offsets_store(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t *offsets);

/** Stores the offset after this message to be committed. */
RD_EXPORT rd_kafka_error_t *rd_kafka_offset_store_message(rd_kafka_message_t *rkmessage);

/* ---- The consumer ---- */

/**
 * Replaces the subscription: topics by name, or by regular expression if the name begins with ^;
 * partitions in the list are ignored. Partitions come by rebalancing.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_subscribe(
    rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *topics);

/** Ends the subscription and leaves the group. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_unsubscribe(rd_kafka_t *rk);

/** Gives a new list of the topics that are subscribed to. Destroy it. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_subscription(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t **topics);

/**
 * The next message, or an error as a message with `err`, waiting up to `timeout_ms`; NULL if
 * nothing came. Calls the application's functions too. Call it at least every
 * `max.poll.interval.ms`. Destroy the message.
 */
RD_EXPORT rd_kafka_message_t *rd_kafka_consumer_poll(rd_kafka_t *rk, int timeout_ms);

/**
 * Gives the partitions back by way of the rebalance function, commits as configured, leaves the
 * group, and waits for it. rd_kafka_destroy() still is to follow.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_consumer_close(rd_kafka_t *rk);

/**
 * Begins rd_kafka_consumer_close() and sends all that it entails to `rkqu`; poll that until
 * rd_kafka_consumer_closed() says 1.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_consumer_close_queue(rd_kafka_t *rk, rd_kafka_queue_t *rkqu);

/** 1 if the consumer is closed, else 0. */
RD_EXPORT int rd_kafka_consumer_closed(rd_kafka_t *rk);

/**
 * Adds partitions to the assignment, from the offsets in the list; for the cooperative protocol.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_incremental_assign(
    rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *partitions);

/** Takes partitions out of the assignment; for the cooperative protocol. */
RD_EXPORT rd_kafka_error_t *rd_kafka_incremental_unassign(
    rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *partitions);

/**
 * "NONE", "EAGER" or "COOPERATIVE": which of the functions the rebalance function must call.
 * NULL if the client is no consumer.
 */
RD_EXPORT const char *rd_kafka_rebalance_protocol(rd_kafka_t *rk);

/**
 * Replaces the assignment: fetching goes on from the offsets in the list, or the committed ones
 * if they are RD_KAFKA_OFFSET_INVALID. NULL is none.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_assign(
    rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *partitions);

/** Gives a new list of the assigned partitions. Destroy it. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_assignment(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t **partitions);

/**
 * 1 if the partitions were lost before they could be given back, so that commits will fail; else
 * 0. For the rebalance function.
 */
RD_EXPORT int rd_kafka_assignment_lost(rd_kafka_t *rk);

/**
 * Commits the offsets in the list, or with NULL those that are stored. If `async` is not 0 it
 * does not wait, and the outcome goes to the offset commit function.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_commit(
    rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets, int async);

/** Commits the offset after this message; else as rd_kafka_commit(). */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_commit_message(
    rd_kafka_t *rk, const rd_kafka_message_t *rkmessage, int async);

/**
 * Commits without waiting; the outcome goes to `rkqu` as an event, or to `cb`, which a poll of
 * that queue calls. With `rkqu` NULL it waits.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_commit_queue(
    rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets, rd_kafka_queue_t *rkqu,
    void (*cb)(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t
        *offsets, void *commit_opaque),
    void *commit_opaque);

/**
 * Fills in the committed offsets of the partitions in the list; RD_KAFKA_OFFSET_INVALID where
 * there is none, errors in `err`.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_committed(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t *partitions, int timeout_ms);

/**
 * Fills in the offset after the last message that the application got, for the partitions in the
 * list; RD_KAFKA_OFFSET_INVALID where it got none.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_position(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t *partitions);

/**
 * Joins the main queue to the consumer's, so that rd_kafka_consumer_poll() serves all.
 * rd_kafka_poll() must not be called afterwards.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_poll_set_consumer(rd_kafka_t *rk);

/**
 * What a transactional producer must know of this consumer for
 * rd_kafka_send_offsets_to_transaction(); NULL without `group.id`. Destroy it.
 */
RD_EXPORT rd_kafka_consumer_group_metadata_t *rd_kafka_consumer_group_metadata(rd_kafka_t *rk);

/** Group metadata of a group alone. Destroy it. */
RD_EXPORT rd_kafka_consumer_group_metadata_t *rd_kafka_consumer_group_metadata_new(
    const char *group_id);

/** Group metadata of its parts. Destroy it. */
RD_EXPORT rd_kafka_consumer_group_metadata_t *rd_kafka_consumer_group_metadata_new_with_genid(
    const char *group_id, int32_t generation_id, const char *member_id,
    const char *group_instance_id);

/** The group's id; it lives as long as the metadata. */
RD_EXPORT const char *rd_kafka_consumer_group_metadata_group_id(
    const rd_kafka_consumer_group_metadata_t *group_metadata);

/** The member's static id; NULL if it has none. */
RD_EXPORT const char *rd_kafka_consumer_group_metadata_group_instance_id(
    const rd_kafka_consumer_group_metadata_t *group_metadata);

/** The member's id; it lives as long as the metadata. */
RD_EXPORT const char *rd_kafka_consumer_group_metadata_member_id(
    const rd_kafka_consumer_group_metadata_t *group_metadata);

/** The generation or member epoch. */
RD_EXPORT int32_t rd_kafka_consumer_group_metadata_generation_id(
    const rd_kafka_consumer_group_metadata_t *group_metadata);

/** Frees group metadata; NULL is fine. */
RD_EXPORT void rd_kafka_consumer_group_metadata_destroy(rd_kafka_consumer_group_metadata_t *);

/**
 * Writes group metadata to new memory, to be freed with rd_kafka_mem_free(), in a form that
 * rd_kafka_consumer_group_metadata_read() reads.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_consumer_group_metadata_write(
    const rd_kafka_consumer_group_metadata_t *cgmd, void **bufferp, size_t *sizep);

/** Makes group metadata of what rd_kafka_consumer_group_metadata_write() wrote. */
RD_EXPORT rd_kafka_error_t *rd_kafka_consumer_group_metadata_read(
    rd_kafka_consumer_group_metadata_t **cgmdp, const void *buffer, size_t size);

/* ---- Producing ---- */

/**
 * Queues a message for sending and returns at once: 0, or -1 with the reason in
 * rd_kafka_last_error() and errno (ENOBUFS: the queue is full, poll and try again; EMSGSIZE;
 * ESRCH and ENOENT for partition and topic). `msgflags` says what becomes of the payload:
 * RD_KAFKA_MSG_F_COPY copies it, RD_KAFKA_MSG_F_FREE gives it to the library, which frees it;
 * with neither it stays the application's, which must leave it alone until the delivery report.
 */
RD_EXPORT int rd_kafka_produce(
    rd_kafka_topic_t *rkt, int32_t partition, int msgflags, void *payload, size_t len,
    const void *key, size_t keylen, void *msg_opaque);

/**
 * As rd_kafka_produce(), of fields that are listed by RD_KAFKA_V_ macros and ended by
 * RD_KAFKA_V_END; returns the error code.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_producev(rd_kafka_t *rk, ...);

/** As rd_kafka_producev(), with the fields in an array. */
RD_EXPORT rd_kafka_error_t *rd_kafka_produceva(
    rd_kafka_t *rk, const rd_kafka_vu_t *vus, size_t cnt);

/**
 * Queues several messages of one topic, with key, payload and `_private` (the opaque) of each;
 * sets `err` of each and returns how many were queued. The partition is that of the call, or
 * each message's with RD_KAFKA_MSG_F_PARTITION.
 */
RD_EXPORT int rd_kafka_produce_batch(
    rd_kafka_topic_t *rkt, int32_t partition, int msgflags, rd_kafka_message_t *rkmessages,
    int message_cnt);

/* ---- Metadata ---- */

/** A broker. */
typedef struct rd_kafka_metadata_broker {
    int32_t id;
    char *host;
    int port;
} rd_kafka_metadata_broker_t;

/** A partition; brokers by their ids. */
typedef struct rd_kafka_metadata_partition {
    int32_t id;
    rd_kafka_resp_err_t err;
    int32_t leader; /**< -1 if there is none. */
    int replica_cnt;
    int32_t *replicas;
    int isr_cnt;
    int32_t *isrs; /**< The replicas that are in sync. */
} rd_kafka_metadata_partition_t;

/** A topic. */
typedef struct rd_kafka_metadata_topic {
    char *topic;
    int partition_cnt;
    struct rd_kafka_metadata_partition *partitions;
    rd_kafka_resp_err_t err;
} rd_kafka_metadata_topic_t;

/** What a broker said of the cluster. */
typedef struct rd_kafka_metadata {
    int broker_cnt;
    struct rd_kafka_metadata_broker *brokers;
    int topic_cnt;
    struct rd_kafka_metadata_topic *topics;
    int32_t orig_broker_id; /**< Which broker said so. */
    char *orig_broker_name;
} rd_kafka_metadata_t;

typedef struct rd_kafka_Node_s rd_kafka_Node_t;

/**
 * Asks the cluster for its brokers and topics, waiting up to `timeout_ms`: all topics, or those
 * the client knows if `all_topics` is 0, or `only_rkt`. Destroy what it gives with
 * rd_kafka_metadata_destroy().
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_metadata(
    rd_kafka_t *rk, int all_topics, rd_kafka_topic_t *only_rkt,
    const struct rd_kafka_metadata **metadatap, int timeout_ms);

/** Frees metadata. */
RD_EXPORT void rd_kafka_metadata_destroy(const struct rd_kafka_metadata *metadata);

/** The broker's id. */
RD_EXPORT int rd_kafka_Node_id(const rd_kafka_Node_t *node);

/** The broker's host; it lives as long as what the node came from. */
RD_EXPORT const char *rd_kafka_Node_host(const rd_kafka_Node_t *node);

/** The broker's port. */
RD_EXPORT uint16_t rd_kafka_Node_port(const rd_kafka_Node_t *node);

/** The broker's rack; NULL if it has none. */
RD_EXPORT const char *rd_kafka_Node_rack(const rd_kafka_Node_t *node);

/* ---- Groups, by the older functions ---- */

/** A member; what is binary is as the group's protocol has it. */
struct rd_kafka_group_member_info {
    char *member_id;
    char *client_id;
    char *client_host;
    void *member_metadata;
    int member_metadata_size;
    void *member_assignment;
    int member_assignment_size;
};

/** What a group is doing. */
typedef enum rd_kafka_consumer_group_state_t {
    RD_KAFKA_CONSUMER_GROUP_STATE_UNKNOWN = 0,
    RD_KAFKA_CONSUMER_GROUP_STATE_PREPARING_REBALANCE = 1,
    RD_KAFKA_CONSUMER_GROUP_STATE_COMPLETING_REBALANCE = 2,
    RD_KAFKA_CONSUMER_GROUP_STATE_STABLE = 3,
    RD_KAFKA_CONSUMER_GROUP_STATE_DEAD = 4,
    RD_KAFKA_CONSUMER_GROUP_STATE_EMPTY = 5,
    RD_KAFKA_CONSUMER_GROUP_STATE__CNT = 6
} rd_kafka_consumer_group_state_t;

/** Which protocol a group speaks. */
typedef enum rd_kafka_consumer_group_type_t {
    RD_KAFKA_CONSUMER_GROUP_TYPE_UNKNOWN = 0,
    RD_KAFKA_CONSUMER_GROUP_TYPE_CONSUMER = 1,
    RD_KAFKA_CONSUMER_GROUP_TYPE_CLASSIC = 2,
    RD_KAFKA_CONSUMER_GROUP_TYPE__CNT = 3
} rd_kafka_consumer_group_type_t;

/** A group. */
struct rd_kafka_group_info {
    struct rd_kafka_metadata_broker broker; /**< Its coordinator. */
    char *group;
    rd_kafka_resp_err_t err;
    char *state;
    char *protocol_type;
    char *protocol;
    struct rd_kafka_group_member_info *members;
    int member_cnt;
};

/** Groups. */
struct rd_kafka_group_list {
    struct rd_kafka_group_info *groups;
    int group_cnt;
};

/**
 * Asks all brokers for their groups, or for `group` alone, waiting up to `timeout_ms`.
 * RD_KAFKA_RESP_ERR__PARTIAL comes with what there is. Free the list with
 * rd_kafka_group_list_destroy(). The Admin functions tell more.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_list_groups(
    rd_kafka_t *rk, const char *group, const struct rd_kafka_group_list **grplistp, int timeout_ms);

/** Frees a list of groups. */
RD_EXPORT void rd_kafka_group_list_destroy(const struct rd_kafka_group_list *grplist);

/** The state's name, such as "Stable". */
RD_EXPORT const char *rd_kafka_consumer_group_state_name(rd_kafka_consumer_group_state_t state);

/** The state of this name, whatever its case. */
RD_EXPORT rd_kafka_consumer_group_state_t rd_kafka_consumer_group_state_code(const char *name);

/** The type's name: "Classic", "Consumer" or "Unknown". */
RD_EXPORT const char *rd_kafka_consumer_group_type_name(rd_kafka_consumer_group_type_t type);

/** The type of this name, whatever its case. */
RD_EXPORT rd_kafka_consumer_group_type_t rd_kafka_consumer_group_type_code(const char *name);

/* ---- Events ---- */

/** What an event is about. Those below 100 and from 0x100 on are bits for rd_kafka_conf_set_events(). */
typedef int rd_kafka_event_type_t;
#define RD_KAFKA_EVENT_NONE 0x0
#define RD_KAFKA_EVENT_DR 0x1
#define RD_KAFKA_EVENT_FETCH 0x2
#define RD_KAFKA_EVENT_LOG 0x4
#define RD_KAFKA_EVENT_ERROR 0x8
#define RD_KAFKA_EVENT_REBALANCE 0x10
#define RD_KAFKA_EVENT_OFFSET_COMMIT 0x20
#define RD_KAFKA_EVENT_STATS 0x40
#define RD_KAFKA_EVENT_CREATETOPICS_RESULT 100
#define RD_KAFKA_EVENT_DELETETOPICS_RESULT 101
#define RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT 102
#define RD_KAFKA_EVENT_ALTERCONFIGS_RESULT 103
#define RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT 104
#define RD_KAFKA_EVENT_DELETERECORDS_RESULT 105
#define RD_KAFKA_EVENT_DELETEGROUPS_RESULT 106
#define RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT 107
#define RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH 0x100
#define RD_KAFKA_EVENT_BACKGROUND 0x200
#define RD_KAFKA_EVENT_CREATEACLS_RESULT 0x400
#define RD_KAFKA_EVENT_DESCRIBEACLS_RESULT 0x800
#define RD_KAFKA_EVENT_DELETEACLS_RESULT 0x1000
#define RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT 0x2000
#define RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT 0x4000
#define RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT 0x8000
#define RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT 0x10000
#define RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT 0x20000
#define RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT 0x40000
#define RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT 0x80000
#define RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT 0x100000
#define RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT 0x200000
#define RD_KAFKA_EVENT_LISTOFFSETS_RESULT 0x400000
#define RD_KAFKA_EVENT_ELECTLEADERS_RESULT 0x800000

/** The result events, by the names of their operations. */
typedef rd_kafka_event_t rd_kafka_CreateTopics_result_t;
typedef rd_kafka_event_t rd_kafka_DeleteTopics_result_t;
typedef rd_kafka_event_t rd_kafka_CreateAcls_result_t;
typedef rd_kafka_event_t rd_kafka_DescribeAcls_result_t;
typedef rd_kafka_event_t rd_kafka_DeleteAcls_result_t;
typedef rd_kafka_event_t rd_kafka_CreatePartitions_result_t;
typedef rd_kafka_event_t rd_kafka_AlterConfigs_result_t;
typedef rd_kafka_event_t rd_kafka_IncrementalAlterConfigs_result_t;
typedef rd_kafka_event_t rd_kafka_DescribeConfigs_result_t;
typedef rd_kafka_event_t rd_kafka_DeleteRecords_result_t;
typedef rd_kafka_event_t rd_kafka_ListConsumerGroups_result_t;
typedef rd_kafka_event_t rd_kafka_DescribeConsumerGroups_result_t;
typedef rd_kafka_event_t rd_kafka_DeleteGroups_result_t;
typedef rd_kafka_event_t rd_kafka_DeleteConsumerGroupOffsets_result_t;
typedef rd_kafka_event_t rd_kafka_AlterConsumerGroupOffsets_result_t;
typedef rd_kafka_event_t rd_kafka_ListConsumerGroupOffsets_result_t;
typedef rd_kafka_event_t rd_kafka_DescribeTopics_result_t;
typedef rd_kafka_event_t rd_kafka_DescribeCluster_result_t;
typedef rd_kafka_event_t rd_kafka_DescribeUserScramCredentials_result_t;
typedef rd_kafka_event_t rd_kafka_AlterUserScramCredentials_result_t;
typedef rd_kafka_event_t rd_kafka_ListOffsets_result_t;
typedef rd_kafka_event_t rd_kafka_ElectLeaders_result_t;

/** What the event is about; RD_KAFKA_EVENT_NONE for NULL. */
RD_EXPORT rd_kafka_event_type_t rd_kafka_event_type(const rd_kafka_event_t *rkev);

/** The name of the event's type. */
RD_EXPORT const char *rd_kafka_event_name(const rd_kafka_event_t *rkev);

/**
 * Frees an event with all that was read from it, messages excepted that were taken; NULL is
 * fine.
 */
RD_EXPORT void rd_kafka_event_destroy(rd_kafka_event_t *rkev);

/**
 * The next message of a delivery report or fetch event, which stays the event's; NULL after the
 * last.
 */
RD_EXPORT const rd_kafka_message_t *rd_kafka_event_message_next(rd_kafka_event_t *rkev);

/**
 * Takes up to `size` messages out of the event, as rd_kafka_event_message_next() would give
 * them; returns how many.
 */
RD_EXPORT size_t rd_kafka_event_message_array(
    rd_kafka_event_t *rkev, const rd_kafka_message_t **rkmessages, size_t size);

/** How many messages the event has left. */
RD_EXPORT size_t rd_kafka_event_message_count(rd_kafka_event_t *rkev);

/** The value of `sasl.oauthbearer.config`, for RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH. */
RD_EXPORT const char *rd_kafka_event_config_string(rd_kafka_event_t *rkev);

/** The event's error code. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_event_error(rd_kafka_event_t *rkev);

/** The event's error in words; NULL if it has none. */
RD_EXPORT const char *rd_kafka_event_error_string(rd_kafka_event_t *rkev);

/** 1 if the event is a fatal error, else 0. */
RD_EXPORT int rd_kafka_event_error_is_fatal(rd_kafka_event_t *rkev);

/**
 * The opaque of what the event answers: of a commit to a queue, or of the options of an Admin
 * call.
 */
RD_EXPORT void *rd_kafka_event_opaque(rd_kafka_event_t *rkev);

/** Gives facility, text and level of a log event; 0, or -1 if it is none. */
RD_EXPORT int rd_kafka_event_log(
    rd_kafka_event_t *rkev, const char **fac, const char **str, int *level);

/**
 * Writes the debug contexts of a log event to `dst`, separated by commas; 0, or -1 if it has
 * none.
 */
RD_EXPORT int rd_kafka_event_debug_contexts(rd_kafka_event_t *rkev, char *dst, size_t dstsize);

/** The statistics of a statistics event, as JSON; they live as long as the event. */
RD_EXPORT const char *rd_kafka_event_stats(rd_kafka_event_t *rkev);

/** The partitions of a rebalance or commit event, which stay the event's. */
RD_EXPORT rd_kafka_topic_partition_list_t *rd_kafka_event_topic_partition_list(
    rd_kafka_event_t *rkev);

/**
 * The partition that an error event is about, to be freed with
 * rd_kafka_topic_partition_destroy(); NULL if it is about none.
 */
RD_EXPORT rd_kafka_topic_partition_t *rd_kafka_event_topic_partition(rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_CreateTopics(); NULL if it is none. */
RD_EXPORT const rd_kafka_CreateTopics_result_t *rd_kafka_event_CreateTopics_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DeleteTopics(); NULL if it is none. */
RD_EXPORT const rd_kafka_DeleteTopics_result_t *rd_kafka_event_DeleteTopics_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_CreatePartitions(); NULL if it is none. */
RD_EXPORT const rd_kafka_CreatePartitions_result_t *rd_kafka_event_CreatePartitions_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_AlterConfigs(); NULL if it is none. */
RD_EXPORT const rd_kafka_AlterConfigs_result_t *rd_kafka_event_AlterConfigs_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_IncrementalAlterConfigs(); NULL if it is none. */
RD_EXPORT const rd_kafka_IncrementalAlterConfigs_result_t *rd_kafka_event_IncrementalAlterConfigs_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DescribeConfigs(); NULL if it is none. */
RD_EXPORT const rd_kafka_DescribeConfigs_result_t *rd_kafka_event_DescribeConfigs_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DeleteRecords(); NULL if it is none. */
RD_EXPORT const rd_kafka_DeleteRecords_result_t *rd_kafka_event_DeleteRecords_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_ListConsumerGroups(); NULL if it is none. */
RD_EXPORT const rd_kafka_ListConsumerGroups_result_t *rd_kafka_event_ListConsumerGroups_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DescribeConsumerGroups(); NULL if it is none. */
RD_EXPORT const rd_kafka_DescribeConsumerGroups_result_t *rd_kafka_event_DescribeConsumerGroups_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DescribeTopics(); NULL if it is none. */
RD_EXPORT const rd_kafka_DescribeTopics_result_t *rd_kafka_event_DescribeTopics_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DescribeCluster(); NULL if it is none. */
RD_EXPORT const rd_kafka_DescribeCluster_result_t *rd_kafka_event_DescribeCluster_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DeleteGroups(); NULL if it is none. */
RD_EXPORT const rd_kafka_DeleteGroups_result_t *rd_kafka_event_DeleteGroups_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DeleteConsumerGroupOffsets(); NULL if it is none. */
RD_EXPORT const rd_kafka_DeleteConsumerGroupOffsets_result_t *rd_kafka_event_DeleteConsumerGroupOffsets_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_CreateAcls(); NULL if it is none. */
RD_EXPORT const rd_kafka_CreateAcls_result_t *rd_kafka_event_CreateAcls_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DescribeAcls(); NULL if it is none. */
RD_EXPORT const rd_kafka_DescribeAcls_result_t *rd_kafka_event_DescribeAcls_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DeleteAcls(); NULL if it is none. */
RD_EXPORT const rd_kafka_DeleteAcls_result_t *rd_kafka_event_DeleteAcls_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_ListConsumerGroupOffsets(); NULL if it is none. */
RD_EXPORT const rd_kafka_ListConsumerGroupOffsets_result_t *rd_kafka_event_ListConsumerGroupOffsets_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_AlterConsumerGroupOffsets(); NULL if it is none. */
RD_EXPORT const rd_kafka_AlterConsumerGroupOffsets_result_t *rd_kafka_event_AlterConsumerGroupOffsets_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_ListOffsets(); NULL if it is none. */
RD_EXPORT const rd_kafka_ListOffsets_result_t *rd_kafka_event_ListOffsets_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_DescribeUserScramCredentials(); NULL if it is none. */
RD_EXPORT const rd_kafka_DescribeUserScramCredentials_result_t *rd_kafka_event_DescribeUserScramCredentials_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_AlterUserScramCredentials(); NULL if it is none. */
RD_EXPORT const rd_kafka_AlterUserScramCredentials_result_t *rd_kafka_event_AlterUserScramCredentials_result(
    rd_kafka_event_t *rkev);

/** The event as a result of rd_kafka_ElectLeaders(); NULL if it is none. */
RD_EXPORT const rd_kafka_ElectLeaders_result_t *rd_kafka_event_ElectLeaders_result(
    rd_kafka_event_t *rkev);

/** The next event of the queue, waiting up to `timeout_ms`; NULL if none came. Destroy it. */
RD_EXPORT rd_kafka_event_t *rd_kafka_queue_poll(rd_kafka_queue_t *rkqu, int timeout_ms);

/**
 * Serves events of the queue by the application's functions, waiting up to `timeout_ms` for the
 * first; returns how many.
 */
RD_EXPORT int rd_kafka_queue_poll_callback(rd_kafka_queue_t *rkqu, int timeout_ms);

/* ---- Interceptors ---- */

/** What a thread of the library is for. */
typedef enum rd_kafka_thread_type_t {
    RD_KAFKA_THREAD_MAIN = 0,
    RD_KAFKA_THREAD_BACKGROUND = 1,
    RD_KAFKA_THREAD_BROKER = 2
} rd_kafka_thread_type_t;

/**
 * `conf_init()` of a plugin, which is called when `plugin.library.paths` names it; it adds its
 * interceptors to `conf`.
 */
typedef rd_kafka_resp_err_t(rd_kafka_plugin_f_conf_init_t)(
    rd_kafka_conf_t *conf, void **plug_opaquep, char *errstr, size_t errstr_size);

/** RD_KAFKA_CONF_UNKNOWN if the property is none of its own, so that the library sets it. */
typedef rd_kafka_conf_res_t(rd_kafka_interceptor_f_on_conf_set_t)(
    rd_kafka_conf_t *conf, const char *name, const char *val, char *errstr, size_t errstr_size,
    void *ic_opaque);

/**
 * See rd_kafka_conf_interceptor_add_on_conf_dup(). The answer is logged if it is an error, and
 * changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_conf_dup_t)(
    rd_kafka_conf_t *new_conf, const rd_kafka_conf_t *old_conf, size_t filter_cnt, const char
    **filter, void *ic_opaque);

/**
 * See rd_kafka_conf_interceptor_add_on_conf_destroy(). The answer is logged if it is an error,
 * and changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_conf_destroy_t)(void *ic_opaque);

/**
 * See rd_kafka_conf_interceptor_add_on_new(). The answer is logged if it is an error, and
 * changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_new_t)(
    rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *ic_opaque, char *errstr, size_t
    errstr_size);

/**
 * See rd_kafka_interceptor_add_on_destroy(). The answer is logged if it is an error, and changes
 * nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_destroy_t)(rd_kafka_t *rk, void *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_send(). The answer is logged if it is an error, and changes
 * nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_send_t)(
    rd_kafka_t *rk, rd_kafka_message_t *rkmessage, void *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_acknowledgement(). The answer is logged if it is an error, and
 * changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_acknowledgement_t)(
    rd_kafka_t *rk, rd_kafka_message_t *rkmessage, void *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_consume(). The answer is logged if it is an error, and changes
 * nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_consume_t)(
    rd_kafka_t *rk, rd_kafka_message_t *rkmessage, void *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_commit(). The answer is logged if it is an error, and changes
 * nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_commit_t)(
    rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets, rd_kafka_resp_err_t err,
    void *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_request_sent(). The answer is logged if it is an error, and
 * changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_request_sent_t)(
    rd_kafka_t *rk, int sockfd, const char *brokername, int32_t brokerid, int16_t ApiKey,
    int16_t ApiVersion, int32_t CorrId, size_t size, void *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_response_received(). The answer is logged if it is an error,
 * and changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_response_received_t)(
    rd_kafka_t *rk, int sockfd, const char *brokername, int32_t brokerid, int16_t ApiKey,
    int16_t ApiVersion, int32_t CorrId, size_t size, int64_t rtt, rd_kafka_resp_err_t err, void
    *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_thread_start(). The answer is logged if it is an error, and
 * changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_thread_start_t)(
    rd_kafka_t *rk, rd_kafka_thread_type_t thread_type, const char *thread_name, void *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_thread_exit(). The answer is logged if it is an error, and
 * changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_thread_exit_t)(
    rd_kafka_t *rk, rd_kafka_thread_type_t thread_type, const char *thread_name, void *ic_opaque);

/**
 * See rd_kafka_interceptor_add_on_broker_state_change(). The answer is logged if it is an error,
 * and changes nothing.
 */
typedef rd_kafka_resp_err_t(rd_kafka_interceptor_f_on_broker_state_change_t)(
    rd_kafka_t *rk, int32_t broker_id, const char *secproto, const char *name, int port, const
    char *state, void *ic_opaque);

/**
 * Adds a function that sees each rd_kafka_conf_set() first. RD_KAFKA_RESP_ERR__CONFLICT if
 * `ic_name` has one already.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_conf_interceptor_add_on_conf_set(
    rd_kafka_conf_t *conf, const char *ic_name, rd_kafka_interceptor_f_on_conf_set_t *on_conf_set,
    void *ic_opaque);

/** Adds a function that is called with each copy of the configuration, and may add itself to it. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_conf_interceptor_add_on_conf_dup(
    rd_kafka_conf_t *conf, const char *ic_name, rd_kafka_interceptor_f_on_conf_dup_t *on_conf_dup,
    void *ic_opaque);

/** Adds a function that is called when the configuration goes. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_conf_interceptor_add_on_conf_destroy(
    rd_kafka_conf_t *conf, const char *ic_name,
    rd_kafka_interceptor_f_on_conf_destroy_t *on_conf_destroy, void *ic_opaque);

/**
 * Adds a function that is called by rd_kafka_new() with the new client; there the interceptors
 * of clients are added.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_conf_interceptor_add_on_new(
    rd_kafka_conf_t *conf, const char *ic_name, rd_kafka_interceptor_f_on_new_t *on_new,
    void *ic_opaque);

/** Adds a function that is called when the client goes. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_destroy(
    rd_kafka_t *rk, const char *ic_name, rd_kafka_interceptor_f_on_destroy_t *on_destroy,
    void *ic_opaque);

/** Adds a function that sees each message that is produced, before it is partitioned. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_send(
    rd_kafka_t *rk, const char *ic_name, rd_kafka_interceptor_f_on_send_t *on_send,
    void *ic_opaque);

/** Adds a function that sees each delivery report, in a thread of the library. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_acknowledgement(
    rd_kafka_t *rk, const char *ic_name,
    rd_kafka_interceptor_f_on_acknowledgement_t *on_acknowledgement, void *ic_opaque);

/** Adds a function that sees each message before the consuming application does. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_consume(
    rd_kafka_t *rk, const char *ic_name, rd_kafka_interceptor_f_on_consume_t *on_consume,
    void *ic_opaque);

/** Adds a function that sees the outcome of each commit. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_commit(
    rd_kafka_t *rk, const char *ic_name, rd_kafka_interceptor_f_on_commit_t *on_commit,
    void *ic_opaque);

/** Adds a function that sees each request when it was written to its socket. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_request_sent(
    rd_kafka_t *rk, const char *ic_name, rd_kafka_interceptor_f_on_request_sent_t *on_request_sent,
    void *ic_opaque);

/** Adds a function that sees each response when it was read. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_response_received(
    rd_kafka_t *rk, const char *ic_name,
    rd_kafka_interceptor_f_on_response_received_t *on_response_received, void *ic_opaque);

/** Adds a function that is called in each new thread of the library. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_thread_start(
    rd_kafka_t *rk, const char *ic_name, rd_kafka_interceptor_f_on_thread_start_t *on_thread_start,
    void *ic_opaque);

/** Adds a function that is called in each thread of the library before it ends. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_thread_exit(
    rd_kafka_t *rk, const char *ic_name, rd_kafka_interceptor_f_on_thread_exit_t *on_thread_exit,
    void *ic_opaque);

/** Adds a function that sees what becomes of connections with brokers. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_interceptor_add_on_broker_state_change(
    rd_kafka_t *rk, const char *ic_name,
    rd_kafka_interceptor_f_on_broker_state_change_t *on_broker_state_change, void *ic_opaque);

/* ---- Results that several operations share ---- */

/** The outcome for the topic. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_topic_result_error(const rd_kafka_topic_result_t *topicres);

/** What went wrong with the topic, in words; NULL if nothing did. */
RD_EXPORT const char *rd_kafka_topic_result_error_string(const rd_kafka_topic_result_t *topicres);

/** The topic. */
RD_EXPORT const char *rd_kafka_topic_result_name(const rd_kafka_topic_result_t *topicres);

/** The outcome for the group; NULL if it went well. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_group_result_error(
    const rd_kafka_group_result_t *groupres);

/** The group. */
RD_EXPORT const char *rd_kafka_group_result_name(const rd_kafka_group_result_t *groupres);

/** The partitions of the outcome, with an error for each; NULL if the operation has none. */
RD_EXPORT const rd_kafka_topic_partition_list_t *rd_kafka_group_result_partitions(
    const rd_kafka_group_result_t *groupres);

/** The partition of the outcome. */
RD_EXPORT const rd_kafka_topic_partition_t *rd_kafka_topic_partition_result_partition(
    const rd_kafka_topic_partition_result_t *partition_result);

/** The outcome for the partition; NULL if it went well. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_topic_partition_result_error(
    const rd_kafka_topic_partition_result_t *partition_result);

/* ---- Administration ---- */

/*
 * Each operation takes its things in an array, options or NULL, and a queue, and returns at once. Its result arrives
 * at the queue as an event of its type: rd_kafka_event_error() tells whether it failed as a whole,
 * rd_kafka_event_CreateTopics_result() and its like give the result of each thing, which lives as long as the event.
 * The functions named after a thing and a noun read that noun.
 */

/** What options are for. */
typedef enum rd_kafka_admin_op_t {
    RD_KAFKA_ADMIN_OP_ANY = 0,
    RD_KAFKA_ADMIN_OP_CREATETOPICS = 1,
    RD_KAFKA_ADMIN_OP_DELETETOPICS = 2,
    RD_KAFKA_ADMIN_OP_CREATEPARTITIONS = 3,
    RD_KAFKA_ADMIN_OP_ALTERCONFIGS = 4,
    RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS = 5,
    RD_KAFKA_ADMIN_OP_DELETERECORDS = 6,
    RD_KAFKA_ADMIN_OP_DELETEGROUPS = 7,
    RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS = 8,
    RD_KAFKA_ADMIN_OP_CREATEACLS = 9,
    RD_KAFKA_ADMIN_OP_DESCRIBEACLS = 10,
    RD_KAFKA_ADMIN_OP_DELETEACLS = 11,
    RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS = 12,
    RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS = 13,
    RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS = 14,
    RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS = 15,
    RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS = 16,
    RD_KAFKA_ADMIN_OP_DESCRIBEUSERSCRAMCREDENTIALS = 17,
    RD_KAFKA_ADMIN_OP_ALTERUSERSCRAMCREDENTIALS = 18,
    RD_KAFKA_ADMIN_OP_DESCRIBETOPICS = 19,
    RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER = 20,
    RD_KAFKA_ADMIN_OP_LISTOFFSETS = 21,
    RD_KAFKA_ADMIN_OP_ELECTLEADERS = 22,
    RD_KAFKA_ADMIN_OP__CNT = 23
} rd_kafka_admin_op_t;

typedef struct rd_kafka_AdminOptions_s rd_kafka_AdminOptions_t;
typedef struct rd_kafka_NewTopic_s rd_kafka_NewTopic_t;
typedef struct rd_kafka_DeleteTopic_s rd_kafka_DeleteTopic_t;
typedef struct rd_kafka_NewPartitions_s rd_kafka_NewPartitions_t;
typedef struct rd_kafka_ConfigEntry_s rd_kafka_ConfigEntry_t;
typedef struct rd_kafka_ConfigResource_s rd_kafka_ConfigResource_t;
typedef struct rd_kafka_DeleteRecords_s rd_kafka_DeleteRecords_t;
typedef struct rd_kafka_TopicCollection_s rd_kafka_TopicCollection_t;
typedef struct rd_kafka_TopicPartitionInfo_s rd_kafka_TopicPartitionInfo_t;
typedef struct rd_kafka_TopicDescription_s rd_kafka_TopicDescription_t;
typedef struct rd_kafka_ConsumerGroupListing_s rd_kafka_ConsumerGroupListing_t;
typedef struct rd_kafka_ListConsumerGroupsResult_s rd_kafka_ListConsumerGroupsResult_t;
typedef struct rd_kafka_ConsumerGroupDescription_s rd_kafka_ConsumerGroupDescription_t;
typedef struct rd_kafka_MemberDescription_s rd_kafka_MemberDescription_t;
typedef struct rd_kafka_MemberAssignment_s rd_kafka_MemberAssignment_t;
typedef struct rd_kafka_DeleteGroup_s rd_kafka_DeleteGroup_t;
typedef struct rd_kafka_ListConsumerGroupOffsets_s rd_kafka_ListConsumerGroupOffsets_t;
typedef struct rd_kafka_AlterConsumerGroupOffsets_s rd_kafka_AlterConsumerGroupOffsets_t;
typedef struct rd_kafka_DeleteConsumerGroupOffsets_s rd_kafka_DeleteConsumerGroupOffsets_t;
typedef struct rd_kafka_ListOffsetsResultInfo_s rd_kafka_ListOffsetsResultInfo_t;
typedef struct rd_kafka_ScramCredentialInfo_s rd_kafka_ScramCredentialInfo_t;
typedef struct rd_kafka_UserScramCredentialsDescription_s rd_kafka_UserScramCredentialsDescription_t;
typedef struct rd_kafka_UserScramCredentialAlteration_s rd_kafka_UserScramCredentialAlteration_t;
typedef struct rd_kafka_AlterUserScramCredentials_result_response_s rd_kafka_AlterUserScramCredentials_result_response_t;
typedef struct rd_kafka_AclBinding_s rd_kafka_AclBinding_t;
typedef struct rd_kafka_DeleteAcls_result_response_s rd_kafka_DeleteAcls_result_response_t;
typedef struct rd_kafka_ElectLeaders_s rd_kafka_ElectLeaders_t;
/** Filters are rules whose parts may be left open. */
typedef rd_kafka_AclBinding_t rd_kafka_AclBindingFilter_t;

/** Which records are counted. */
typedef enum rd_kafka_IsolationLevel_t {
    RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED = 0,
    RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED = 1
} rd_kafka_IsolationLevel_t;

/** What may be allowed or denied. */
typedef enum rd_kafka_AclOperation_t {
    RD_KAFKA_ACL_OPERATION_UNKNOWN = 0,
    RD_KAFKA_ACL_OPERATION_ANY = 1,
    RD_KAFKA_ACL_OPERATION_ALL = 2,
    RD_KAFKA_ACL_OPERATION_READ = 3,
    RD_KAFKA_ACL_OPERATION_WRITE = 4,
    RD_KAFKA_ACL_OPERATION_CREATE = 5,
    RD_KAFKA_ACL_OPERATION_DELETE = 6,
    RD_KAFKA_ACL_OPERATION_ALTER = 7,
    RD_KAFKA_ACL_OPERATION_DESCRIBE = 8,
    RD_KAFKA_ACL_OPERATION_CLUSTER_ACTION = 9,
    RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS = 10,
    RD_KAFKA_ACL_OPERATION_ALTER_CONFIGS = 11,
    RD_KAFKA_ACL_OPERATION_IDEMPOTENT_WRITE = 12,
    RD_KAFKA_ACL_OPERATION__CNT = 13
} rd_kafka_AclOperation_t;

/** Where a configuration comes from. */
typedef enum rd_kafka_ConfigSource_t {
    RD_KAFKA_CONFIG_SOURCE_UNKNOWN_CONFIG = 0,
    RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG = 1,
    RD_KAFKA_CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG = 2,
    RD_KAFKA_CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG = 3,
    RD_KAFKA_CONFIG_SOURCE_STATIC_BROKER_CONFIG = 4,
    RD_KAFKA_CONFIG_SOURCE_DEFAULT_CONFIG = 5,
    RD_KAFKA_CONFIG_SOURCE_GROUP_CONFIG = 8,
    RD_KAFKA_CONFIG_SOURCE__CNT = 9
} rd_kafka_ConfigSource_t;

/** What a resource is. */
typedef enum rd_kafka_ResourceType_t {
    RD_KAFKA_RESOURCE_UNKNOWN = 0,
    RD_KAFKA_RESOURCE_ANY = 1,
    RD_KAFKA_RESOURCE_TOPIC = 2,
    RD_KAFKA_RESOURCE_GROUP = 3,
    RD_KAFKA_RESOURCE_BROKER = 4,
    RD_KAFKA_RESOURCE_TRANSACTIONAL_ID = 5,
    RD_KAFKA_RESOURCE__CNT = 6
} rd_kafka_ResourceType_t;

/** How the name of a resource is to be read. */
typedef enum rd_kafka_ResourcePatternType_t {
    RD_KAFKA_RESOURCE_PATTERN_UNKNOWN = 0,
    RD_KAFKA_RESOURCE_PATTERN_ANY = 1,
    RD_KAFKA_RESOURCE_PATTERN_MATCH = 2,
    RD_KAFKA_RESOURCE_PATTERN_LITERAL = 3,
    RD_KAFKA_RESOURCE_PATTERN_PREFIXED = 4,
    RD_KAFKA_RESOURCE_PATTERN_TYPE__CNT = 5
} rd_kafka_ResourcePatternType_t;

/** What a change does to a configuration. */
typedef enum rd_kafka_AlterConfigOpType_t {
    RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET = 0,
    RD_KAFKA_ALTER_CONFIG_OP_TYPE_DELETE = 1,
    RD_KAFKA_ALTER_CONFIG_OP_TYPE_APPEND = 2,
    RD_KAFKA_ALTER_CONFIG_OP_TYPE_SUBTRACT = 3,
    RD_KAFKA_ALTER_CONFIG_OP_TYPE__CNT = 4
} rd_kafka_AlterConfigOpType_t;

/** Which offset is looked for; a time is not negative. */
typedef enum rd_kafka_OffsetSpec_t {
    RD_KAFKA_OFFSET_SPEC_MAX_TIMESTAMP = -3,
    RD_KAFKA_OFFSET_SPEC_EARLIEST = -2,
    RD_KAFKA_OFFSET_SPEC_LATEST = -1
} rd_kafka_OffsetSpec_t;

/** A SCRAM mechanism. */
typedef enum rd_kafka_ScramMechanism_t {
    RD_KAFKA_SCRAM_MECHANISM_UNKNOWN = 0,
    RD_KAFKA_SCRAM_MECHANISM_SHA_256 = 1,
    RD_KAFKA_SCRAM_MECHANISM_SHA_512 = 2,
    RD_KAFKA_SCRAM_MECHANISM__CNT = 3
} rd_kafka_ScramMechanism_t;

/** Whether a rule allows or denies. */
typedef enum rd_kafka_AclPermissionType_t {
    RD_KAFKA_ACL_PERMISSION_TYPE_UNKNOWN = 0,
    RD_KAFKA_ACL_PERMISSION_TYPE_ANY = 1,
    RD_KAFKA_ACL_PERMISSION_TYPE_DENY = 2,
    RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW = 3,
    RD_KAFKA_ACL_PERMISSION_TYPE__CNT = 4
} rd_kafka_AclPermissionType_t;

/** Which leader is elected: the preferred one, or any that is alive. */
typedef enum rd_kafka_ElectionType_t {
    RD_KAFKA_ELECTION_TYPE_PREFERRED = 0,
    RD_KAFKA_ELECTION_TYPE_UNCLEAN = 1
} rd_kafka_ElectionType_t;

/**
 * Makes options for one kind of operation, or for RD_KAFKA_ADMIN_OP_ANY. Free them with
 * rd_kafka_AdminOptions_destroy().
 */
RD_EXPORT rd_kafka_AdminOptions_t *rd_kafka_AdminOptions_new(
    rd_kafka_t *rk, rd_kafka_admin_op_t for_api);

/** Frees options; NULL is fine. */
RD_EXPORT void rd_kafka_AdminOptions_destroy(rd_kafka_AdminOptions_t *options);

/** How long the whole operation may take, in milliseconds; the default is `socket.timeout.ms`. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_AdminOptions_set_request_timeout(
    rd_kafka_AdminOptions_t *options, int timeout_ms, char *errstr, size_t errstr_size);

/**
 * How long the broker may take to finish the operation in the cluster; 0 is not to wait for it.
 * For topics, partitions and records.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_AdminOptions_set_operation_timeout(
    rd_kafka_AdminOptions_t *options, int timeout_ms, char *errstr, size_t errstr_size);

/** Has the broker check the operation and do nothing, if `true_or_false` is 1. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_AdminOptions_set_validate_only(
    rd_kafka_AdminOptions_t *options, int true_or_false, char *errstr, size_t errstr_size);

/** Is accepted and has no effect: each operation goes to the broker whose task it is. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_AdminOptions_set_broker(
    rd_kafka_AdminOptions_t *options, int32_t broker_id, char *errstr, size_t errstr_size);

/** Whether rd_kafka_ListConsumerGroupOffsets() is to wait out open transactions. */
RD_EXPORT rd_kafka_error_t *rd_kafka_AdminOptions_set_require_stable_offsets(
    rd_kafka_AdminOptions_t *options, int true_or_false);

/** Whether descriptions are to say what the caller may do. */
RD_EXPORT rd_kafka_error_t *rd_kafka_AdminOptions_set_include_authorized_operations(
    rd_kafka_AdminOptions_t *options, int true_or_false);

/** Limits rd_kafka_ListConsumerGroups() to groups in these states. */
RD_EXPORT rd_kafka_error_t *rd_kafka_AdminOptions_set_match_consumer_group_states(
    rd_kafka_AdminOptions_t *options, const rd_kafka_consumer_group_state_t *consumer_group_states,
    size_t consumer_group_states_cnt);

/** Limits rd_kafka_ListConsumerGroups() to groups of these types. */
RD_EXPORT rd_kafka_error_t *rd_kafka_AdminOptions_set_match_consumer_group_types(
    rd_kafka_AdminOptions_t *options, const rd_kafka_consumer_group_type_t *consumer_group_types,
    size_t consumer_group_types_cnt);

/** Which records rd_kafka_ListOffsets() counts. */
RD_EXPORT rd_kafka_error_t *rd_kafka_AdminOptions_set_isolation_level(
    rd_kafka_AdminOptions_t *options, rd_kafka_IsolationLevel_t value);

/** Sets the pointer that rd_kafka_event_opaque() of the result returns. */
RD_EXPORT void rd_kafka_AdminOptions_set_opaque(rd_kafka_AdminOptions_t *options, void *ev_opaque);

/* ---- Administration: topics ---- */

/**
 * Describes a topic to create; -1 takes the broker's default for partitions or replicas. NULL
 * with the reason in `errstr` for values that cannot be.
 */
RD_EXPORT rd_kafka_NewTopic_t *rd_kafka_NewTopic_new(
    const char *topic, int num_partitions, int replication_factor, char *errstr,
    size_t errstr_size);

/** Frees it. */
RD_EXPORT void rd_kafka_NewTopic_destroy(rd_kafka_NewTopic_t *new_topic);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_NewTopic_destroy_array(
    rd_kafka_NewTopic_t **new_topics, size_t new_topic_cnt);

/**
 * Sets the brokers of one partition, the preferred leader first; from partition 0 on, one after
 * the other, and with a replication factor of -1.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_NewTopic_set_replica_assignment(
    rd_kafka_NewTopic_t *new_topic, int32_t partition, int32_t *broker_ids, size_t broker_id_cnt,
    char *errstr, size_t errstr_size);

/** Sets a configuration of the topic; the broker checks it. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_NewTopic_set_config(
    rd_kafka_NewTopic_t *new_topic, const char *name, const char *value);

/** Creates topics; RD_KAFKA_EVENT_CREATETOPICS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_CreateTopics(
    rd_kafka_t *rk, rd_kafka_NewTopic_t **new_topics, size_t new_topic_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The outcome for each topic. */
RD_EXPORT const rd_kafka_topic_result_t **rd_kafka_CreateTopics_result_topics(
    const rd_kafka_CreateTopics_result_t *result, size_t *cntp);

/** Names a topic to delete. */
RD_EXPORT rd_kafka_DeleteTopic_t *rd_kafka_DeleteTopic_new(const char *topic);

/** Frees it. */
RD_EXPORT void rd_kafka_DeleteTopic_destroy(rd_kafka_DeleteTopic_t *del_topic);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_DeleteTopic_destroy_array(
    rd_kafka_DeleteTopic_t **del_topics, size_t del_topic_cnt);

/** Deletes topics; RD_KAFKA_EVENT_DELETETOPICS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_DeleteTopics(
    rd_kafka_t *rk, rd_kafka_DeleteTopic_t **del_topics, size_t del_topic_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The outcome for each topic. */
RD_EXPORT const rd_kafka_topic_result_t **rd_kafka_DeleteTopics_result_topics(
    const rd_kafka_DeleteTopics_result_t *result, size_t *cntp);

/**
 * Says how many partitions a topic is to have in all. NULL with the reason in `errstr` for
 * values that cannot be.
 */
RD_EXPORT rd_kafka_NewPartitions_t *rd_kafka_NewPartitions_new(
    const char *topic, size_t new_total_cnt, char *errstr, size_t errstr_size);

/** Frees it. */
RD_EXPORT void rd_kafka_NewPartitions_destroy(rd_kafka_NewPartitions_t *new_parts);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_NewPartitions_destroy_array(
    rd_kafka_NewPartitions_t **new_parts, size_t new_parts_cnt);

/** Sets the brokers of one of the new partitions, which count from 0. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_NewPartitions_set_replica_assignment(
    rd_kafka_NewPartitions_t *new_parts, int32_t new_partition_idx, int32_t *broker_ids,
    size_t broker_id_cnt, char *errstr, size_t errstr_size);

/** Adds partitions to topics; RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_CreatePartitions(
    rd_kafka_t *rk, rd_kafka_NewPartitions_t **new_parts, size_t new_parts_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The outcome for each topic. */
RD_EXPORT const rd_kafka_topic_result_t **rd_kafka_CreatePartitions_result_topics(
    const rd_kafka_CreatePartitions_result_t *result, size_t *cntp);

/** Makes a collection of topics by their names. Free it with rd_kafka_TopicCollection_destroy(). */
RD_EXPORT rd_kafka_TopicCollection_t *rd_kafka_TopicCollection_of_topic_names(
    const char **topics, size_t topics_cnt);

/** Frees a collection. */
RD_EXPORT void rd_kafka_TopicCollection_destroy(rd_kafka_TopicCollection_t *topics);

/** Describes topics; RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_DescribeTopics(
    rd_kafka_t *rk, const rd_kafka_TopicCollection_t *topics,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The descriptions. */
RD_EXPORT const rd_kafka_TopicDescription_t **rd_kafka_DescribeTopics_result_topics(
    const rd_kafka_DescribeTopics_result_t *result, size_t *cntp);

/** The topic's partitions. */
RD_EXPORT const rd_kafka_TopicPartitionInfo_t **rd_kafka_TopicDescription_partitions(
    const rd_kafka_TopicDescription_t *topicdesc, size_t *cntp);

/** What the caller may do with the topic; NULL if that was not asked for. */
RD_EXPORT const rd_kafka_AclOperation_t *rd_kafka_TopicDescription_authorized_operations(
    const rd_kafka_TopicDescription_t *topicdesc, size_t *cntp);

/** The topic's name. */
RD_EXPORT const char *rd_kafka_TopicDescription_name(const rd_kafka_TopicDescription_t *topicdesc);

/** The topic's id. */
RD_EXPORT const rd_kafka_Uuid_t *rd_kafka_TopicDescription_topic_id(
    const rd_kafka_TopicDescription_t *topicdesc);

/** 1 if the topic is one of Kafka's own, else 0. */
RD_EXPORT int rd_kafka_TopicDescription_is_internal(const rd_kafka_TopicDescription_t *topicdesc);

/** Why the topic could not be described; NULL if it could. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_TopicDescription_error(
    const rd_kafka_TopicDescription_t *topicdesc);

/** The partition. */
RD_EXPORT int rd_kafka_TopicPartitionInfo_partition(const rd_kafka_TopicPartitionInfo_t *partition);

/** The partition's leader; NULL if it has none. */
RD_EXPORT const rd_kafka_Node_t *rd_kafka_TopicPartitionInfo_leader(
    const rd_kafka_TopicPartitionInfo_t *partition);

/** The replicas that are in sync. */
RD_EXPORT const rd_kafka_Node_t **rd_kafka_TopicPartitionInfo_isr(
    const rd_kafka_TopicPartitionInfo_t *partition, size_t *cntp);

/** All replicas, the preferred leader first. */
RD_EXPORT const rd_kafka_Node_t **rd_kafka_TopicPartitionInfo_replicas(
    const rd_kafka_TopicPartitionInfo_t *partition, size_t *cntp);

/**
 * Takes a list of partitions, each with the offset before which its records go;
 * RD_KAFKA_OFFSET_END is all. The list is copied.
 */
RD_EXPORT rd_kafka_DeleteRecords_t *rd_kafka_DeleteRecords_new(
    const rd_kafka_topic_partition_list_t *before_offsets);

/** Frees it. */
RD_EXPORT void rd_kafka_DeleteRecords_destroy(rd_kafka_DeleteRecords_t *del_records);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_DeleteRecords_destroy_array(
    rd_kafka_DeleteRecords_t **del_records, size_t del_record_cnt);

/**
 * Deletes the oldest records of partitions; one element in the array.
 * RD_KAFKA_EVENT_DELETERECORDS_RESULT arrives at `rkqu`.
 */
RD_EXPORT void rd_kafka_DeleteRecords(
    rd_kafka_t *rk, rd_kafka_DeleteRecords_t **del_records, size_t del_record_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The new first offset of each partition, or its error. */
RD_EXPORT const rd_kafka_topic_partition_list_t *rd_kafka_DeleteRecords_result_offsets(
    const rd_kafka_DeleteRecords_result_t *result);

/**
 * Finds offsets by the RD_KAFKA_OFFSET_SPEC_ values or times in the list;
 * RD_KAFKA_EVENT_LISTOFFSETS_RESULT arrives at `rkqu`.
 */
RD_EXPORT void rd_kafka_ListOffsets(
    rd_kafka_t *rk, rd_kafka_topic_partition_list_t *topic_partitions,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** What was found, for each partition. */
RD_EXPORT const rd_kafka_ListOffsetsResultInfo_t **rd_kafka_ListOffsets_result_infos(
    const rd_kafka_ListOffsets_result_t *result, size_t *cntp);

/** The partition with its offset, or error. */
RD_EXPORT const rd_kafka_topic_partition_t *rd_kafka_ListOffsetsResultInfo_topic_partition(
    const rd_kafka_ListOffsetsResultInfo_t *result_info);

/** The time of the record that was found; -1 if it has none. */
RD_EXPORT int64_t rd_kafka_ListOffsetsResultInfo_timestamp(
    const rd_kafka_ListOffsetsResultInfo_t *result_info);

/** Says which kind of election, and for which partitions; NULL is all. The list is copied. */
RD_EXPORT rd_kafka_ElectLeaders_t *rd_kafka_ElectLeaders_new(
    rd_kafka_ElectionType_t election_type, rd_kafka_topic_partition_list_t *partitions);

/** Frees it. */
RD_EXPORT void rd_kafka_ElectLeaders_destroy(rd_kafka_ElectLeaders_t *elect_leaders);

/** Elects leaders; RD_KAFKA_EVENT_ELECTLEADERS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_ElectLeaders(
    rd_kafka_t *rk, rd_kafka_ElectLeaders_t *elect_leaders, const rd_kafka_AdminOptions_t *options,
    rd_kafka_queue_t *rkqu);

/** The outcome for each partition. */
RD_EXPORT const rd_kafka_topic_partition_result_t **rd_kafka_ElectLeaders_result_partitions(
    const rd_kafka_ElectLeaders_result_t *result, size_t *cntp);

/* ---- Administration: configurations ---- */

/** The name of a configuration's source. */
RD_EXPORT const char *rd_kafka_ConfigSource_name(rd_kafka_ConfigSource_t confsource);

/** The configuration's name. */
RD_EXPORT const char *rd_kafka_ConfigEntry_name(const rd_kafka_ConfigEntry_t *entry);

/** Its value; NULL if the broker does not tell. */
RD_EXPORT const char *rd_kafka_ConfigEntry_value(const rd_kafka_ConfigEntry_t *entry);

/** Where the value comes from. */
RD_EXPORT rd_kafka_ConfigSource_t rd_kafka_ConfigEntry_source(const rd_kafka_ConfigEntry_t *entry);

/** 1 if it cannot be changed, 0 if it can, -1 if that is not known. */
RD_EXPORT int rd_kafka_ConfigEntry_is_read_only(const rd_kafka_ConfigEntry_t *entry);

/** 1 if the value is the default, 0 if it is not, -1 if that is not known. */
RD_EXPORT int rd_kafka_ConfigEntry_is_default(const rd_kafka_ConfigEntry_t *entry);

/** 1 if the value is secret, 0 if it is not, -1 if that is not known. */
RD_EXPORT int rd_kafka_ConfigEntry_is_sensitive(const rd_kafka_ConfigEntry_t *entry);

/** 1 if the entry is a synonym of another, else 0. */
RD_EXPORT int rd_kafka_ConfigEntry_is_synonym(const rd_kafka_ConfigEntry_t *entry);

/** The entries that give the value when this one is unset, in their order. */
RD_EXPORT const rd_kafka_ConfigEntry_t **rd_kafka_ConfigEntry_synonyms(
    const rd_kafka_ConfigEntry_t *entry, size_t *cntp);

/** The name of a kind of pattern. */
RD_EXPORT const char *rd_kafka_ResourcePatternType_name(
    rd_kafka_ResourcePatternType_t resource_pattern_type);

/** The name of a kind of resource. */
RD_EXPORT const char *rd_kafka_ResourceType_name(rd_kafka_ResourceType_t restype);

/**
 * Names a resource to describe or change: a topic, a broker by its id, or a group. NULL for
 * values that cannot be.
 */
RD_EXPORT rd_kafka_ConfigResource_t *rd_kafka_ConfigResource_new(
    rd_kafka_ResourceType_t restype, const char *resname);

/** Frees it. */
RD_EXPORT void rd_kafka_ConfigResource_destroy(rd_kafka_ConfigResource_t *config);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_ConfigResource_destroy_array(
    rd_kafka_ConfigResource_t **config, size_t config_cnt);

/** Sets a value for rd_kafka_AlterConfigs(). */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_ConfigResource_set_config(
    rd_kafka_ConfigResource_t *config, const char *name, const char *value);

/** Adds a change for rd_kafka_IncrementalAlterConfigs(); NULL if it went well. */
RD_EXPORT rd_kafka_error_t *rd_kafka_ConfigResource_add_incremental_config(
    rd_kafka_ConfigResource_t *config, const char *name, rd_kafka_AlterConfigOpType_t op_type,
    const char *value);

/** The entries of a result. */
RD_EXPORT const rd_kafka_ConfigEntry_t **rd_kafka_ConfigResource_configs(
    const rd_kafka_ConfigResource_t *config, size_t *cntp);

/** What kind of resource it is. */
RD_EXPORT rd_kafka_ResourceType_t rd_kafka_ConfigResource_type(
    const rd_kafka_ConfigResource_t *config);

/** The resource's name. */
RD_EXPORT const char *rd_kafka_ConfigResource_name(const rd_kafka_ConfigResource_t *config);

/** The outcome for the resource. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_ConfigResource_error(
    const rd_kafka_ConfigResource_t *config);

/** What went wrong with the resource, in words; NULL if nothing did. */
RD_EXPORT const char *rd_kafka_ConfigResource_error_string(const rd_kafka_ConfigResource_t *config);

/**
 * Replaces the configurations of resources as a whole, so that what is not named falls back to
 * its default; RD_KAFKA_EVENT_ALTERCONFIGS_RESULT arrives at `rkqu`. Prefer
 * rd_kafka_IncrementalAlterConfigs().
 */
RD_EXPORT void rd_kafka_AlterConfigs(
    rd_kafka_t *rk, rd_kafka_ConfigResource_t **configs, size_t config_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The outcome for each resource. */
RD_EXPORT const rd_kafka_ConfigResource_t **rd_kafka_AlterConfigs_result_resources(
    const rd_kafka_AlterConfigs_result_t *result, size_t *cntp);

/**
 * Changes single configurations of resources; RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT
 * arrives at `rkqu`.
 */
RD_EXPORT void rd_kafka_IncrementalAlterConfigs(
    rd_kafka_t *rk, rd_kafka_ConfigResource_t **configs, size_t config_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The outcome for each resource. */
RD_EXPORT const rd_kafka_ConfigResource_t **rd_kafka_IncrementalAlterConfigs_result_resources(
    const rd_kafka_IncrementalAlterConfigs_result_t *result, size_t *cntp);

/**
 * Reads the configurations of resources; RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT arrives at
 * `rkqu`.
 */
RD_EXPORT void rd_kafka_DescribeConfigs(
    rd_kafka_t *rk, rd_kafka_ConfigResource_t **configs, size_t config_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The resources with their entries. */
RD_EXPORT const rd_kafka_ConfigResource_t **rd_kafka_DescribeConfigs_result_resources(
    const rd_kafka_DescribeConfigs_result_t *result, size_t *cntp);

/* ---- Administration: the cluster ---- */

/** Describes the cluster; RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_DescribeCluster(
    rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The brokers. */
RD_EXPORT const rd_kafka_Node_t **rd_kafka_DescribeCluster_result_nodes(
    const rd_kafka_DescribeCluster_result_t *result, size_t *cntp);

/** What the caller may do with the cluster; NULL if that was not asked for. */
RD_EXPORT const rd_kafka_AclOperation_t *rd_kafka_DescribeCluster_result_authorized_operations(
    const rd_kafka_DescribeCluster_result_t *result, size_t *cntp);

/** The controller; NULL if it is not known. */
RD_EXPORT const rd_kafka_Node_t *rd_kafka_DescribeCluster_result_controller(
    const rd_kafka_DescribeCluster_result_t *result);

/** The cluster's id. */
RD_EXPORT const char *rd_kafka_DescribeCluster_result_cluster_id(
    const rd_kafka_DescribeCluster_result_t *result);

/* ---- Administration: groups ---- */

/** Lists the groups of all brokers; RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_ListConsumerGroups(
    rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The group's id. */
RD_EXPORT const char *rd_kafka_ConsumerGroupListing_group_id(
    const rd_kafka_ConsumerGroupListing_t *grplist);

/** 1 if the group only stores offsets, without members; else 0. */
RD_EXPORT int rd_kafka_ConsumerGroupListing_is_simple_consumer_group(
    const rd_kafka_ConsumerGroupListing_t *grplist);

/** The group's state. */
RD_EXPORT rd_kafka_consumer_group_state_t rd_kafka_ConsumerGroupListing_state(
    const rd_kafka_ConsumerGroupListing_t *grplist);

/** The group's protocol. */
RD_EXPORT rd_kafka_consumer_group_type_t rd_kafka_ConsumerGroupListing_type(
    const rd_kafka_ConsumerGroupListing_t *grplist);

/** The groups. */
RD_EXPORT const rd_kafka_ConsumerGroupListing_t **rd_kafka_ListConsumerGroups_result_valid(
    const rd_kafka_ListConsumerGroups_result_t *result, size_t *cntp);

/** What went wrong with some of the brokers. */
RD_EXPORT const rd_kafka_error_t **rd_kafka_ListConsumerGroups_result_errors(
    const rd_kafka_ListConsumerGroups_result_t *result, size_t *cntp);

/** Describes groups; RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_DescribeConsumerGroups(
    rd_kafka_t *rk, const char **groups, size_t groups_cnt, const rd_kafka_AdminOptions_t *options,
    rd_kafka_queue_t *rkqu);

/** The descriptions. */
RD_EXPORT const rd_kafka_ConsumerGroupDescription_t **rd_kafka_DescribeConsumerGroups_result_groups(
    const rd_kafka_DescribeConsumerGroups_result_t *result, size_t *cntp);

/** The group's id. */
RD_EXPORT const char *rd_kafka_ConsumerGroupDescription_group_id(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc);

/** Why the group could not be described; NULL if it could. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_ConsumerGroupDescription_error(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc);

/** 1 if the group only stores offsets, without members; else 0. */
RD_EXPORT int rd_kafka_ConsumerGroupDescription_is_simple_consumer_group(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc);

/** The name of the group's assignor. */
RD_EXPORT const char *rd_kafka_ConsumerGroupDescription_partition_assignor(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc);

/** What the caller may do with the group; NULL if that was not asked for. */
RD_EXPORT const rd_kafka_AclOperation_t *rd_kafka_ConsumerGroupDescription_authorized_operations(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc, size_t *cntp);

/** The group's state. */
RD_EXPORT rd_kafka_consumer_group_state_t rd_kafka_ConsumerGroupDescription_state(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc);

/** The group's coordinator; NULL if it is not known. */
RD_EXPORT const rd_kafka_Node_t *rd_kafka_ConsumerGroupDescription_coordinator(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc);

/** The group's protocol. */
RD_EXPORT rd_kafka_consumer_group_type_t rd_kafka_ConsumerGroupDescription_type(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc);

/** How many members the group has. */
RD_EXPORT size_t rd_kafka_ConsumerGroupDescription_member_count(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc);

/** The member at this index; NULL if there is none. */
RD_EXPORT const rd_kafka_MemberDescription_t *rd_kafka_ConsumerGroupDescription_member(
    const rd_kafka_ConsumerGroupDescription_t *grpdesc, size_t idx);

/** The member's client id. */
RD_EXPORT const char *rd_kafka_MemberDescription_client_id(
    const rd_kafka_MemberDescription_t *member);

/** The member's static id; NULL if it has none. */
RD_EXPORT const char *rd_kafka_MemberDescription_group_instance_id(
    const rd_kafka_MemberDescription_t *member);

/** The member's id in the group. */
RD_EXPORT const char *rd_kafka_MemberDescription_consumer_id(
    const rd_kafka_MemberDescription_t *member);

/** Where the member connects from. */
RD_EXPORT const char *rd_kafka_MemberDescription_host(const rd_kafka_MemberDescription_t *member);

/** What the member has. */
RD_EXPORT const rd_kafka_MemberAssignment_t *rd_kafka_MemberDescription_assignment(
    const rd_kafka_MemberDescription_t *member);

/** The partitions of an assignment. */
RD_EXPORT const rd_kafka_topic_partition_list_t *rd_kafka_MemberAssignment_partitions(
    const rd_kafka_MemberAssignment_t *assignment);

/** What the member is to have next; NULL in the classic protocol. */
RD_EXPORT const rd_kafka_MemberAssignment_t *rd_kafka_MemberDescription_target_assignment(
    const rd_kafka_MemberDescription_t *member);

/** Names a group to delete. */
RD_EXPORT rd_kafka_DeleteGroup_t *rd_kafka_DeleteGroup_new(const char *group);

/** Frees it. */
RD_EXPORT void rd_kafka_DeleteGroup_destroy(rd_kafka_DeleteGroup_t *del_group);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_DeleteGroup_destroy_array(
    rd_kafka_DeleteGroup_t **del_groups, size_t del_group_cnt);

/** Deletes groups; RD_KAFKA_EVENT_DELETEGROUPS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_DeleteGroups(
    rd_kafka_t *rk, rd_kafka_DeleteGroup_t **del_groups, size_t del_group_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The outcome for each group. */
RD_EXPORT const rd_kafka_group_result_t **rd_kafka_DeleteGroups_result_groups(
    const rd_kafka_DeleteGroups_result_t *result, size_t *cntp);

/**
 * Asks for the committed offsets of a group: of these partitions, or of all with NULL. The list
 * is copied.
 */
RD_EXPORT rd_kafka_ListConsumerGroupOffsets_t *rd_kafka_ListConsumerGroupOffsets_new(
    const char *group_id, const rd_kafka_topic_partition_list_t *partitions);

/** Frees it. */
RD_EXPORT void rd_kafka_ListConsumerGroupOffsets_destroy(
    rd_kafka_ListConsumerGroupOffsets_t *list_grpoffsets);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_ListConsumerGroupOffsets_destroy_array(
    rd_kafka_ListConsumerGroupOffsets_t **list_grpoffsets, size_t list_grpoffset_cnt);

/**
 * Reads committed offsets; one element in the array.
 * RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT arrives at `rkqu`.
 */
RD_EXPORT void rd_kafka_ListConsumerGroupOffsets(
    rd_kafka_t *rk, rd_kafka_ListConsumerGroupOffsets_t **list_grpoffsets,
    size_t list_grpoffsets_cnt, const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The groups with their offsets. */
RD_EXPORT const rd_kafka_group_result_t **rd_kafka_ListConsumerGroupOffsets_result_groups(
    const rd_kafka_ListConsumerGroupOffsets_result_t *result, size_t *cntp);

/** Asks for these offsets to be committed for a group. The list is copied. */
RD_EXPORT rd_kafka_AlterConsumerGroupOffsets_t *rd_kafka_AlterConsumerGroupOffsets_new(
    const char *group_id, const rd_kafka_topic_partition_list_t *partitions);

/** Frees it. */
RD_EXPORT void rd_kafka_AlterConsumerGroupOffsets_destroy(
    rd_kafka_AlterConsumerGroupOffsets_t *alter_grpoffsets);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_AlterConsumerGroupOffsets_destroy_array(
    rd_kafka_AlterConsumerGroupOffsets_t **alter_grpoffsets, size_t alter_grpoffset_cnt);

/**
 * Commits offsets for a group without members; one element in the array.
 * RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT arrives at `rkqu`.
 */
RD_EXPORT void rd_kafka_AlterConsumerGroupOffsets(
    rd_kafka_t *rk, rd_kafka_AlterConsumerGroupOffsets_t **alter_grpoffsets,
    size_t alter_grpoffsets_cnt, const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The outcome for each group. */
RD_EXPORT const rd_kafka_group_result_t **rd_kafka_AlterConsumerGroupOffsets_result_groups(
    const rd_kafka_AlterConsumerGroupOffsets_result_t *result, size_t *cntp);

/** Asks for the offsets of these partitions to be deleted from a group. The list is copied. */
RD_EXPORT rd_kafka_DeleteConsumerGroupOffsets_t *rd_kafka_DeleteConsumerGroupOffsets_new(
    const char *group, const rd_kafka_topic_partition_list_t *partitions);

/** Frees it. */
RD_EXPORT void rd_kafka_DeleteConsumerGroupOffsets_destroy(
    rd_kafka_DeleteConsumerGroupOffsets_t *del_grpoffsets);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_DeleteConsumerGroupOffsets_destroy_array(
    rd_kafka_DeleteConsumerGroupOffsets_t **del_grpoffsets, size_t del_grpoffset_cnt);

/**
 * Deletes committed offsets of topics that the group does not read; one element in the array.
 * RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT arrives at `rkqu`.
 */
RD_EXPORT void rd_kafka_DeleteConsumerGroupOffsets(
    rd_kafka_t *rk, rd_kafka_DeleteConsumerGroupOffsets_t **del_grpoffsets,
    size_t del_grpoffsets_cnt, const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The outcome for each group. */
RD_EXPORT const rd_kafka_group_result_t **rd_kafka_DeleteConsumerGroupOffsets_result_groups(
    const rd_kafka_DeleteConsumerGroupOffsets_result_t *result, size_t *cntp);

/* ---- Administration: users ---- */

/** The mechanism. */
RD_EXPORT rd_kafka_ScramMechanism_t rd_kafka_ScramCredentialInfo_mechanism(
    const rd_kafka_ScramCredentialInfo_t *scram_credential_info);

/** How often it hashes. */
RD_EXPORT int32_t rd_kafka_ScramCredentialInfo_iterations(
    const rd_kafka_ScramCredentialInfo_t *scram_credential_info);

/** The user. */
RD_EXPORT const char *rd_kafka_UserScramCredentialsDescription_user(
    const rd_kafka_UserScramCredentialsDescription_t *description);

/** Why the user could not be described; NULL if it could. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_UserScramCredentialsDescription_error(
    const rd_kafka_UserScramCredentialsDescription_t *description);

/** How many credentials the user has. */
RD_EXPORT size_t rd_kafka_UserScramCredentialsDescription_scramcredentialinfo_count(
    const rd_kafka_UserScramCredentialsDescription_t *description);

/** The credential at this index; NULL if there is none. */
RD_EXPORT const rd_kafka_ScramCredentialInfo_t *rd_kafka_UserScramCredentialsDescription_scramcredentialinfo(
    const rd_kafka_UserScramCredentialsDescription_t *description, size_t idx);

/** The descriptions, one for each user. */
RD_EXPORT const rd_kafka_UserScramCredentialsDescription_t **rd_kafka_DescribeUserScramCredentials_result_descriptions(
    const rd_kafka_DescribeUserScramCredentials_result_t *result, size_t *cntp);

/**
 * Describes the SCRAM credentials of these users, or of all with 0;
 * RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT arrives at `rkqu`.
 */
RD_EXPORT void rd_kafka_DescribeUserScramCredentials(
    rd_kafka_t *rk, const char **users, size_t user_cnt, const rd_kafka_AdminOptions_t *options,
    rd_kafka_queue_t *rkqu);

/** Asks for a credential to be set; with `salt` NULL one is made. All is copied. */
RD_EXPORT rd_kafka_UserScramCredentialAlteration_t *rd_kafka_UserScramCredentialUpsertion_new(
    const char *username, rd_kafka_ScramMechanism_t mechanism, int32_t iterations,
    const unsigned char *password, size_t password_size, const unsigned char *salt,
    size_t salt_size);

/** Asks for a credential to be deleted. */
RD_EXPORT rd_kafka_UserScramCredentialAlteration_t *rd_kafka_UserScramCredentialDeletion_new(
    const char *username, rd_kafka_ScramMechanism_t mechanism);

/** Frees it. */
RD_EXPORT void rd_kafka_UserScramCredentialAlteration_destroy(
    rd_kafka_UserScramCredentialAlteration_t *alteration);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_UserScramCredentialAlteration_destroy_array(
    rd_kafka_UserScramCredentialAlteration_t **alterations, size_t alteration_cnt);

/** The user. */
RD_EXPORT const char *rd_kafka_AlterUserScramCredentials_result_response_user(
    const rd_kafka_AlterUserScramCredentials_result_response_t *response);

/** The outcome for the user; NULL if it went well. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_AlterUserScramCredentials_result_response_error(
    const rd_kafka_AlterUserScramCredentials_result_response_t *response);

/** The outcomes, one for each user. */
RD_EXPORT const rd_kafka_AlterUserScramCredentials_result_response_t **rd_kafka_AlterUserScramCredentials_result_responses(
    const rd_kafka_AlterUserScramCredentials_result_t *result, size_t *cntp);

/**
 * Sets and deletes SCRAM credentials; RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT arrives at
 * `rkqu`.
 */
RD_EXPORT void rd_kafka_AlterUserScramCredentials(
    rd_kafka_t *rk, rd_kafka_UserScramCredentialAlteration_t **alterations, size_t alteration_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/* ---- Administration: access control ---- */

/** The outcome for the rule; NULL if it went well. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_acl_result_error(const rd_kafka_acl_result_t *aclres);

/** The operation's name. */
RD_EXPORT const char *rd_kafka_AclOperation_name(rd_kafka_AclOperation_t acl_operation);

/** The permission's name. */
RD_EXPORT const char *rd_kafka_AclPermissionType_name(
    rd_kafka_AclPermissionType_t acl_permission_type);

/**
 * Makes a rule: who (`principal`, from `host`) may or may not do what with which resource. NULL
 * with the reason in `errstr` for values that cannot be.
 */
RD_EXPORT rd_kafka_AclBinding_t *rd_kafka_AclBinding_new(
    rd_kafka_ResourceType_t restype, const char *name,
    rd_kafka_ResourcePatternType_t resource_pattern_type, const char *principal, const char *host,
    rd_kafka_AclOperation_t operation, rd_kafka_AclPermissionType_t permission_type, char *errstr,
    size_t errstr_size);

/** Makes a filter of rules; NULL and the ANY values match all. */
RD_EXPORT rd_kafka_AclBindingFilter_t *rd_kafka_AclBindingFilter_new(
    rd_kafka_ResourceType_t restype, const char *name,
    rd_kafka_ResourcePatternType_t resource_pattern_type, const char *principal, const char *host,
    rd_kafka_AclOperation_t operation, rd_kafka_AclPermissionType_t permission_type, char *errstr,
    size_t errstr_size);

/** The kind of resource. */
RD_EXPORT rd_kafka_ResourceType_t rd_kafka_AclBinding_restype(const rd_kafka_AclBinding_t *acl);

/** The resource's name. */
RD_EXPORT const char *rd_kafka_AclBinding_name(const rd_kafka_AclBinding_t *acl);

/** Whom the rule is about. */
RD_EXPORT const char *rd_kafka_AclBinding_principal(const rd_kafka_AclBinding_t *acl);

/** From where. */
RD_EXPORT const char *rd_kafka_AclBinding_host(const rd_kafka_AclBinding_t *acl);

/** The operation. */
RD_EXPORT rd_kafka_AclOperation_t rd_kafka_AclBinding_operation(const rd_kafka_AclBinding_t *acl);

/** Whether it is allowed or denied. */
RD_EXPORT rd_kafka_AclPermissionType_t rd_kafka_AclBinding_permission_type(
    const rd_kafka_AclBinding_t *acl);

/** How the name is to be read. */
RD_EXPORT rd_kafka_ResourcePatternType_t rd_kafka_AclBinding_resource_pattern_type(
    const rd_kafka_AclBinding_t *acl);

/** What went wrong with the rule; NULL if nothing did. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_AclBinding_error(const rd_kafka_AclBinding_t *acl);

/** Frees a rule or filter. */
RD_EXPORT void rd_kafka_AclBinding_destroy(rd_kafka_AclBinding_t *acl_binding);

/** Frees each of the array's, not the array. */
RD_EXPORT void rd_kafka_AclBinding_destroy_array(
    rd_kafka_AclBinding_t **acl_bindings, size_t acl_bindings_cnt);

/** The outcome for each rule. */
RD_EXPORT const rd_kafka_acl_result_t **rd_kafka_CreateAcls_result_acls(
    const rd_kafka_CreateAcls_result_t *result, size_t *cntp);

/** Creates rules; RD_KAFKA_EVENT_CREATEACLS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_CreateAcls(
    rd_kafka_t *rk, rd_kafka_AclBinding_t **new_acls, size_t new_acls_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/** The rules that match. */
RD_EXPORT const rd_kafka_AclBinding_t **rd_kafka_DescribeAcls_result_acls(
    const rd_kafka_DescribeAcls_result_t *result, size_t *cntp);

/** Reads the rules that match a filter; RD_KAFKA_EVENT_DESCRIBEACLS_RESULT arrives at `rkqu`. */
RD_EXPORT void rd_kafka_DescribeAcls(
    rd_kafka_t *rk, rd_kafka_AclBindingFilter_t *acl_filter, const rd_kafka_AdminOptions_t *options,
    rd_kafka_queue_t *rkqu);

/** The outcome for each filter. */
RD_EXPORT const rd_kafka_DeleteAcls_result_response_t **rd_kafka_DeleteAcls_result_responses(
    const rd_kafka_DeleteAcls_result_t *result, size_t *cntp);

/** What went wrong with the filter; NULL if nothing did. */
RD_EXPORT const rd_kafka_error_t *rd_kafka_DeleteAcls_result_response_error(
    const rd_kafka_DeleteAcls_result_response_t *result_response);

/** The rules that matched the filter, with an error for each that could not be deleted. */
RD_EXPORT const rd_kafka_AclBinding_t **rd_kafka_DeleteAcls_result_response_matching_acls(
    const rd_kafka_DeleteAcls_result_response_t *result_response, size_t *matching_acls_cntp);

/**
 * Deletes the rules that match these filters; RD_KAFKA_EVENT_DELETEACLS_RESULT arrives at
 * `rkqu`.
 */
RD_EXPORT void rd_kafka_DeleteAcls(
    rd_kafka_t *rk, rd_kafka_AclBindingFilter_t **del_acls, size_t del_acls_cnt,
    const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *rkqu);

/* ---- Tokens ---- */

/**
 * Gives the client a token for SASL/OAUTHBEARER, good until `md_lifetime_ms` (milliseconds since
 * 1970), for this principal. `extensions` are `extension_size` strings, names and values in
 * turn. RD_KAFKA_RESP_ERR__INVALID_ARG or RD_KAFKA_RESP_ERR__STATE come with the reason in
 * `errstr`.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_oauthbearer_set_token(
    rd_kafka_t *rk, const char *token_value, int64_t md_lifetime_ms, const char *md_principal_name,
    const char **extensions, size_t extension_size, char *errstr, size_t errstr_size);

/** Says that no token could be had, and why; the application is asked again later. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_oauthbearer_set_token_failure(
    rd_kafka_t *rk, const char *errstr);

/* ---- Transactions ---- */

/**
 * Takes over the `transactional.id`, fences earlier producers of the same, and finishes or
 * aborts what they left; waits up to `timeout_ms`, -1 is twice the transaction timeout. To be
 * called once, before anything is produced; again after a retriable error. NULL if it went well.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *rk, int timeout_ms);

/** Begins a transaction; all that is produced belongs to it until it ends. NULL if it went well. */
RD_EXPORT rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *rk);

/**
 * Commits the offsets with the transaction, for the group of this metadata; each is that of the
 * next message to read. The consumer must have `enable.auto.commit=false`. NULL if it went well.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_send_offsets_to_transaction(
    rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets,
    const rd_kafka_consumer_group_metadata_t *cgmetadata, int timeout_ms);

/**
 * Sends what waits and commits the transaction; waits up to `timeout_ms`, -1 is as long as it
 * takes. Delivery reports must be served meanwhile. After an error: again if it is retriable,
 * abort if it says so, else it is fatal. NULL if it went well.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *rk, int timeout_ms);

/** Gives up what waits and aborts the transaction; else as rd_kafka_commit_transaction(). */
RD_EXPORT rd_kafka_error_t *rd_kafka_abort_transaction(rd_kafka_t *rk, int timeout_ms);

/* ---- Share consumers ---- */

/*
 * A consumer of a share group (KIP-932): the group delivers each record to one of its members, and
 * again until a member accepts or rejects it, or until it was delivered too often. Several members
 * can have one partition.
 *
 * One thread at a time uses a share consumer: calls of other threads meanwhile return
 * RD_KAFKA_RESP_ERR__CONFLICT. After the close they return RD_KAFKA_RESP_ERR__STATE. Errors are
 * objects to be destroyed with rd_kafka_error_destroy(); NULL is success.
 */

/** The acknowledgement of a record: it is processed, to be delivered again, or never again. */
typedef enum rd_kafka_share_AcknowledgeType_s {
    RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT = 1,
    RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_RELEASE = 2,
    RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_REJECT = 3
} rd_kafka_share_AcknowledgeType_t;

typedef struct rd_kafka_share_s rd_kafka_share_t;
typedef struct rd_kafka_messages_s rd_kafka_messages_t;
typedef struct rd_kafka_share_partition_offsets_s rd_kafka_share_partition_offsets_t;
typedef struct rd_kafka_share_partition_offsets_list_s rd_kafka_share_partition_offsets_list_t;

/**
 * Gets the result of acknowledgements: RD_KAFKA_RESP_ERR_NO_ERROR, or the code with which they
 * failed. The list belongs to the library and exists until the callback returns. Functions of the
 * share consumer return RD_KAFKA_RESP_ERR__STATE inside.
 */
typedef void(rd_kafka_share_acknowledgement_commit_cb_t)(
    rd_kafka_share_t *rkshare, rd_kafka_share_partition_offsets_list_t *partitions,
    rd_kafka_resp_err_t err, void *opaque);

/**
 * Creates a share consumer and takes the configuration over; NULL with the reason in `errstr`, and
 * then the configuration stays the application's. Properties and functions that a share group has
 * no use for are refused, as is an unknown `share.acknowledgement.mode`. Without `group.id` it has
 * nothing to subscribe to.
 */
RD_EXPORT rd_kafka_share_t *rd_kafka_share_consumer_new(
    rd_kafka_conf_t *conf, char *errstr, size_t errstr_size);

/**
 * Stores the next records in `rkmessages`, or NULL if none come within `timeout_ms`; -1 is without a
 * limit. With `share.acknowledgement.mode=implicit` it accepts the records of the last poll. With
 * `explicit` it sends their acknowledgements, and fails with RD_KAFKA_RESP_ERR__STATE if one is
 * missing. Runs the callbacks of the client meanwhile.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_poll(
    rd_kafka_share_t *rkshare, int timeout_ms, rd_kafka_messages_t **rkmessages);

/** The number of messages; 0 for NULL. */
RD_EXPORT size_t rd_kafka_messages_count(const rd_kafka_messages_t *rkmessages);

/** The message at this index, which belongs to the batch; NULL if there is none. */
RD_EXPORT rd_kafka_message_t *rd_kafka_messages_get(
    const rd_kafka_messages_t *rkmessages, size_t idx);

/**
 * Destroys a batch with its messages; NULL has no effect. The share consumer may be destroyed
 * before.
 */
RD_EXPORT void rd_kafka_messages_destroy(rd_kafka_messages_t *rkmessages);

/** Accepts a record; else as rd_kafka_share_acknowledge_type(). */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_share_acknowledge(
    rd_kafka_share_t *rkshare, const rd_kafka_message_t *rkmessage);

/**
 * Acknowledges a record of the last polls. The next poll or commit sends it; until then another call
 * replaces it. RD_KAFKA_RESP_ERR__STATE without `share.acknowledgement.mode=explicit`, and for a
 * record that is not delivered to this consumer or whose acknowledgement was sent.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_share_acknowledge_type(
    rd_kafka_share_t *rkshare, const rd_kafka_message_t *rkmessage,
    rd_kafka_share_AcknowledgeType_t type);

/** As rd_kafka_share_acknowledge_type(), by the record's place: also after its message is destroyed. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_share_acknowledge_offset(
    rd_kafka_share_t *rkshare, const char *topic, int32_t partition, int64_t offset,
    rd_kafka_share_AcknowledgeType_t type);

/**
 * Sends the acknowledgements as rd_kafka_share_commit_sync() does, without waiting. A later call
 * passes their results to the callback.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_commit_async(rd_kafka_share_t *rkshare);

/**
 * Sends the acknowledgements since the last poll or commit and waits up to `timeout_ms` for their
 * results; -1 is without a limit. In implicit mode it accepts the records of the last poll first.
 * Stores a new list with the result of each partition in `partitions`, to be destroyed; NULL if
 * there was nothing to send. A partition without a result in time has
 * RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT. `partitions` can be NULL.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_commit_sync(
    rd_kafka_share_t *rkshare, int timeout_ms, rd_kafka_topic_partition_list_t **partitions);

/**
 * Sets the callback for the results of acknowledgements; NULL removes it. Polls, commits, the close
 * and the destroy run it, in their thread.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_set_acknowledgement_commit_cb(
    rd_kafka_share_t *rkshare, rd_kafka_share_acknowledgement_commit_cb_t *cb, void *opaque);

/** The number of partitions. */
RD_EXPORT size_t rd_kafka_share_partition_offsets_list_count(
    const rd_kafka_share_partition_offsets_list_t *list);

/** The partition at this index, with its offsets; NULL if there is none. */
RD_EXPORT const rd_kafka_share_partition_offsets_t *rd_kafka_share_partition_offsets_list_get(
    const rd_kafka_share_partition_offsets_list_t *list, size_t index);

/** Destroys a list of the application; the list of a callback is not one. NULL has no effect. */
RD_EXPORT void rd_kafka_share_partition_offsets_list_destroy(
    rd_kafka_share_partition_offsets_list_t *list);

/** The partition. */
RD_EXPORT const rd_kafka_topic_partition_t *rd_kafka_share_partition_offsets_partition(
    const rd_kafka_share_partition_offsets_t *partition_offsets);

/** The offsets of its records. */
RD_EXPORT const int64_t *rd_kafka_share_partition_offsets_offsets(
    const rd_kafka_share_partition_offsets_t *partition_offsets);

/** The number of offsets. */
RD_EXPORT size_t rd_kafka_share_partition_offsets_offsets_cnt(
    const rd_kafka_share_partition_offsets_t *partition_offsets);

/**
 * Replaces the subscription, by names of topics; partitions have no effect. An empty list ends it.
 * RD_KAFKA_RESP_ERR__INVALID_ARG for a topic that is listed twice or whose name is not possible.
 */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_share_subscribe(
    rd_kafka_share_t *rkshare, const rd_kafka_topic_partition_list_t *topics);

/** Ends the subscription. Records that were delivered can still be acknowledged. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_share_unsubscribe(rd_kafka_share_t *rkshare);

/** Stores a new list of the subscribed topics, in order of their names. To be destroyed. */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_share_subscription(
    rd_kafka_share_t *rkshare, rd_kafka_topic_partition_list_t **topics);

/**
 * Sends explicit acknowledgements, releases all other records, leaves the group and waits for it, at
 * most for `socket.timeout.ms`. In implicit mode it does not accept the records of the last poll.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_consumer_close(rd_kafka_share_t *rkshare);

/**
 * Begins to close. Callbacks run in polls of `rkqu`, until rd_kafka_share_consumer_closed() returns
 * 1.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_consumer_close_queue(
    rd_kafka_share_t *rkshare, rd_kafka_queue_t *rkqu);

/** 1 if the share consumer is closed, else 0. */
RD_EXPORT int rd_kafka_share_consumer_closed(rd_kafka_share_t *rkshare);

/** Closes the share consumer if that was not done, and destroys it. */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_destroy(rd_kafka_share_t *rkshare);

/**
 * As rd_kafka_share_destroy(). With RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE it does not close: the
 * broker releases the records after their locks.
 */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_destroy_flags(rd_kafka_share_t *rkshare, int flags);

/* These functions can be called by any thread at any time. */

/** Sends log lines to this queue, with `log.queue`; NULL is the queue that polls serve. */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_set_log_queue(
    rd_kafka_share_t *rkshare, rd_kafka_queue_t *rkqu);

/** As rd_kafka_queue_get_sasl(). */
RD_EXPORT rd_kafka_queue_t *rd_kafka_share_queue_get_sasl(rd_kafka_share_t *rkshare);

/** As rd_kafka_sasl_background_callbacks_enable(). */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_sasl_background_callbacks_enable(
    rd_kafka_share_t *rkshare);

/** As rd_kafka_sasl_set_credentials(). */
RD_EXPORT rd_kafka_error_t *rd_kafka_share_sasl_set_credentials(
    rd_kafka_share_t *rkshare, const char *username, const char *password);

/** As rd_kafka_oauthbearer_set_token(). */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_share_oauthbearer_set_token(
    rd_kafka_share_t *rkshare, const char *token_value, int64_t md_lifetime_ms,
    const char *md_principal_name, const char **extensions, size_t extension_size, char *errstr,
    size_t errstr_size);

/** As rd_kafka_oauthbearer_set_token_failure(). */
RD_EXPORT rd_kafka_resp_err_t rd_kafka_share_oauthbearer_set_token_failure(
    rd_kafka_share_t *rkshare, const char *errstr);

#ifdef __cplusplus
}
#endif

#endif
