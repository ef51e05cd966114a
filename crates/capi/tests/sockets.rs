//! Programs that make their own connections, through a proxy perhaps: their functions resolve, open, connect and close.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ottla_broker::Broker;
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::*;
use rdkafka::ffi::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::poll::*;

/// The calls of the callbacks, as text; it is their opaque.
type Seen = Mutex<Vec<String>>;

fn note(opaque: *mut c_void, what: String) {
    unsafe { &*opaque.cast::<Seen>() }.lock().unwrap().push(what);
}

fn count(seen: &Seen, what: &str) -> usize {
    seen.lock().unwrap().iter().filter(|line| line.starts_with(what)).count()
}

/// Knows one name more than the system does.
unsafe extern "C" fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: *const libc::addrinfo,
    res: *mut *mut libc::addrinfo,
    opaque: *mut c_void,
) -> c_int {
    if node.is_null() {
        note(opaque, "free".into());
        unsafe { libc::freeaddrinfo(*res) };
        return 0;
    }
    let (name, port) = unsafe { (CStr::from_ptr(node), CStr::from_ptr(service)) };
    note(opaque, format!("resolve {} {}", name.to_str().unwrap(), port.to_str().unwrap()));
    let node = if name == c"broker.behind.proxy" { c"127.0.0.1".as_ptr() } else { node };
    unsafe { libc::getaddrinfo(node, service, hints, res) }
}

/// Knows no name.
unsafe extern "C" fn resolve_nothing(
    node: *const c_char,
    _: *const c_char,
    _: *const libc::addrinfo,
    _: *mut *mut libc::addrinfo,
    _: *mut c_void,
) -> c_int {
    if node.is_null() { 0 } else { libc::EAI_NONAME }
}

unsafe extern "C" fn on_error(_: *mut rd_kafka_t, err: c_int, _: *const c_char, opaque: *mut c_void) {
    note(opaque, format!("error {err};"));
}

unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int, opaque: *mut c_void) -> c_int {
    assert_eq!((domain, kind, protocol), (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP));
    note(opaque, "socket".into());
    unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) }
}

unsafe extern "C" fn connect(
    sockfd: c_int,
    addr: *const libc::sockaddr,
    addrlen: c_int,
    id: *const c_char,
    opaque: *mut c_void,
) -> c_int {
    let id = unsafe { CStr::from_ptr(id) }.to_str().unwrap();
    note(opaque, format!("connect {id}"));
    if unsafe { libc::connect(sockfd, addr, addrlen as libc::socklen_t) } == 0 {
        return 0;
    }
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

unsafe extern "C" fn close(sockfd: c_int, opaque: *mut c_void) -> c_int {
    note(opaque, "close".into());
    unsafe { libc::close(sockfd) }
}

fn producer(servers: &str, seen: &Seen, set: unsafe fn(*mut rd_kafka_conf_t)) -> *mut rd_kafka_t {
    let conf = rd_kafka_conf_new();
    let servers = CString::new(servers).unwrap();
    let mut errstr = [0; 512];
    unsafe {
        rd_kafka_conf_set_opaque(conf, (&raw const *seen).cast_mut().cast());
        set(conf);
        let name = c"bootstrap.servers".as_ptr();
        assert_eq!(rd_kafka_conf_set(conf, name, servers.as_ptr(), null_mut(), 0), RD_KAFKA_CONF_OK);
        let rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr.as_mut_ptr(), errstr.len());
        assert!(!rk.is_null(), "{:?}", CStr::from_ptr(errstr.as_ptr()));
        rk
    }
}

fn produce(rk: *mut rd_kafka_t) {
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let value = c"value".as_ptr().cast_mut().cast();
        assert_eq!(rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, 5, null(), 0, null_mut()), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_destroy(rkt);
    }
}

#[test]
fn the_applications_functions_make_and_close_the_connections() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let port = broker.addresses()[0].port();
    let seen = Seen::default();
    let rk = producer(&format!("broker.behind.proxy:{port}"), &seen, |conf| unsafe {
        rd_kafka_conf_set_resolve_cb(conf, Some(resolve));
        rd_kafka_conf_set_socket_cb(conf, Some(socket));
        rd_kafka_conf_set_connect_cb(conf, Some(connect));
        rd_kafka_conf_set_closesocket_cb(conf, Some(close));
    });
    produce(rk);
    unsafe { rd_kafka_destroy(rk) };
    assert!(count(&seen, &format!("resolve broker.behind.proxy {port}")) > 0, "{seen:?}");
    assert!(count(&seen, &format!("connect broker.behind.proxy:{port}")) > 0, "{seen:?}");
    assert_eq!(count(&seen, "resolve"), count(&seen, "free"), "{seen:?}");
    assert_eq!(count(&seen, "socket"), count(&seen, "connect"), "{seen:?}");
    assert_eq!(count(&seen, "socket"), count(&seen, "close"), "{seen:?}");
}

#[test]
fn a_function_alone_is_called_and_the_rest_is_done_as_ever() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let seen = Seen::default();
    let rk = producer(&broker.addresses()[0].to_string(), &seen, |conf| unsafe {
        rd_kafka_conf_set_closesocket_cb(conf, Some(close));
    });
    produce(rk);
    assert_eq!(count(&seen, "close"), 0);
    unsafe { rd_kafka_destroy(rk) };
    assert!(count(&seen, "close") > 0, "{seen:?}");
}

/// librdkafka's test 0075 waits for the second connection, which leads to a learned broker.
#[test]
fn a_client_connects_to_a_broker_that_metadata_names() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let seen = Seen::default();
    let rk = producer(&broker.addresses()[0].to_string(), &seen, |conf| unsafe {
        rd_kafka_conf_set_connect_cb(conf, Some(connect));
    });
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let deadline = Instant::now() + Duration::from_secs(60);
        while count(&seen, "connect") < 2 {
            assert!(Instant::now() < deadline, "{seen:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

/// `RD_KAFKA_RESP_ERR__RESOLVE` was in the table of errors only: a wrong name looked like a broker that is down.
#[test]
fn a_host_without_an_address_is_an_error_of_its_own() {
    let seen = Seen::default();
    let rk = producer("broker.nowhere:9092", &seen, |conf| unsafe {
        rd_kafka_conf_set_resolve_cb(conf, Some(resolve_nothing));
        rd_kafka_conf_set_error_cb(conf, Some(on_error));
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while count(&seen, &format!("error {RD_KAFKA_RESP_ERR__RESOLVE};")) == 0 {
        assert!(Instant::now() < deadline, "{seen:?}");
        unsafe { rd_kafka_poll(rk, 100) };
    }
    unsafe { rd_kafka_destroy(rk) };
}
