/* The minimum cost of moving Kafka records over loopback, in plain C without any library.
 *
 * produce: records of format v2 are encoded into a batch, its CRC32C is computed, and it is written to a socket.
 * consume: a batch is read from a socket, its CRC32C is computed, and every record is visited.
 *
 * Only the working thread is measured (user and system time); another thread is the peer, which discards or repeats
 * data. There is no protocol, partition, acknowledgement or allocation: a client cannot do less.
 *
 *   cc -O2 -msse4.2 -pthread -o floor floor.c && ./floor [MESSAGES [BATCH_BYTES [VALUE_BYTES]]]
 *
 * The output is one line of JSON: nanoseconds of CPU time per message.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    POOL_BYTES = 16 << 20,
    /* Bytes from base offset to record count, and the position and start of the checksum. */
    HEADER_BYTES = 61,
    CRC_AT = 17,
    CRC_FROM = 21,
    /* Upper bound of a record's lengths and deltas. */
    RECORD_ROOM = 28,
};

static size_t value_bytes = 100;

struct batch {
    uint8_t *bytes;
    size_t length;
    size_t records;
};

struct peer {
    int socket;
    const struct batch *batch; /* what it sends; null when it only reads */
    size_t times;
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *allocate(size_t length) {
    void *memory = malloc(length);
    if (!memory) fail("malloc");
    memset(memory, 1, length); /* the first touch of a page is not what is measured */
    return memory;
}

static double thread_cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static uint32_t crc32c(const uint8_t *at, size_t length) {
    uint64_t state = UINT32_MAX;
    uint64_t word;
    while (length >= sizeof word) {
        memcpy(&word, at, sizeof word);
        state = _mm_crc32_u64(state, word);
        at += sizeof word;
        length -= sizeof word;
    }
    while (length--) state = _mm_crc32_u8((uint32_t)state, *at++);
    return ~(uint32_t)state;
}

static uint8_t *put_varint(uint8_t *to, int64_t number) {
    uint64_t zigzag = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    for (; zigzag > 127; zigzag >>= 7) *to++ = (uint8_t)(zigzag | 128);
    *to++ = (uint8_t)zigzag;
    return to;
}

static const uint8_t *take_varint(const uint8_t *from, int64_t *number) {
    uint64_t zigzag = *from & 127;
    for (unsigned shift = 7; *from++ & 128; shift += 7) zigzag |= (uint64_t)(*from & 127) << shift;
    *number = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
    return from;
}

/* length, attributes, timestamp delta, offset delta, no key, value, no headers */
static uint8_t *put_record(uint8_t *to, size_t index, const char *value) {
    uint8_t head[24];
    uint8_t *end = head;
    *end++ = 0;
    end = put_varint(end, (int64_t)(index / 64));
    end = put_varint(end, (int64_t)index);
    end = put_varint(end, -1);
    end = put_varint(end, (int64_t)value_bytes);
    size_t head_length = (size_t)(end - head);
    to = put_varint(to, (int64_t)(head_length + value_bytes + 1));
    memcpy(to, head, head_length);
    memcpy(to + head_length, value, value_bytes);
    to += head_length + value_bytes;
    *to++ = 0;
    return to;
}

/* Fills a batch with messages from number `first` on, at most `most` of them. */
static void fill(struct batch *batch, size_t room, const char *pool, size_t first, size_t most) {
    uint8_t *at = batch->bytes + HEADER_BYTES;
    size_t n = 0;
    while (n < most && at + value_bytes + RECORD_ROOM <= batch->bytes + room) {
        at = put_record(at, n, pool + (first + n) * value_bytes % (POOL_BYTES - value_bytes));
        n++;
    }
    batch->length = (size_t)(at - batch->bytes);
    batch->records = n;
    uint32_t crc = crc32c(batch->bytes + CRC_FROM, batch->length - CRC_FROM);
    memcpy(batch->bytes + CRC_AT, &crc, sizeof crc);
}

static void write_all(int socket, const uint8_t *from, size_t length) {
    while (length) {
        ssize_t n = write(socket, from, length);
        if (n <= 0) fail("write");
        from += n;
        length -= (size_t)n;
    }
}

static void read_all(int socket, uint8_t *to, size_t length) {
    while (length) {
        ssize_t n = read(socket, to, length);
        if (n <= 0) fail("read");
        to += n;
        length -= (size_t)n;
    }
}

static void *run_peer(void *argument) {
    const struct peer *peer = argument;
    if (peer->batch) {
        for (size_t i = 0; i < peer->times; i++) write_all(peer->socket, peer->batch->bytes, peer->batch->length);
        return NULL;
    }
    size_t room = 1 << 20;
    void *drain = allocate(room);
    while (read(peer->socket, drain, room) > 0) {}
    free(drain);
    return NULL;
}

static void connect_pair(int *ours, int *theirs) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, length) || listen(listener, 1)) fail("listen");
    if (getsockname(listener, (void *)&address, &length)) fail("getsockname");
    *ours = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(*ours, (void *)&address, length)) fail("connect");
    *theirs = accept(listener, NULL, NULL);
    if (*theirs < 0) fail("accept");
    close(listener);
    int on = 1;
    setsockopt(*ours, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static double produce(struct batch *batch, size_t room, const char *pool, size_t messages) {
    int ours;
    struct peer peer = {0};
    connect_pair(&ours, &peer.socket);
    pthread_t thread;
    pthread_create(&thread, NULL, run_peer, &peer);
    double before = thread_cpu_ns();
    for (size_t sent = 0; sent < messages; sent += batch->records) {
        fill(batch, room, pool, sent, messages - sent);
        write_all(ours, batch->bytes, batch->length);
    }
    double spent = thread_cpu_ns() - before;
    close(ours);
    pthread_join(thread, NULL);
    close(peer.socket);
    return spent / messages;
}

/* Visits every record like a consumer: all its fields, and the last byte of its value. */
static uint64_t visit(const uint8_t *bytes, size_t records) {
    const uint8_t *at = bytes + HEADER_BYTES;
    uint64_t seen = 0;
    for (size_t i = 0; i < records; i++) {
        int64_t length, timestamp, offset, key, value;
        at = take_varint(at, &length);
        const uint8_t *next = at + length;
        at = take_varint(at + 1, &timestamp);
        at = take_varint(at, &offset);
        at = take_varint(at, &key);
        if (key > 0) at += key;
        at = take_varint(at, &value);
        seen += (uint64_t)(timestamp + offset) + at[value - 1];
        at = next;
    }
    return seen;
}

static double consume(struct batch *batch, size_t room, const char *pool, size_t messages, uint64_t *seen) {
    int ours;
    fill(batch, room, pool, 0, SIZE_MAX);
    struct batch sent = *batch;
    sent.bytes = allocate(batch->length);
    memcpy(sent.bytes, batch->bytes, batch->length);
    struct peer peer = {.batch = &sent, .times = (messages + batch->records - 1) / batch->records};
    connect_pair(&ours, &peer.socket);
    pthread_t thread;
    pthread_create(&thread, NULL, run_peer, &peer);
    double before = thread_cpu_ns();
    for (size_t i = 0; i < peer.times; i++) {
        read_all(ours, batch->bytes, batch->length);
        uint32_t expected;
        memcpy(&expected, batch->bytes + CRC_AT, sizeof expected);
        if (crc32c(batch->bytes + CRC_FROM, batch->length - CRC_FROM) != expected) fail("the checksum");
        *seen += visit(batch->bytes, batch->records);
    }
    double spent = thread_cpu_ns() - before;
    pthread_join(thread, NULL);
    close(ours);
    close(peer.socket);
    free(sent.bytes);
    return spent / ((double)peer.times * batch->records);
}

int main(int argc, char **argv) {
    size_t messages = argc > 1 ? strtoull(argv[1], NULL, 10) : 5000000;
    size_t room = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    if (argc > 3) value_bytes = strtoull(argv[3], NULL, 10);
    if (messages == 0 || value_bytes >= POOL_BYTES || room < HEADER_BYTES + value_bytes + RECORD_ROOM) {
        fprintf(stderr, "usage: floor [MESSAGES [BATCH_BYTES [VALUE_BYTES]]]\n");
        return 2;
    }
    char *pool = allocate(POOL_BYTES);
    for (size_t i = 0; i < POOL_BYTES; i++) pool[i] = (char)('a' + i * 2654435761u / 65536 % 26);
    struct batch batch = {.bytes = allocate(room)};
    uint64_t seen = 0;
    double produced = produce(&batch, room, pool, messages);
    double consumed = consume(&batch, room, pool, messages, &seen);
    printf("{\"messages\":%zu,\"batch_bytes\":%zu,\"produce_ns\":%.1f,\"consume_ns\":%.1f,\"seen\":%llu}\n", messages, room,
           produced, consumed, (unsigned long long)seen);
    return 0;
}
