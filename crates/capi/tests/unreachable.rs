//! Clients whose brokers cannot be reached.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rdkafka::client::handle::*;
use rdkafka::consume::offsets::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;

use crate::common::{Lines, conf, list, log_to, new, produce, until};

/// A test of rdkafka-ruby (`watermark_offsets_gvl_spec.rb`) measures that the call lasts until its timeout. It ended at once with
/// `RD_KAFKA_RESP_ERR__TRANSPORT`, so that programs could not wait for a broker that starts.
#[test]
fn a_lookup_of_offsets_waits_for_a_broker_until_its_timeout() {
    let backoff = [("reconnect.backoff.ms", "100"), ("reconnect.backoff.max.ms", "100")];
    let broker = [("bootstrap.servers", "127.0.0.1:1"), ("group.id", "billing")];
    let rk = new(RD_KAFKA_CONSUMER, conf(&[broker, backoff].concat()));
    let (mut low, mut high) = (0, 0);
    let topic = c"orders".as_ptr();
    unsafe {
        let begun = Instant::now();
        let code = rd_kafka_query_watermark_offsets(rk, topic, 0, &raw mut low, &raw mut high, 2_000);
        assert_eq!(code, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN);
        assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());

        let begun = Instant::now();
        let times = list(&[(c"orders", 0)]);
        assert_eq!(rd_kafka_offsets_for_times(rk, times, 2_000), RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN);
        assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
        rd_kafka_topic_partition_list_destroy(times);
        rd_kafka_destroy(rk);
    }
}

/// The entries had no error, as if they had offsets.
#[test]
fn the_entries_of_a_lookup_without_a_broker_are_in_progress() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", "127.0.0.1:1"), ("group.id", "billing")]));
    let times = list(&[(c"orders", 0), (c"more", 1)]);
    unsafe {
        assert_eq!(rd_kafka_offsets_for_times(rk, times, 2_000), RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN);
        let errors: Vec<_> = (*times).elems().iter().map(|entry| entry.err).collect();
        assert_eq!(errors, [RD_KAFKA_RESP_ERR__IN_PROGRESS; 2]);
        rd_kafka_topic_partition_list_destroy(times);
        rd_kafka_destroy(rk);
    }
}

/// Programs without a function for errors, and those who watch them, search the log for the line.
#[test]
fn the_log_says_that_all_brokers_are_down_if_no_function_gets_the_error() {
    let lines = Lines::default();
    let conf = conf(&[("bootstrap.servers", "127.0.0.1:1"), ("reconnect.backoff.ms", "10")]);
    unsafe {
        log_to(conf, &lines);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        // A record to send makes the client connect to its brokers.
        produce(rk, c"orders", 0, "paid", null_mut());
        let expected = "3 ERROR [thrd:main]: 1/1 brokers are down";
        until("the line", || lines.lock().unwrap().iter().any(|line| line == expected));
        rd_kafka_destroy(rk);
    }
}
