/* librdkafka in `cargo xtask compare`: the cost of a message for a program that uses it.
 *
 *   librdkafka MODE --brokers LIST --topic NAME [--payload FILE] [--count N] [--warmup N] [--rate N] [--partitions N]
 *              [-X KEY=VALUE]...
 *
 * produce   at full speed: from the first rd_kafka_produce() to the last delivery report
 * latency   an open loop at --rate messages per second: from a message's due time to its delivery report
 * pingpong  produces and flushes one message at a time
 * consume   the topic from its beginning, in batches; consume-one one message per call; consume-legacy in batches of the
 *           simple consumer, and consume-callback with its callback, both from partition 0
 * e2e       like latency, but to the message's arrival at a consumer in the same process
 * subscribe --count times: from the creation of a consumer to its first message, as the only member of a new group
 * idle      threads and memory of an idle producer with metadata
 *
 * The payload file has one message per line, all of the same length. The output is one line of JSON with the fields
 * of `ottla bench ... --json`. Properties without -X keep librdkafka's defaults.
 *
 * Linked with the library inside confluent-kafka's wheel, which has no header: the functions used are declared here.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;

enum {
    RD_KAFKA_PRODUCER = 0,
    RD_KAFKA_CONSUMER = 1,
    RD_KAFKA_CONF_OK = 0,
    RD_KAFKA_PARTITION_UA = -1,
    RD_KAFKA_MSG_F_COPY = 2,
    RD_KAFKA_OFFSET_BEGINNING = -2,
    RD_KAFKA_ERR_QUEUE_FULL = -184,
};

const char *rd_kafka_version_str(void);
const char *rd_kafka_err2str(int err);
int rd_kafka_last_error(void);
rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *error, size_t error_bytes);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *error, size_t error_bytes);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *name, rd_kafka_topic_conf_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t partition, int flags, void *payload, size_t len, const void *key,
                     size_t key_len, void *opaque);
int rd_kafka_poll(rd_kafka_t *, int timeout_ms);
int rd_kafka_metadata(rd_kafka_t *, int all_topics, rd_kafka_topic_t *only, const void **metadata, int timeout_ms);
int rd_kafka_flush(rd_kafka_t *, int timeout_ms);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);
void *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *topic, int32_t partition);
int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *topic, int32_t partition,
                                             int64_t offset);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t most);
rd_kafka_message_t *rd_kafka_consumer_poll(rd_kafka_t *, int timeout_ms);
void rd_kafka_message_destroy(rd_kafka_message_t *);
int rd_kafka_query_watermark_offsets(rd_kafka_t *, const char *topic, int32_t partition, int64_t *low, int64_t *high,
                                     int timeout_ms);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
int rd_kafka_subscribe(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
int rd_kafka_consumer_close(rd_kafka_t *);
void rd_kafka_destroy(rd_kafka_t *);
int rd_kafka_consume_start(rd_kafka_topic_t *, int32_t partition, int64_t offset);
ssize_t rd_kafka_consume_batch(rd_kafka_topic_t *, int32_t partition, int timeout_ms, rd_kafka_message_t **, size_t most);
int rd_kafka_consume_callback(rd_kafka_topic_t *, int32_t partition, int timeout_ms,
                              void (*)(rd_kafka_message_t *, void *), void *opaque);

enum {
    /* Interval, in messages, of taking delivery reports, as in Ottla's benchmark. */
    STRIDE = 256,
    CONSUMED_AT_ONCE = 1000,
    PROPERTIES_MAX = 64,
    FLUSH_MS = 120000,
    SILENCE_MS = 10000,
    /* Each message begins with its due time and its number. */
    STAMP_BYTES = 16,
    /* Longer waits sleep; shorter ones spin. */
    SPIN_NS = 80000,
};

struct options {
    const char *mode, *brokers, *topic, *payload;
    uint64_t count, warmup, rate;
    int partitions;
    const char *properties[PROPERTIES_MAX];
    size_t property_count;
};

struct pool {
    char *bytes;
    size_t size, messages;
};

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "librdkafka: %s: %s\n", what, why);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) fail("memory", "none left");
    return memory;
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t cpu_ns(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    uint64_t seconds = (uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec;
    return seconds * 1000000000u + ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000u;
}

static uint64_t number(const char *name, const char *text) {
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*text == 0 || *end != 0) fail(name, "not a number");
    return value;
}

static struct options parse(int argc, char **argv) {
    struct options options = {.count = 1000000, .rate = 1000, .partitions = 1};
    if (argc < 2) fail("usage", "librdkafka MODE --brokers LIST --topic NAME ...");
    options.mode = argv[1];
    for (int i = 2; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value) fail(name, "needs a value");
        if (!strcmp(name, "--brokers")) options.brokers = value;
        else if (!strcmp(name, "--topic")) options.topic = value;
        else if (!strcmp(name, "--payload")) options.payload = value;
        else if (!strcmp(name, "--count")) options.count = number(name, value);
        else if (!strcmp(name, "--warmup")) options.warmup = number(name, value);
        else if (!strcmp(name, "--rate")) options.rate = number(name, value);
        else if (!strcmp(name, "--partitions")) options.partitions = (int)number(name, value);
        else if (!strcmp(name, "-X") && options.property_count < PROPERTIES_MAX)
            options.properties[options.property_count++] = value;
        else fail(name, "not an option, or one too many");
    }
    if (!options.brokers || !options.topic) fail("usage", "--brokers and --topic are needed");
    return options;
}

/* One message per line; the newlines are removed, so that the messages are adjacent. */
static struct pool read_pool(const char *path) {
    if (!path) fail("--payload", "is needed to produce");
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail(path, "cannot be read");
    long length = ftell(file);
    rewind(file);
    struct pool pool = {.bytes = allocate((size_t)length + 1)};
    if (fread(pool.bytes, 1, (size_t)length, file) != (size_t)length) fail(path, "cannot be read");
    fclose(file);
    char *to = pool.bytes, *from = pool.bytes, *end = pool.bytes + length;
    while (from < end) {
        char *newline = memchr(from, '\n', (size_t)(end - from));
        size_t size = (size_t)((newline ? newline : end) - from);
        if (pool.size == 0) pool.size = size;
        if (size != pool.size || size == 0) fail(path, "its lines are not all of the same length");
        memmove(to, from, size);
        to += size;
        from += size + 1;
        pool.messages++;
    }
    if (pool.messages == 0) fail(path, "is empty");
    return pool;
}

static char *message(const struct pool *pool, uint64_t n) { return pool->bytes + n % pool->messages * pool->size; }

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) fail(name, error);
}

static rd_kafka_t *client(const struct options *options, int type, rd_kafka_conf_t *conf) {
    set(conf, "bootstrap.servers", options->brokers);
    for (size_t i = 0; i < options->property_count; i++) {
        char name[256];
        const char *value = strchr(options->properties[i], '=');
        if (!value || (size_t)(value - options->properties[i]) >= sizeof name) fail("-X", options->properties[i]);
        snprintf(name, sizeof name, "%.*s", (int)(value - options->properties[i]), options->properties[i]);
        set(conf, name, value + 1);
    }
    char error[512];
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) fail("rd_kafka_new", error);
    return client;
}

struct phase {
    uint64_t wall, cpu, began;
};

static struct phase begin(void) {
    return (struct phase){.cpu = cpu_ns(), .began = clock_ns(CLOCK_REALTIME), .wall = clock_ns(CLOCK_MONOTONIC)};
}

static int by_value(const void *a, const void *b) {
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

/* `latencies`, described by `what`, may be NULL; they are sorted. */
static void report(struct phase phase, uint64_t messages, uint64_t bytes, uint64_t errors, const char *what,
                   uint64_t *latencies) {
    uint64_t wall = clock_ns(CLOCK_MONOTONIC) - phase.wall, cpu = cpu_ns() - phase.cpu;
    double seconds = (double)wall / 1e9;
    printf("{\"version\":\"librdkafka %s\",\"messages\":%llu,\"bytes\":%llu,\"errors\":%llu,\"wall_s\":%.6f,"
           "\"msgs_per_s\":%.0f,\"mb_per_s\":%.3f,\"cpu_ns_per_msg\":%.1f,\"began_s\":%.6f,\"ended_s\":%.6f",
           rd_kafka_version_str(), (unsigned long long)messages, (unsigned long long)bytes, (unsigned long long)errors,
           seconds, (double)messages / seconds, (double)bytes / 1e6 / seconds, (double)cpu / (double)messages,
           (double)phase.began / 1e9, (double)phase.began / 1e9 + seconds);
    if (latencies) {
        qsort(latencies, messages, sizeof *latencies, by_value);
        const struct {
            const char *name;
            double quantile;
        } at[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99_9", 0.999}, {"max", 1}};
        printf(",\"%s\":{", what);
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            double place = at[i].quantile * (double)messages;
            size_t index = place < (double)messages ? (size_t)place : messages - 1;
            printf("%s\"%s\":%.2f", i ? "," : "", at[i].name, (double)latencies[index] / 1e3);
        }
        printf("}");
    }
    printf("}\n");
    fflush(stdout);
    if (errors) fail("delivery reports", "some had errors");
    /* Destroying the client is not measured, and may wait for brokers. */
    _Exit(0);
}

/* Totals of the delivery reports. The message's opaque is its number plus one if latencies are measured. */
static struct {
    _Atomic uint64_t done, errors;
    uint64_t *due_ns, *latency_ns;
} reports;

static void on_report(rd_kafka_t *producer, const rd_kafka_message_t *report, void *opaque) {
    (void)producer, (void)opaque;
    /* A single thread polls: no atomic addition is needed. */
    uint64_t *latency_ns = reports.latency_ns;
    if (latency_ns && report->opaque) {
        size_t index = (size_t)(uintptr_t)report->opaque - 1;
        latency_ns[index] = clock_ns(CLOCK_MONOTONIC) - reports.due_ns[index];
    }
    if (report->err) {
        atomic_store_explicit(&reports.errors, atomic_load_explicit(&reports.errors, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        fprintf(stderr, "librdkafka: delivery: %s\n", rd_kafka_err2str(report->err));
    }
    atomic_store_explicit(&reports.done, atomic_load_explicit(&reports.done, memory_order_relaxed) + 1,
                          memory_order_release);
}

static void produce_one(rd_kafka_t *producer, rd_kafka_topic_t *topic, char *payload, size_t size, uint64_t opaque) {
    while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0,
                            (void *)(uintptr_t)opaque)) {
        if (rd_kafka_last_error() != RD_KAFKA_ERR_QUEUE_FULL) {
            fail("rd_kafka_produce", rd_kafka_err2str(rd_kafka_last_error()));
        }
        rd_kafka_poll(producer, 100);
    }
}

static void flush(rd_kafka_t *producer) {
    int err = rd_kafka_flush(producer, FLUSH_MS);
    if (err) fail("rd_kafka_flush", rd_kafka_err2str(err));
}

static void produce(rd_kafka_t *producer, rd_kafka_topic_t *topic, const struct pool *pool, uint64_t from,
                    uint64_t count) {
    char *next = message(pool, from), *end = pool->bytes + pool->messages * pool->size;
    for (uint64_t sent = 0; sent < count; sent++) {
        produce_one(producer, topic, next, pool->size, 0);
        next += pool->size;
        if (next == end) next = pool->bytes;
        if (sent % STRIDE == STRIDE - 1) rd_kafka_poll(producer, 0);
    }
    flush(producer);
}

static _Noreturn void *poll_forever(void *producer) {
    for (;;) rd_kafka_poll(producer, 100);
}

static void sleep_until(uint64_t due) {
    for (;;) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        if (now >= due) return;
        if (due - now > SPIN_NS) {
            uint64_t until = due - SPIN_NS;
            struct timespec at = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        }
    }
}

static void await(_Atomic uint64_t *counted, uint64_t count, const char *what) {
    uint64_t deadline = clock_ns(CLOCK_MONOTONIC) + (uint64_t)FLUSH_MS * 1000000u;
    while (atomic_load_explicit(counted, memory_order_acquire) < count) {
        if (clock_ns(CLOCK_MONOTONIC) > deadline) fail(what, "some did not come");
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
}

static void open_loop(rd_kafka_t *producer, rd_kafka_topic_t *topic, const struct pool *pool, uint64_t from,
                      uint64_t count, uint64_t rate) {
    uint64_t base = clock_ns(CLOCK_MONOTONIC), before = reports.done;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t due = base + i * 1000000000u / rate;
        sleep_until(due);
        reports.due_ns[i] = due;
        produce_one(producer, topic, message(pool, from + i), pool->size, i + 1);
    }
    await(&reports.done, before + count, "delivery reports");
}

static void ping_pong(rd_kafka_t *producer, rd_kafka_topic_t *topic, const struct pool *pool, uint64_t from,
                      uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        reports.due_ns[i] = clock_ns(CLOCK_MONOTONIC);
        produce_one(producer, topic, message(pool, from + i), pool->size, i + 1);
        flush(producer);
    }
}

static void run_producer(const struct options *options) {
    struct pool pool = read_pool(options->payload);
    uint64_t most = options->count > options->warmup ? options->count : options->warmup;
    int one_by_one = strcmp(options->mode, "produce") != 0;
    if (one_by_one) {
        reports.due_ns = allocate(most * sizeof(uint64_t));
        reports.latency_ns = allocate(most * sizeof(uint64_t));
    }
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_t *producer = client(options, RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, options->topic, NULL);
    if (!topic) fail("rd_kafka_topic_new", rd_kafka_err2str(rd_kafka_last_error()));

    int open = !strcmp(options->mode, "latency");
    if (open) {
        pthread_t poller;
        if (pthread_create(&poller, NULL, poll_forever, producer)) fail("pthread_create", "no thread");
    }
    struct phase phase = begin();
    for (int measured = 0; measured < 2; measured++) {
        uint64_t from = measured ? options->warmup : 0, count = measured ? options->count : options->warmup;
        if (measured) phase = begin();
        if (open) open_loop(producer, topic, &pool, from, count, options->rate);
        else if (one_by_one) ping_pong(producer, topic, &pool, from, count);
        else produce(producer, topic, &pool, from, count);
    }
    if (reports.done != options->warmup + options->count) fail("delivery reports", "some did not come");
    report(phase, options->count, options->count * pool.size, reports.errors, "ack_us", reports.latency_ns);
}

/* Totals of a consumer. */
struct seen {
    uint64_t messages, bytes, sum;
};

static void look_at(const rd_kafka_message_t *one, struct seen *seen) {
    if (one->err) fail("consume", rd_kafka_err2str(one->err));
    const unsigned char *value = one->payload;
    if (one->len) seen->sum += value[0] + (uint64_t)value[one->len - 1];
    seen->bytes += one->len;
    seen->messages++;
}

static void look_at_all(rd_kafka_message_t **batch, ssize_t length, struct seen *seen) {
    if (length <= 0) fail("consume", "nothing came for 10 s");
    for (ssize_t i = 0; i < length; i++) {
        look_at(batch[i], seen);
        rd_kafka_message_destroy(batch[i]);
    }
}

static void on_message(rd_kafka_message_t *one, void *seen) { look_at(one, seen); }

/* The source of messages; unused members are NULL. */
struct source {
    rd_kafka_t *consumer;
    rd_kafka_queue_t *queue;
    rd_kafka_topic_t *topic;
    void (*read)(struct source *, size_t most, struct seen *);
};

static void read_batch(struct source *source, size_t most, struct seen *seen) {
    rd_kafka_message_t *batch[CONSUMED_AT_ONCE];
    look_at_all(batch, rd_kafka_consume_batch_queue(source->queue, SILENCE_MS, batch, most), seen);
}

static void read_one(struct source *source, size_t most, struct seen *seen) {
    (void)most;
    rd_kafka_message_t *one = rd_kafka_consumer_poll(source->consumer, SILENCE_MS);
    look_at_all(&one, one ? 1 : 0, seen);
}

static void read_legacy(struct source *source, size_t most, struct seen *seen) {
    rd_kafka_message_t *batch[CONSUMED_AT_ONCE];
    look_at_all(batch, rd_kafka_consume_batch(source->topic, 0, SILENCE_MS, batch, most), seen);
}

/* Returns all messages of the local queue, which may be more than requested. */
static void read_by_callback(struct source *source, size_t most, struct seen *seen) {
    (void)most;
    if (rd_kafka_consume_callback(source->topic, 0, SILENCE_MS, on_message, seen) <= 0)
        fail("consume", "nothing came for 10 s");
}

static struct seen consume(struct source *source, uint64_t count) {
    struct seen seen = {0};
    while (seen.messages < count) {
        uint64_t left = count - seen.messages;
        source->read(source, left < CONSUMED_AT_ONCE ? (size_t)left : CONSUMED_AT_ONCE, &seen);
    }
    return seen;
}

static rd_kafka_t *new_consumer(const struct options *options, const char *group) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", group);
    set(conf, "enable.auto.commit", "false");
    set(conf, "auto.offset.reset", "earliest");
    return client(options, RD_KAFKA_CONSUMER, conf);
}

/* Assigns all partitions, from their beginnings or their ends. assign() requires a group id; no offset is committed. */
static rd_kafka_t *assigned(const struct options *options, int at_end) {
    rd_kafka_t *consumer = new_consumer(options, "compare");
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(options->partitions);
    for (int32_t partition = 0; partition < options->partitions; partition++) {
        int64_t low, offset = RD_KAFKA_OFFSET_BEGINNING;
        int err = at_end ? rd_kafka_query_watermark_offsets(consumer, options->topic, partition, &low, &offset, SILENCE_MS)
                         : 0;
        if (err) fail("rd_kafka_query_watermark_offsets", rd_kafka_err2str(err));
        rd_kafka_topic_partition_list_add(all, options->topic, partition);
        rd_kafka_topic_partition_list_set_offset(all, options->topic, partition, offset);
    }
    int err = rd_kafka_assign(consumer, all);
    if (err) fail("rd_kafka_assign", rd_kafka_err2str(err));
    return consumer;
}

static struct source simple(const struct options *options) {
    if (options->partitions != 1) fail(options->mode, "reads one partition");
    struct source source = {.consumer = new_consumer(options, "compare")};
    source.topic = rd_kafka_topic_new(source.consumer, options->topic, NULL);
    if (!source.topic || rd_kafka_consume_start(source.topic, 0, RD_KAFKA_OFFSET_BEGINNING))
        fail("rd_kafka_consume_start", rd_kafka_err2str(rd_kafka_last_error()));
    return source;
}

static void run_consumer(const struct options *options) {
    int by_callback = !strcmp(options->mode, "consume-callback");
    int one_by_one = !strcmp(options->mode, "consume-one");
    struct source source;
    if (by_callback || !strcmp(options->mode, "consume-legacy")) {
        source = simple(options);
        source.read = by_callback ? read_by_callback : read_legacy;
    } else {
        source = (struct source){.consumer = assigned(options, 0)};
        source.read = one_by_one ? read_one : read_batch;
        if (!one_by_one) source.queue = rd_kafka_queue_get_consumer(source.consumer);
    }
    /* Messages that the warm-up consumed in excess cannot be measured. */
    uint64_t early = consume(&source, options->warmup).messages - options->warmup;
    if (early >= options->count) fail("--count", "the warm-up has read it all");
    struct phase phase = begin();
    struct seen seen = consume(&source, options->count - early);
    if (seen.sum == 0) fail("consume", "only empty messages came");
    report(phase, seen.messages, seen.bytes, 0, NULL, NULL);
}

/* Totals of the end-to-end mode's consumer. */
static struct {
    rd_kafka_t *consumer;
    uint64_t count, *latency_ns;
    _Atomic uint64_t messages;
} ends;

static void *take_ends(void *unused) {
    (void)unused;
    for (uint64_t got = 0; got < ends.count;) {
        rd_kafka_message_t *one = rd_kafka_consumer_poll(ends.consumer, 200);
        if (!one) continue;
        uint64_t now = clock_ns(CLOCK_MONOTONIC), stamp[2];
        if (one->err) fail("consume", rd_kafka_err2str(one->err));
        if (one->len < STAMP_BYTES) fail("consume", "a message without a stamp");
        memcpy(stamp, one->payload, STAMP_BYTES);
        if (stamp[1] >= ends.count) fail("consume", "a message that was not sent");
        ends.latency_ns[stamp[1]] = now - stamp[0];
        rd_kafka_message_destroy(one);
        atomic_store_explicit(&ends.messages, ++got, memory_order_release);
    }
    return NULL;
}

static void send_stamped(rd_kafka_t *producer, rd_kafka_topic_t *topic, const struct pool *pool, uint64_t from,
                         uint64_t count, uint64_t rate) {
    char *body = allocate(pool->size);
    uint64_t base = clock_ns(CLOCK_MONOTONIC);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t stamp[2] = {base + i * 1000000000u / rate, from + i};
        sleep_until(stamp[0]);
        memcpy(body, message(pool, from + i), pool->size);
        memcpy(body, stamp, STAMP_BYTES);
        produce_one(producer, topic, body, pool->size, 0);
    }
    free(body);
    await(&ends.messages, from + count, "messages");
}

static void run_end_to_end(const struct options *options) {
    struct pool pool = read_pool(options->payload);
    if (pool.size < STAMP_BYTES) fail(options->payload, "its lines are too short for a stamp");
    ends.count = options->warmup + options->count;
    ends.latency_ns = allocate(ends.count * sizeof(uint64_t));
    ends.consumer = assigned(options, 1);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_t *producer = client(options, RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, options->topic, NULL);
    if (!topic) fail("rd_kafka_topic_new", rd_kafka_err2str(rd_kafka_last_error()));
    pthread_t poller, taker;
    if (pthread_create(&poller, NULL, poll_forever, producer) || pthread_create(&taker, NULL, take_ends, NULL))
        fail("pthread_create", "no thread");
    send_stamped(producer, topic, &pool, 0, options->warmup, options->rate);
    struct phase phase = begin();
    send_stamped(producer, topic, &pool, options->warmup, options->count, options->rate);
    report(phase, options->count, options->count * pool.size, reports.errors, "e2e_us", ends.latency_ns + options->warmup);
}

static uint64_t join(const struct options *options, const char *group) {
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, options->topic, RD_KAFKA_PARTITION_UA);
    uint64_t began = clock_ns(CLOCK_MONOTONIC), deadline = began + (uint64_t)FLUSH_MS * 1000000u;
    rd_kafka_t *consumer = new_consumer(options, group);
    rd_kafka_poll_set_consumer(consumer);
    int err = rd_kafka_subscribe(consumer, topics);
    if (err) fail("rd_kafka_subscribe", rd_kafka_err2str(err));
    rd_kafka_message_t *one = NULL;
    while (!one) {
        one = rd_kafka_consumer_poll(consumer, 1000);
        if (one && one->err) fail("consume", rd_kafka_err2str(one->err));
        if (clock_ns(CLOCK_MONOTONIC) > deadline) fail("subscribe", "no message came");
    }
    uint64_t latency = clock_ns(CLOCK_MONOTONIC) - began;
    rd_kafka_message_destroy(one);
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
    return latency;
}

static void run_subscriber(const struct options *options) {
    uint64_t *latency_ns = allocate(options->count * sizeof(uint64_t)), unique = clock_ns(CLOCK_REALTIME);
    struct phase phase = begin();
    for (uint64_t i = 0; i < options->warmup + options->count; i++) {
        if (i == options->warmup) phase = begin();
        char group[64];
        snprintf(group, sizeof group, "compare-%llu-%llu", (unsigned long long)unique, (unsigned long long)i);
        uint64_t latency = join(options, group);
        if (i >= options->warmup) latency_ns[i - options->warmup] = latency;
    }
    report(phase, options->count, 0, 0, "first_us", latency_ns);
}

static long status_of_process(const char *field) {
    char line[256];
    long value = -1;
    FILE *status = fopen("/proc/self/status", "r");
    if (!status) fail("/proc/self/status", "cannot be read");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, field, strlen(field))) value = strtol(line + strlen(field) + 1, NULL, 10);
    fclose(status);
    return value;
}

/* An idle producer with metadata. */
static void run_idle(const struct options *options) {
    rd_kafka_t *producer = client(options, RD_KAFKA_PRODUCER, rd_kafka_conf_new());
    const void *metadata = NULL;
    int err = rd_kafka_metadata(producer, 1, NULL, &metadata, SILENCE_MS);
    if (err) fail("rd_kafka_metadata", rd_kafka_err2str(err));
    int brokers = *(const int *)metadata;
    for (int i = 0; i < 20; i++) rd_kafka_poll(producer, 100);
    printf("{\"version\":\"librdkafka %s\",\"brokers\":%d,\"threads\":%ld,\"rss_kb\":%ld}\n", rd_kafka_version_str(),
           brokers, status_of_process("Threads:"), status_of_process("VmRSS:"));
    exit(0);
}

int main(int argc, char **argv) {
    struct options options = parse(argc, argv);
    const struct {
        const char *mode;
        void (*run)(const struct options *);
    } modes[] = {
        {"produce", run_producer},
        {"latency", run_producer},
        {"pingpong", run_producer},
        {"consume", run_consumer},
        {"consume-one", run_consumer},
        {"consume-legacy", run_consumer},
        {"consume-callback", run_consumer},
        {"e2e", run_end_to_end},
        {"subscribe", run_subscriber},
        {"idle", run_idle},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(options.mode, modes[i].mode)) modes[i].run(&options);
    fail(options.mode, "not a mode");
}
