/*
 * How fast messages go to a topic and come from it, on librdkafka's C interface.
 *
 *     rdkafka_performance -P -t TOPIC [-p PARTITION] [-b BROKERS] [-s SIZE] [-c COUNT] [-m TEXT] [-S FIRST] [-a ACKS]
 *                         [-z CODEC] [-X NAME=VALUE]...
 *     rdkafka_performance -C -t TOPIC [-p PARTITION] [-b BROKERS] [-c COUNT] [-o OFFSET] [-e] [-X NAME=VALUE]...
 *     rdkafka_performance -G GROUP -t TOPIC [-b BROKERS] [-c COUNT] [-e] [-X NAME=VALUE]...
 *
 * The last line says how many messages and bytes went in how long.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <librdkafka/rdkafka.h>

enum mode { NONE, PRODUCE, CONSUME, GROUP };

struct options {
  enum mode mode;
  const char *topic;
  const char *group;
  int32_t partition;
  size_t size;
  int64_t count; /* -1: until interrupted, or the end with -e */
  const char *text;
  int numbered;
  uint64_t first;
  int64_t offset;
  int ends;
  rd_kafka_conf_t *conf;
};

struct tally {
  int64_t messages;
  int64_t bytes;
  int64_t failed;
  int64_t started_us;
  int64_t ended_us;
  rd_kafka_resp_err_t last_error;
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

static int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void fail(const char *what, const char *why) {
  fprintf(stderr, "%% %s: %s\n", what, why);
  exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
  char why[512];
  if (rd_kafka_conf_set(conf, name, value, why, sizeof(why)) != RD_KAFKA_CONF_OK)
    fail("configuration", why);
}

static const char *compression(const rd_kafka_conf_t *conf) {
  static char codec[32] = "none";
  size_t size           = sizeof(codec);
  rd_kafka_conf_get(conf, "compression.codec", codec, &size);
  return strcmp(codec, "none") == 0 ? "no" : codec;
}

static void summarise(const struct tally *tally, const char *verb, const char *codec) {
  int64_t us = tally->ended_us - tally->started_us;
  if (us < 1)
    us = 1;
  printf("%% %" PRId64 " messages and %" PRId64 " bytes %s in %" PRId64 "ms: %.0f msgs/s and %.2f Mb/s, %" PRId64
         " messages failed, %s compression\n",
         tally->messages, tally->bytes, verb, us / 1000, (double)tally->messages * 1e6 / (double)us,
         (double)tally->bytes / (double)us, tally->failed, codec);
  if (tally->failed > 0)
    fprintf(stderr, "%% the last failure: %s\n", rd_kafka_err2str(tally->last_error));
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
  struct tally *tally = opaque;
  (void)rk;
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    tally->failed++;
    tally->last_error = message->err;
    return;
  }
  tally->messages++;
  tally->bytes += (int64_t)message->len;
  tally->ended_us = now_us();
}

/* `size` bytes, made of the text again and again. */
static char *payload_of(const struct options *options) {
  size_t length = strlen(options->text);
  char *payload = malloc(options->size + 1);
  for (size_t i = 0; i < options->size; i++)
    payload[i] = options->text[i % length];
  return payload;
}

/* The number at the front, as far as there is room. */
static void number(char *payload, size_t size, uint64_t sequence) {
  char text[32];
  int length = snprintf(text, sizeof(text), "%" PRIu64 ": ", sequence);
  memcpy(payload, text, (size_t)length < size ? (size_t)length : size);
}

static int produce(const struct options *options) {
  struct tally tally = {0};
  char why[512];
  const char *codec = compression(options->conf);
  rd_kafka_conf_set_dr_msg_cb(options->conf, delivered);
  rd_kafka_conf_set_opaque(options->conf, &tally);
  rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, options->conf, why, sizeof(why));
  if (rk == NULL)
    fail("producer", why);
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options->topic, NULL);
  if (topic == NULL)
    fail(options->topic, rd_kafka_err2str(rd_kafka_last_error()));

  char *payload = payload_of(options);
  /* A payload that stays as it is need not be copied. */
  int flags        = options->numbered ? RD_KAFKA_MSG_F_COPY : 0;
  tally.started_us = tally.ended_us = now_us();
  for (int64_t n = 0; n != options->count && !interrupted; n++) {
    if (options->numbered)
      number(payload, options->size, options->first + (uint64_t)n);
    while (rd_kafka_produce(topic, options->partition, flags, payload, options->size, NULL, 0, NULL) == -1) {
      if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        tally.failed++;
        tally.last_error = rd_kafka_last_error();
        break;
      }
      rd_kafka_poll(rk, 10);
    }
    if (n % 1000 == 0)
      rd_kafka_poll(rk, 0);
  }
  while (rd_kafka_flush(rk, 500) == RD_KAFKA_RESP_ERR__TIMED_OUT && !interrupted)
    continue;
  summarise(&tally, "sent", codec);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
  free(payload);
  return tally.failed > 0;
}

static void received(struct tally *tally, const rd_kafka_message_t *message, int *partitions_left) {
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
    --*partitions_left;
    return;
  }
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    tally->failed++;
    tally->last_error = message->err;
    fprintf(stderr, "%% %s\n", rd_kafka_message_errstr(message));
    return;
  }
  if (tally->messages == 0)
    tally->started_us = now_us();
  tally->messages++;
  tally->bytes += (int64_t)message->len;
  tally->ended_us = now_us();
}

static int more(const struct options *options, const struct tally *tally, int partitions_left) {
  return !interrupted && tally->messages != options->count && (!options->ends || partitions_left > 0);
}

/* Returns the number of partitions of the topic. */
static int partition_count(rd_kafka_t *rk, rd_kafka_topic_t *topic) {
  const struct rd_kafka_metadata *metadata;
  rd_kafka_resp_err_t err = rd_kafka_metadata(rk, 0, topic, &metadata, 10000);
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
    fail("metadata", rd_kafka_err2str(err));
  int count = metadata->topic_cnt == 1 ? metadata->topics[0].partition_cnt : 0;
  if (count == 0)
    fail("metadata", metadata->topic_cnt == 1 ? rd_kafka_err2str(metadata->topics[0].err) : "no such topic");
  rd_kafka_metadata_destroy(metadata);
  return count;
}

static int consume(const struct options *options) {
  enum { BATCH = 1000 };
  static rd_kafka_message_t *batch[BATCH];
  struct tally tally = {0};
  char why[512];
  rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, options->conf, why, sizeof(why));
  if (rk == NULL)
    fail("consumer", why);
  rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options->topic, NULL);
  rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
  int32_t first           = options->partition == RD_KAFKA_PARTITION_UA ? 0 : options->partition;
  int32_t partitions      = options->partition == RD_KAFKA_PARTITION_UA ? partition_count(rk, topic) : 1;
  int partitions_left     = partitions;
  for (int32_t partition = first; partition < first + partitions; partition++)
    if (rd_kafka_consume_start_queue(topic, partition, options->offset, queue) == -1)
      fail("start", rd_kafka_err2str(rd_kafka_last_error()));

  while (more(options, &tally, partitions_left)) {
    ssize_t got = rd_kafka_consume_batch_queue(queue, 100, batch, BATCH);
    for (ssize_t i = 0; i < got; i++) {
      if (more(options, &tally, partitions_left))
        received(&tally, batch[i], &partitions_left);
      rd_kafka_message_destroy(batch[i]);
    }
    rd_kafka_poll(rk, 0);
  }
  summarise(&tally, "received", "no");
  for (int32_t partition = first; partition < first + partitions; partition++)
    rd_kafka_consume_stop(topic, partition);
  rd_kafka_queue_destroy(queue);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
  return tally.failed > 0;
}

static int consume_in_group(const struct options *options) {
  struct tally tally = {0};
  char why[512];
  set(options->conf, "group.id", options->group);
  rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, options->conf, why, sizeof(why));
  if (rk == NULL)
    fail("consumer", why);
  rd_kafka_poll_set_consumer(rk);
  rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, options->topic, RD_KAFKA_PARTITION_UA);
  rd_kafka_resp_err_t err = rd_kafka_subscribe(rk, topics);
  rd_kafka_topic_partition_list_destroy(topics);
  if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
    fail("subscribe", rd_kafka_err2str(err));

  /* Known once there is an assignment; until then, one is left. */
  int partitions_left = 1, counted = 0;
  while (more(options, &tally, partitions_left)) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, 100);
    if (message == NULL)
      continue;
    if (!counted) {
      rd_kafka_topic_partition_list_t *assigned;
      if (rd_kafka_assignment(rk, &assigned) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        partitions_left = assigned->cnt;
        counted         = assigned->cnt > 0;
        rd_kafka_topic_partition_list_destroy(assigned);
      }
    }
    received(&tally, message, &partitions_left);
    rd_kafka_message_destroy(message);
  }
  summarise(&tally, "received", "no");
  rd_kafka_consumer_close(rk);
  rd_kafka_destroy(rk);
  return tally.failed > 0;
}

static void acknowledgements(rd_kafka_conf_t *conf, const char *value) {
  long acks = strtol(value, NULL, 10);
  if (acks > 1 || acks < -1) {
    fprintf(stderr,
            "%% -a %s: brokers have taken no other numbers than 0, 1 and -1 since Kafka 0.9, and refuse this one.\n"
            "%% Use -a -1: every replica that is in sync.\n",
            value);
    exit(2);
  }
  set(conf, "request.required.acks", value);
}

static int64_t offset_of(const char *value) {
  if (strcmp(value, "beginning") == 0)
    return RD_KAFKA_OFFSET_BEGINNING;
  if (strcmp(value, "end") == 0)
    return RD_KAFKA_OFFSET_END;
  if (strcmp(value, "stored") == 0)
    return RD_KAFKA_OFFSET_STORED;
  int64_t number = strtoll(value, NULL, 10);
  return number < 0 ? RD_KAFKA_OFFSET_TAIL(-number) : number;
}

static void property(rd_kafka_conf_t *conf, char *pair) {
  char *equals = strchr(pair, '=');
  if (equals == NULL)
    fail(pair, "-X takes NAME=VALUE");
  *equals = '\0';
  set(conf, pair, equals + 1);
}

static void usage(void) {
  fprintf(stderr,
          "usage: rdkafka_performance -P|-C|-G GROUP -t TOPIC [options]\n"
          "  -P           produce\n"
          "  -C           consume, with the simple consumer\n"
          "  -G GROUP     consume, as a member of the group\n"
          "  -t TOPIC\n"
          "  -p NUMBER    this partition alone (default: the partitioner's choice, or all)\n"
          "  -b BROKERS   host[:port],.. (default localhost:9092)\n"
          "  -s BYTES     size of each message (default 100)\n"
          "  -c COUNT     messages (default: until interrupted)\n"
          "  -m TEXT      what messages are made of\n"
          "  -S NUMBER    number the messages, from this one on\n"
          "  -a ACKS      0, 1, or -1 for all replicas in sync\n"
          "  -z CODEC     none, gzip, snappy, lz4, zstd\n"
          "  -o OFFSET    where -C begins: beginning (default), end, stored, a number, or -N before the end\n"
          "  -e           end where the partitions end\n"
          "  -X NAME=VALUE  any property\n"
          "librdkafka %s\n",
          rd_kafka_version_str());
  exit(2);
}

int main(int argc, char **argv) {
  struct options options = {.partition = RD_KAFKA_PARTITION_UA,
                            .size      = 100,
                            .count     = -1,
                            .text      = "rdkafka_performance ",
                            .offset    = RD_KAFKA_OFFSET_BEGINNING,
                            .conf      = rd_kafka_conf_new()};
  set(options.conf, "bootstrap.servers", "localhost:9092");
  int option;
  while ((option = getopt(argc, argv, "PCG:t:p:b:s:c:m:S:a:z:o:eX:")) != -1) {
    switch (option) {
      case 'P':
        options.mode = PRODUCE;
        /* The benchmark measures throughput, so batches may grow. */
        set(options.conf, "linger.ms", "50");
        break;
      case 'C': options.mode = CONSUME; break;
      case 'G': options.mode = GROUP; options.group = optarg; break;
      case 't': options.topic = optarg; break;
      case 'p': options.partition = (int32_t)strtol(optarg, NULL, 10); break;
      case 'b': set(options.conf, "bootstrap.servers", optarg); break;
      case 's': options.size = strtoul(optarg, NULL, 10); break;
      case 'c': options.count = strtoll(optarg, NULL, 10); break;
      case 'm': options.text = optarg; break;
      case 'S': options.numbered = 1; options.first = strtoull(optarg, NULL, 10); break;
      case 'a': acknowledgements(options.conf, optarg); break;
      case 'z': set(options.conf, "compression.codec", optarg); break;
      case 'o': options.offset = offset_of(optarg); break;
      case 'e': options.ends = 1; break;
      case 'X': property(options.conf, optarg); break;
      default: usage();
    }
  }
  if (options.mode == NONE || options.topic == NULL || optind != argc || *options.text == '\0')
    usage();
  if (options.mode != PRODUCE) {
    set(options.conf, "enable.partition.eof", options.ends ? "true" : "false");
    set(options.conf, "auto.offset.reset", "earliest");
  }
  signal(SIGINT, interrupt);
  signal(SIGTERM, interrupt);
  switch (options.mode) {
    case PRODUCE: return produce(&options);
    case CONSUME: return consume(&options);
    default: return consume_in_group(&options);
  }
}
