//! Records that are damaged on their way to a processor in C. As in librdkafka, its `check.crcs` is off.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_broker::Broker;
use ottla_client::{Config, Producer, Record};
use rdkafka::ffi::*;
use rdkafka::processor::*;

use crate::common::{PATIENCE, conf, until};

/// The value of the damaged record, preceded by its length in zigzag encoding, and the lengths of its other fields: a key of one
/// byte is before it, and the offset before that.
const PRECIOUS: &[u8] = b"\x02k\x10precious";

/// Proxies connections to the broker, and gives that record the next offset in every response.
fn damaging(listener: TcpListener, broker: SocketAddr) {
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(broker) else { return };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || carry_damaged(server, client));
        }
    });
}

fn carry_damaged(mut from: TcpStream, mut to: TcpStream) {
    let (mut size, mut frame) = ([0; 4], Vec::new());
    while from.read_exact(&mut size).is_ok() {
        frame.resize(u32::from_be_bytes(size) as usize, 0);
        if from.read_exact(&mut frame).is_err() {
            return;
        }
        if let Some(at) = frame.windows(PRECIOUS.len()).position(|window| window == PRECIOUS) {
            // 18 in zigzag encoding becomes 19.
            frame[at - 1] ^= 2;
        }
        if to.write_all(&size).and_then(|()| to.write_all(&frame)).is_err() {
            return;
        }
    }
}

/// Counts its records in the application's pointer.
unsafe extern "C" fn counts(
    _: *mut ottla_processor_call_t,
    _: *const *const rd_kafka_message_t,
    count: usize,
    opaque: *mut c_void,
) -> ottla_processor_verdict_t {
    unsafe { &*opaque.cast::<AtomicUsize>() }.fetch_add(count, Ordering::SeqCst);
    OTTLA_PROCESSOR_DONE
}

/// A batch with fewer records than its header has was committed, and its handler was not called.
#[test]
fn a_batch_without_its_last_record_is_handled() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let advertised = listener.local_addr().unwrap().to_string();
    let broker = Broker::builder().memory().topic("orders", 1).advertise(advertised).spawn().unwrap();
    damaging(listener, broker.addresses()[0]);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("linger.ms", "1000").unwrap();
    let producer = Producer::new(config).unwrap();
    for number in 0..20 {
        let value = if number == 18 { "precious" } else { "usual" };
        let _reported = producer.enqueue_blocking(Record::to("orders").key("k").value(value)).unwrap();
    }
    producer.flush_blocking(PATIENCE).unwrap();

    let handled = AtomicUsize::new(0);
    let settings = ottla_processor_settings_new();
    for (name, value) in [(c"mode", c"batch"), (c"topics", c"orders")] {
        let set =
            unsafe { ottla_processor_settings_set(settings, name.as_ptr(), value.as_ptr(), null_mut(), 0) };
        assert_eq!(set, RD_KAFKA_CONF_OK);
    }
    let opaque = std::ptr::from_ref(&handled).cast_mut().cast();
    ottla_processor_settings_set_batch_handler(settings, Some(counts), opaque);
    let group = conf(&[
        ("bootstrap.servers", &broker.bootstrap_servers()),
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
    ]);
    let processor = unsafe { ottla_processor_start(group, settings, null_mut(), 0) };
    assert!(!processor.is_null());
    until("the other records are handled", || handled.load(Ordering::SeqCst) == 19);
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
}
