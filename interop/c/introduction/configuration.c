/* The introduction's first example: properties, their errors, and the creation of a client. */
#include <stdio.h>
#include <string.h>

#include <librdkafka/rdkafka.h>

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
  char errstr[512] = "";
  rd_kafka_conf_res_t res = rd_kafka_conf_set(conf, name, value, errstr, sizeof(errstr));
  printf("%s=%s: %d, %s\n", name, value, res,
         res == RD_KAFKA_CONF_OK ? "set" : strstr(errstr, name) ? "refused by name" : "refused");
}

static void show(const rd_kafka_conf_t *conf, const char *name) {
  char value[512];
  size_t size = sizeof(value);
  if (rd_kafka_conf_get(conf, name, value, &size) == RD_KAFKA_CONF_OK)
    printf("%s is %s\n", name, value);
}

int main(int argc, char **argv) {
  char errstr[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  set(conf, "compression.codec", "snappy");
  set(conf, "batch.num.messages", "100");
  set(conf, "compression.codec", "shrink");
  set(conf, "no.such.property", "1");
  show(conf, "compression.codec");
  show(conf, "batch.num.messages");
  show(conf, "queue.buffering.max.messages");
  rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr));
  if (rk == NULL) {
    printf("no client: %s\n", errstr);
    return 1;
  }
  printf("a client of type %d, its name begins with rdkafka#producer-: %d\n", rd_kafka_type(rk),
         strncmp(rd_kafka_name(rk), "rdkafka#producer-", 17) == 0);

  /* Brokers may be set after the other properties. */
  printf("brokers added: %d\n", rd_kafka_brokers_add(rk, argv[argc - 1]));
  const struct rd_kafka_metadata *metadata;
  rd_kafka_resp_err_t err = rd_kafka_metadata(rk, 1, NULL, &metadata, 10000);
  printf("metadata: %s\n", rd_kafka_err2name(err));
  if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
    printf("brokers known: %d\n", metadata->broker_cnt > 0);
    rd_kafka_metadata_destroy(metadata);
  }
  rd_kafka_destroy(rk);
  return 0;
}
