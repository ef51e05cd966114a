//! Delivery reports of topics whose records get the time of the append.

use std::ptr::null_mut;

use ottla_broker::{Broker, TopicConfig};
use rdkafka::client::handle::*;
use rdkafka::conf::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::queue::event::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::{conf, new, produce};

#[test]
fn reports_of_a_topic_with_log_append_time_have_the_brokers_timestamp() {
    let mut stamped = TopicConfig::default();
    stamped.set("message.timestamp.type", "LogAppendTime").unwrap();
    let broker = Broker::builder().memory().topic("created", 1).topic_with("appended", 1, stamped);
    let broker = broker.spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let conf = conf(&[("bootstrap.servers", servers.as_str())]);
    unsafe {
        rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let queue = rd_kafka_queue_get_main(rk);
        for (topic, expected) in
            [(c"created", RD_KAFKA_TIMESTAMP_CREATE_TIME), (c"appended", RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME)]
        {
            produce(rk, topic, 0, "paid", null_mut());
            let event = rd_kafka_queue_poll(queue, 60_000);
            assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_DR);
            let mut kind = -1;
            let time = rd_kafka_message_timestamp(rd_kafka_event_message_next(event), &raw mut kind);
            assert_eq!((kind, time > 1_000_000_000_000), (expected, true), "{topic:?}: {time}");
            rd_kafka_event_destroy(event);
        }
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}
