// Callbacks that throw: delivery reports in `rd_kafka_poll` and `rd_kafka_flush`, statistics in `rd_kafka_poll`, and a
// rebalance in `rd_kafka_consumer_poll`. The clients work on afterwards.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "rdkafka.h"
#include "rdkafka_mock.h"

static const int records = 3;
static int reported;
static int throws;

static void on_report(rd_kafka_t *, const rd_kafka_message_t *, void *) {
    reported++;
    if (throws) {
        throws--;
        throw std::runtime_error("thrown by the callback");
    }
}

static int on_stats(rd_kafka_t *, char *, size_t, void *) {
    throw std::logic_error("thrown by the statistics");
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *partitions, void *) {
    static bool has_thrown;
    rd_kafka_assign(rk, err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? partitions : nullptr);
    if (!has_thrown) {
        has_thrown = true;
        throw std::runtime_error("thrown by the rebalance");
    }
}

static void require(bool holds, const char *what) {
    if (!holds) {
        std::printf("not so: %s\n", what);
        std::exit(1);
    }
}

static void produce(rd_kafka_t *rk) {
    for (int i = 0; i < records; i++)
        require(!rd_kafka_producev(rk, RD_KAFKA_V_TOPIC("orders"), RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_VALUE((void *)"value", 5),
                                   RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END),
                "the record is taken");
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char errstr[512];
    rd_kafka_t *rk = rd_kafka_new(type, conf, errstr, sizeof(errstr));
    require(rk != nullptr, errstr);
    return rk;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char errstr[512];
    require(rd_kafka_conf_set(conf, name, value, errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK, errstr);
}

static void consume(const char *bootstraps) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstraps);
    set(conf, "group.id", "readers");
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "statistics.interval.ms", "20");
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    rd_kafka_conf_set_stats_cb(conf, on_stats);
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, conf);

    bool stats_thrown = false;
    while (!stats_thrown) {
        try {
            rd_kafka_poll(rk, 100);
        } catch (const std::logic_error &) {
            stats_thrown = true;
        }
    }
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, "orders", RD_KAFKA_PARTITION_UA);
    require(!rd_kafka_subscribe(rk, topics), "the consumer subscribes");
    rd_kafka_topic_partition_list_destroy(topics);
    int read = 0, rebalances_thrown = 0;
    while (read < 2 * records) {
        try {
            rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, 100);
            if (message) {
                read += !message->err;
                rd_kafka_message_destroy(message);
            }
        } catch (const std::runtime_error &) {
            rebalances_thrown++;
        }
    }
    require(rebalances_thrown == 1, "rd_kafka_consumer_poll lets the exception through");
    std::printf("read %d\n", read);
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
}

int main() {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "test.mock.num.brokers", "1");
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, conf);

    int caught = 0;
    throws = 2;
    produce(rk);
    try {
        while (reported < 1)
            rd_kafka_poll(rk, 100);
    } catch (const std::runtime_error &) {
        caught++;
    }
    require(caught == 1, "rd_kafka_poll lets the exception through");
    produce(rk);
    try {
        rd_kafka_flush(rk, 30000);
    } catch (const std::runtime_error &) {
        caught++;
    }
    require(caught == 2, "rd_kafka_flush lets the exception through");
    require(!rd_kafka_flush(rk, 30000), "the client flushes afterwards");
    std::printf("reported %d of %d\n", reported, 2 * records);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_handle_mock_cluster(rk);
    rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0);
    consume(rd_kafka_mock_cluster_bootstraps(cluster));
    rd_kafka_destroy(rk);
    require(!rd_kafka_wait_destroyed(10000), "the clients have ended");
    return 0;
}
