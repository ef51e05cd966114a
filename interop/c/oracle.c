/*
 * Loads two libraries, makes the same calls on both, and prints their differences:
 *
 *     oracle REFERENCE OURS
 *
 * One line per difference, with tab-separated columns: the call, the reference's result, ours. The last line has counts.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <librdkafka/rdkafka.h>

/* The library under test. */
static void *library;

static void *symbol(const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  return found;
}

/* A function of the library, with its type from the header. */
#define RK(name) ((__typeof__(&name))symbol(#name))

struct answer {
  char *call;
  char *answer;
};

struct transcript {
  struct answer *answers;
  size_t count;
};

static struct transcript *current;

/* Records that `call` returned what `format` describes. */
static void note(const char *call, const char *format, ...) {
  char text[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  for (char *c = text; *c; c++)
    if (*c == '\t' || *c == '\n')
      *c = ' ';
  current->answers = realloc(current->answers, (current->count + 1) * sizeof(*current->answers));
  current->answers[current->count++] = (struct answer){strdup(call), strdup(text)};
}

static const char *shown(const char *string) {
  return string != NULL ? string : "(null)";
}

static char *called(const char *format, ...) {
  static char text[4][1024];
  static int next;
  char *into = text[next++ % 4];
  va_list args;
  va_start(args, format);
  vsnprintf(into, sizeof(text[0]), format, args);
  va_end(args);
  return into;
}

static void errors(void) {
  const struct rd_kafka_err_desc *descriptions;
  size_t count;
  RK(rd_kafka_get_err_descs)(&descriptions, &count);
  for (size_t i = 0; i < count; i++)
    if (descriptions[i].name != NULL)
      note(called("err_desc %d", descriptions[i].code), "%s: %s", descriptions[i].name, shown(descriptions[i].desc));
  for (int code = -250; code < 200; code++) {
    rd_kafka_resp_err_t err = (rd_kafka_resp_err_t)code;
    note(called("err2name %d", code), "%s", shown(RK(rd_kafka_err2name)(err)));
    note(called("err2str %d", code), "%s", shown(RK(rd_kafka_err2str)(err)));
  }
  static const int numbers[] = {0, ETIMEDOUT, EINVAL, ENOENT, ENOTCONN, ECONNRESET, ENOBUFS, ESRCH, ERANGE, EEXIST, 9999};
  for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
    note(called("errno2err %d", numbers[i]), "%d", RK(rd_kafka_errno2err)(numbers[i]));

  static const int codes[] = {RD_KAFKA_RESP_ERR__QUEUE_FULL, RD_KAFKA_RESP_ERR__FATAL, RD_KAFKA_RESP_ERR_NO_ERROR, 3, 7777};
  for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
    rd_kafka_error_t *plain = RK(rd_kafka_error_new)((rd_kafka_resp_err_t)codes[i], NULL);
    rd_kafka_error_t *said  = RK(rd_kafka_error_new)((rd_kafka_resp_err_t)codes[i], "no %s for %d", "room", 7);
    for (int has_text = 0; has_text < 2; has_text++) {
      const rd_kafka_error_t *error = has_text ? said : plain;
      note(called("error %d %d", codes[i], has_text), "%d %s '%s' fatal %d retriable %d abort %d",
           RK(rd_kafka_error_code)(error), shown(RK(rd_kafka_error_name)(error)),
           shown(RK(rd_kafka_error_string)(error)), RK(rd_kafka_error_is_fatal)(error),
           RK(rd_kafka_error_is_retriable)(error), RK(rd_kafka_error_txn_requires_abort)(error));
    }
    RK(rd_kafka_error_destroy)(plain);
    RK(rd_kafka_error_destroy)(said);
  }
  note("error NULL", "%d '%s' %d", RK(rd_kafka_error_code)(NULL), shown(RK(rd_kafka_error_string)(NULL)),
       RK(rd_kafka_error_is_fatal)(NULL));
}

/* The reference's property names, including aliases: the first column of its own table. */
static char **names;
static size_t name_count;

static void read_names(void) {
  char *text;
  size_t size;
  FILE *table = open_memstream(&text, &size);
  RK(rd_kafka_conf_properties_show)(table);
  fclose(table);
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    char name[128];
    if (strstr(line, " | ") == NULL || sscanf(line, "%127[a-z0-9._A-Z]", name) != 1 || strcmp(name, "Property") == 0)
      continue;
    names               = realloc(names, (name_count + 1) * sizeof(*names));
    names[name_count++] = strdup(name);
  }
  free(text);
}

/* Function addresses depend on where the library was loaded. */
static const char *portable(const char *value) {
  return strncmp(value, "0x", 2) == 0 ? "(pointer)" : value;
}

static void dump(const char *what, const char **pairs, size_t count) {
  for (size_t i = 0; i + 1 < count; i += 2)
    note(called("%s %s", what, pairs[i]), "%s", portable(shown(pairs[i + 1])));
  RK(rd_kafka_conf_dump_free)(pairs, count);
}

static void defaults(void) {
  rd_kafka_conf_t *conf        = RK(rd_kafka_conf_new)();
  rd_kafka_topic_conf_t *topic = RK(rd_kafka_topic_conf_new)();
  size_t count;
  const char **pairs = RK(rd_kafka_conf_dump)(conf, &count);
  dump("dump", pairs, count);
  pairs = RK(rd_kafka_topic_conf_dump)(topic, &count);
  dump("topic dump", pairs, count);
  for (size_t i = 0; i < name_count; i++) {
    char value[2048] = "(none)";
    size_t size      = sizeof(value);
    rd_kafka_conf_res_t res = RK(rd_kafka_conf_get)(conf, names[i], value, &size);
    note(called("get %s", names[i]), "%d %s", res, portable(value));
    strcpy(value, "(none)");
    size = sizeof(value);
    res  = RK(rd_kafka_topic_conf_get)(topic, names[i], value, &size);
    note(called("topic get %s", names[i]), "%d %s", res, portable(value));
  }
  RK(rd_kafka_conf_destroy)(conf);
  RK(rd_kafka_topic_conf_destroy)(topic);
}

/* With a refusal its text. */
static void set(const char *name, const char *value) {
  char errstr[512] = "";
  rd_kafka_conf_t *conf   = RK(rd_kafka_conf_new)();
  rd_kafka_conf_res_t res = RK(rd_kafka_conf_set)(conf, name, value, errstr, sizeof(errstr));
  char got[2048] = "";
  size_t size    = sizeof(got);
  if (res == RD_KAFKA_CONF_OK)
    RK(rd_kafka_conf_get)(conf, name, got, &size);
  else
    strcpy(got, errstr);
  note(called("set %s=%s", name, shown(value)), "%d %s", res, got);
  RK(rd_kafka_conf_destroy)(conf);
}

static void values(void) {
  static const char *tried[] = {"", "nonsense", "-99999999999999", "99999999999999", "-1", "0", "1", "1.5", "true", "FALSE", "12x", "010", "0x10", " 7", "+5", "10000.0"};
  for (size_t i = 0; i < name_count; i++)
    for (size_t v = 0; v < sizeof(tried) / sizeof(*tried); v++)
      set(names[i], tried[v]);
  set("no.such.property", "1");
  set("", "1");
  set("compression.codec", "snappy");
  set("compression.codec", "Snappy");
  set("compression.type", "zstd");
  set("debug", "broker,topic,msg");
  set("debug", "broker, topic");
  set("debug", "topic,Broker");
  set("debug", "all");
  set("debug", "broker,nonsense");
  set("acks", "all");
  set("acks", "-2");
  set("auto.offset.reset", "beginning");
  set("auto.offset.reset", "smallest");
  set("security.protocol", "SASL_SSL");
  set("security.protocol", "sasl_plaintext");
  set("broker.version.fallback", "0.9");
  set("topic.blacklist", "^private");
  set("topic.blacklist", "(");
  set("topic.blacklist", "a, ^b");
  set("isolation.level", "read_uncommitted");
  set("partitioner", "murmur2_random");
  set("bootstrap.servers", "a:1,b:2");
  set("client.id", "a b");
  set("sasl.mechanisms", "SCRAM-SHA-256");
  set("group.protocol", "consumer");
  set("partition.assignment.strategy", "roundrobin,range");

  char errstr[8] = "abcdefg";
  rd_kafka_conf_t *conf = RK(rd_kafka_conf_new)();
  note("set into a short errstr", "%d %zu", RK(rd_kafka_conf_set)(conf, "linger.ms", "x", errstr, sizeof(errstr)), strlen(errstr));
  note("set without errstr", "%d", RK(rd_kafka_conf_set)(conf, "linger.ms", "x", NULL, 0));
  size_t size = 0;
  rd_kafka_conf_res_t res = RK(rd_kafka_conf_get)(conf, "compression.codec", NULL, &size);
  note("get the size alone", "%d %zu", res, size);
  RK(rd_kafka_conf_set)(conf, "request.required.acks", "1", NULL, 0);
  rd_kafka_conf_t *copy = RK(rd_kafka_conf_dup)(conf);
  char value[64];
  size = sizeof(value);
  note("a copy's topic property", "%d %s", RK(rd_kafka_conf_get)(copy, "acks", value, &size), value);
  const char *filtered[] = {"linger."};
  rd_kafka_conf_t *filtered_copy = RK(rd_kafka_conf_dup_filter)(conf, 1, filtered);
  RK(rd_kafka_conf_destroy)(filtered_copy);
  RK(rd_kafka_conf_destroy)(copy);
  RK(rd_kafka_conf_destroy)(conf);
  note("debug contexts", "%s", shown(RK(rd_kafka_get_debug_contexts)()));
}

static void partitioners(void) {
  /* Without a topic: these depend only on the key, and random ones on available partitions. */
  typedef int32_t (*partitioner)(const rd_kafka_topic_t *, const void *, size_t, int32_t, void *, void *);
  static const char *deterministic[] = {"consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"};
  for (size_t p = 0; p < sizeof(deterministic) / sizeof(*deterministic); p++) {
    partitioner choose = (partitioner)symbol(called("rd_kafka_msg_partitioner_%s", deterministic[p]));
    unsigned state     = 12345;
    for (int n = 0; n < 2000; n++) {
      char key[64];
      size_t length = 1 + (size_t)n % sizeof(key);
      for (size_t i = 0; i < length; i++) {
        state  = state * 1103515245 + 12345;
        key[i] = (char)(state >> 16);
      }
      int partitions = 1 + n % 97;
      note(called("%s key %d of %zu bytes, %d partitions", deterministic[p], n, length, partitions), "%d",
           choose(NULL, key, length, partitions, NULL, NULL));
    }
    if (strstr(deterministic[p], "_random") == NULL)
      note(called("%s no key", deterministic[p]), "%d", choose(NULL, "", 0, 7, NULL, NULL));
  }
}

static void show_list(const char *what, const rd_kafka_topic_partition_list_t *list) {
  note(what, "%d partitions, room for at least that: %d", list->cnt, list->size >= list->cnt);
  for (int i = 0; i < list->cnt; i++) {
    const rd_kafka_topic_partition_t *p = &list->elems[i];
    note(called("%s [%d]", what, i), "%s %d offset %lld metadata %.*s opaque %p err %d", p->topic, p->partition,
         (long long)p->offset, (int)p->metadata_size, p->metadata ? (char *)p->metadata : "", p->opaque, p->err);
  }
}

static int by_partition(const void *a, const void *b, void *opaque) {
  (void)opaque;
  const rd_kafka_topic_partition_t *left = a, *right = b;
  return right->partition - left->partition;
}

static void lists(void) {
  rd_kafka_topic_partition_list_t *list = RK(rd_kafka_topic_partition_list_new)(1);
  RK(rd_kafka_topic_partition_list_add)(list, "b", 2)->offset = 7;
  rd_kafka_topic_partition_t *added = RK(rd_kafka_topic_partition_list_add)(list, "a", 10);
  added->metadata      = strdup("said");
  added->metadata_size = 4;
  added->opaque        = (void *)0x77;
  RK(rd_kafka_topic_partition_list_add_range)(list, "c", 3, 6);
  RK(rd_kafka_topic_partition_list_add)(list, "a", 2);
  RK(rd_kafka_topic_partition_list_add)(list, "a", 2);
  show_list("added", list);
  note("set_offset", "%d", RK(rd_kafka_topic_partition_list_set_offset)(list, "c", 4, 99));
  note("set_offset of none", "%d", RK(rd_kafka_topic_partition_list_set_offset)(list, "c", 40, 99));
  note("find", "%d", RK(rd_kafka_topic_partition_list_find)(list, "c", 5) != NULL);
  note("find none", "%d", RK(rd_kafka_topic_partition_list_find)(list, "d", 5) != NULL);
  rd_kafka_topic_partition_list_t *copy = RK(rd_kafka_topic_partition_list_copy)(list);
  RK(rd_kafka_topic_partition_list_sort)(list, NULL, NULL);
  show_list("sorted", list);
  RK(rd_kafka_topic_partition_list_sort)(list, by_partition, NULL);
  note("sorted by a function", "%d first, %d last", list->elems[0].partition, list->elems[list->cnt - 1].partition);
  note("del", "%d", RK(rd_kafka_topic_partition_list_del)(list, "a", 2));
  note("del none", "%d", RK(rd_kafka_topic_partition_list_del)(list, "z", 2));
  note("del by index", "%d", RK(rd_kafka_topic_partition_list_del_by_idx)(list, 0));
  note("del by a wrong index", "%d", RK(rd_kafka_topic_partition_list_del_by_idx)(list, 100));
  note("after deletions", "%d", list->cnt);
  show_list("copied before", copy);
  RK(rd_kafka_topic_partition_list_destroy)(copy);
  RK(rd_kafka_topic_partition_list_destroy)(list);
}

static void headers(void) {
  rd_kafka_headers_t *headers = RK(rd_kafka_headers_new)(1);
  note("header add", "%d", RK(rd_kafka_header_add)(headers, "a", -1, "one", -1));
  note("header add by length", "%d", RK(rd_kafka_header_add)(headers, "abc", 1, "two!", 3));
  note("header add null", "%d", RK(rd_kafka_header_add)(headers, "n", -1, NULL, 0));
  note("header add empty", "%d", RK(rd_kafka_header_add)(headers, "e", -1, "", 0));
  const void *value;
  size_t size;
  int res = RK(rd_kafka_header_get_last)(headers, "a", &value, &size);
  note("header get_last", "%d %.*s", res, (int)size, (const char *)value);
  note("header get_last none", "%d", RK(rd_kafka_header_get_last)(headers, "zz", &value, &size));
  for (size_t i = 0; i < 3; i++)
    note(called("header get %zu", i), "%d", RK(rd_kafka_header_get)(headers, i, "a", &value, &size));
  rd_kafka_headers_t *copy = RK(rd_kafka_headers_copy)(headers);
  note("header remove", "%d", RK(rd_kafka_header_remove)(headers, "a"));
  note("header remove none", "%d", RK(rd_kafka_header_remove)(headers, "a"));
  note("header count", "%zu %zu", RK(rd_kafka_header_cnt)(headers), RK(rd_kafka_header_cnt)(copy));
  const char *name;
  for (size_t i = 0; RK(rd_kafka_header_get_all)(copy, i, &name, &value, &size) == 0; i++)
    note(called("header all %zu", i), "%s %zu %s", name, size, value != NULL ? "value" : "null");
  /* A zero follows every value, so that strings can be read in place. */
  RK(rd_kafka_header_get_last)(copy, "a", &value, &size);
  note("header value ends", "%d", ((const char *)value)[size]);
  RK(rd_kafka_headers_destroy)(copy);
  RK(rd_kafka_headers_destroy)(headers);
}

static void names_of_things(void) {
  for (int n = -1; n < 16; n++) {
    note(called("ConfigSource %d", n), "%s", shown(RK(rd_kafka_ConfigSource_name)((rd_kafka_ConfigSource_t)n)));
    note(called("ResourceType %d", n), "%s", shown(RK(rd_kafka_ResourceType_name)((rd_kafka_ResourceType_t)n)));
    note(called("ResourcePatternType %d", n), "%s",
         shown(RK(rd_kafka_ResourcePatternType_name)((rd_kafka_ResourcePatternType_t)n)));
    note(called("AclOperation %d", n), "%s", shown(RK(rd_kafka_AclOperation_name)((rd_kafka_AclOperation_t)n)));
    note(called("AclPermissionType %d", n), "%s",
         shown(RK(rd_kafka_AclPermissionType_name)((rd_kafka_AclPermissionType_t)n)));
    note(called("consumer_group_state %d", n), "%s",
         shown(RK(rd_kafka_consumer_group_state_name)((rd_kafka_consumer_group_state_t)n)));
  }
  static const char *states[] = {"Stable", "stable", "Unknown", "Empty", "Dead", "PreparingRebalance", "nonsense", ""};
  for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++)
    note(called("consumer_group_state_code %s", states[i]), "%d", RK(rd_kafka_consumer_group_state_code)(states[i]));
  note("event name of NULL", "%s", shown(RK(rd_kafka_event_name)(NULL)));
  note("event type of NULL", "%d", RK(rd_kafka_event_type)(NULL));

  /* Newer than the header used here. */
  typedef void uuid;
  uuid *(*uuid_new)(int64_t, int64_t)    = (uuid * (*)(int64_t, int64_t)) symbol("rd_kafka_Uuid_new");
  const char *(*base64)(const uuid *)    = (const char *(*)(const uuid *))symbol("rd_kafka_Uuid_base64str");
  uuid *(*uuid_copy)(const uuid *)       = (uuid * (*)(const uuid *)) symbol("rd_kafka_Uuid_copy");
  void (*uuid_destroy)(uuid *)           = (void (*)(uuid *))symbol("rd_kafka_Uuid_destroy");
  int64_t (*least)(const uuid *)         = (int64_t(*)(const uuid *))symbol("rd_kafka_Uuid_least_significant_bits");
  int64_t (*most)(const uuid *)          = (int64_t(*)(const uuid *))symbol("rd_kafka_Uuid_most_significant_bits");
  static const int64_t bits[][2] = {{0, 0}, {0, 1}, {-1, -1}, {0x0123456789abcdef, 0x1122334455667788}};
  for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++) {
    uuid *made = uuid_new(bits[i][0], bits[i][1]), *copy = uuid_copy(made);
    note(called("uuid %zu", i), "%s %llx %llx", shown(base64(copy)), (unsigned long long)most(copy),
         (unsigned long long)least(copy));
    uuid_destroy(made);
    uuid_destroy(copy);
  }
}

static void admin_objects(void) {
  char errstr[512];
  static const struct {
    const char *name;
    int partitions, replicas;
  } topics[] = {{"t", 1, 1}, {"t", 0, 1}, {"t", -1, -1}, {"t", 1, -1}, {"", 1, 1}, {"t", 100001, 1}, {"t", 1, 20000}};
  for (size_t i = 0; i < sizeof(topics) / sizeof(*topics); i++) {
    rd_kafka_NewTopic_t *made =
        RK(rd_kafka_NewTopic_new)(topics[i].name, topics[i].partitions, topics[i].replicas, errstr, sizeof(errstr));
    note(called("NewTopic '%s' %d %d", topics[i].name, topics[i].partitions, topics[i].replicas), "%d", made != NULL);
    if (made == NULL)
      continue;
    int32_t brokers[] = {1, 2};
    note(called("replica assignment of %zu", i), "%d",
         RK(rd_kafka_NewTopic_set_replica_assignment)(made, 0, brokers, 2, errstr, sizeof(errstr)));
    note(called("replica assignment out of order of %zu", i), "%d",
         RK(rd_kafka_NewTopic_set_replica_assignment)(made, 5, brokers, 2, errstr, sizeof(errstr)));
    note(called("config of %zu", i), "%d", RK(rd_kafka_NewTopic_set_config)(made, "k", "v"));
    RK(rd_kafka_NewTopic_destroy)(made);
  }
  for (size_t count = 0; count < 3; count++) {
    rd_kafka_NewPartitions_t *made = RK(rd_kafka_NewPartitions_new)("t", count, errstr, sizeof(errstr));
    note(called("NewPartitions %zu", count), "%d", made != NULL);
    if (made != NULL)
      RK(rd_kafka_NewPartitions_destroy)(made);
  }
  for (int type = -1; type < 8; type++) {
    rd_kafka_ConfigResource_t *made = RK(rd_kafka_ConfigResource_new)((rd_kafka_ResourceType_t)type, "name");
    note(called("ConfigResource %d", type), "%d", made != NULL);
    if (made != NULL) {
      note(called("ConfigResource %d name", type), "%s %d", RK(rd_kafka_ConfigResource_name)(made),
           RK(rd_kafka_ConfigResource_type)(made));
      RK(rd_kafka_ConfigResource_destroy)(made);
    }
    rd_kafka_AclBinding_t *acl = RK(rd_kafka_AclBinding_new)(
        (rd_kafka_ResourceType_t)type, "name", RD_KAFKA_RESOURCE_PATTERN_LITERAL, "User:a", "*",
        RD_KAFKA_ACL_OPERATION_READ, RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW, errstr, sizeof(errstr));
    note(called("AclBinding %d", type), "%d", acl != NULL);
    if (acl != NULL)
      RK(rd_kafka_AclBinding_destroy)(acl);
  }
  rd_kafka_DeleteTopic_t *topic = RK(rd_kafka_DeleteTopic_new)("t");
  rd_kafka_DeleteGroup_t *group = RK(rd_kafka_DeleteGroup_new)("g");
  note("DeleteTopic and DeleteGroup", "%d %d", topic != NULL, group != NULL);
  RK(rd_kafka_DeleteTopic_destroy)(topic);
  RK(rd_kafka_DeleteGroup_destroy)(group);
}

static void ask(const char *path, struct transcript *transcript) {
  /* Local: each library resolves its own symbols, whatever their names. */
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  current = transcript;
  if (names == NULL)
    read_names();
  note("version is recent", "%d", RK(rd_kafka_version)() >= 0x020f00ff);
  errors();
  defaults();
  values();
  partitioners();
  lists();
  headers();
  names_of_things();
  admin_objects();
}

static const char *answer_to(const struct transcript *transcript, const char *call, size_t near) {
  if (near < transcript->count && strcmp(transcript->answers[near].call, call) == 0)
    return transcript->answers[near].answer;
  for (size_t i = 0; i < transcript->count; i++)
    if (strcmp(transcript->answers[i].call, call) == 0)
      return transcript->answers[i].answer;
  return NULL;
}

int main(int argc, char **argv) {
  struct transcript reference = {0}, ours = {0};
  size_t differences = 0;
  if (argc != 3) {
    fprintf(stderr, "usage: oracle REFERENCE OURS\n");
    return 2;
  }
  ask(argv[1], &reference);
  ask(argv[2], &ours);
  for (size_t i = 0; i < reference.count; i++) {
    const struct answer *expected = &reference.answers[i];
    const char *answer            = answer_to(&ours, expected->call, i);
    if (answer == NULL || strcmp(answer, expected->answer) != 0) {
      printf("%s\t%s\t%s\n", expected->call, expected->answer, shown(answer));
      differences++;
    }
  }
  for (size_t i = 0; i < ours.count; i++)
    if (answer_to(&reference, ours.answers[i].call, i) == NULL) {
      printf("%s\t(null)\t%s\n", ours.answers[i].call, ours.answers[i].answer);
      differences++;
    }
  printf("%zu calls, %zu properties, %zu differences\n", reference.count, name_count, differences);
  return 0;
}
