//! `ottla doctor`: it blames only what stays, knows a web server, and gives each advice once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ottla_broker::Fault;
use ottla_protocol::{ApiKey, ErrorCode};

use crate::support::{at, broker, ottla};

/// Runs `serve` for each connection, in threads that end with the test process.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn frame(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).ok()?;
    let size = u32::from_be_bytes(frame[..4].try_into().ok()?) as usize;
    frame.resize(4 + size, 0);
    from.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

/// A machine that was busy for a moment had Nagle's algorithm blamed.
#[test]
fn a_round_trip_that_is_slow_for_a_moment_is_measured_again() {
    let broker = broker(1);
    let to = broker.addresses()[0];
    let answered = Arc::new(AtomicUsize::new(0));
    // The first answers are late by the time of a delayed acknowledgement.
    let proxy = listen(move |mut here| {
        let Ok(mut there) = TcpStream::connect(to) else { return };
        let _ = here.set_nodelay(true);
        while let Some(request) = frame(&mut here) {
            if there.write_all(&request).is_err() {
                return;
            }
            let Some(answer) = frame(&mut there) else { return };
            if answered.fetch_add(1, Ordering::Relaxed) < 15 {
                thread::sleep(Duration::from_millis(42));
            }
            if here.write_all(&answer).is_err() {
                return;
            }
        }
    });
    let found = ottla(&["doctor", "-b", &proxy.to_string()], "");
    let step = found.stdout.lines().find(|line| line.contains(" round-trip ")).expect("a step");
    assert!(step.starts_with("ok ") && step.contains("samples"), "{}", found.stdout);
    assert!(!found.stdout.contains("the delay of a delayed acknowledgement"), "{}", found.stdout);
}

/// The step of the client had the advice to run the doctor.
#[test]
fn the_doctor_does_not_advise_to_run_the_doctor() {
    let closing = listen(drop);
    let found = ottla(&["doctor", "-b", &closing.to_string()], "").failed(1, &["client"]);
    let step = found.stdout.lines().find(|line| line.contains(" client ")).expect("a step");
    assert!(step.starts_with("FAIL ") && step.contains("no broker could be reached"), "{}", found.stdout);
    assert!(!found.stdout.contains("ottla doctor"), "{}", found.stdout);
}

/// Only the first port of a host was examined. It had no broker, so there were no further steps.
#[test]
fn each_server_of_a_host_is_examined() {
    let broker = broker(1);
    let closing = listen(drop);
    let servers = format!("{closing},{}", broker.addresses()[0]);
    let found = ottla(&["doctor", "-b", &servers], "").failed(1, &[]);
    let statuses = |name: &str| {
        let steps = found.stdout.lines().filter(|line| !line.starts_with(' ') && line.contains(name));
        steps.filter_map(|line| line.split(' ').next()).collect::<Vec<_>>()
    };
    assert_eq!(statuses(" api-versions "), ["FAIL", "ok"], "{}", found.stdout);
    assert_eq!(statuses(" metadata "), ["ok"], "{}", found.stdout);
}

/// It waits for a line, as many web servers do: what a client of Kafka sends has none.
#[test]
fn a_web_server_that_waits_for_a_line_is_recognised() {
    let web = listen(|mut stream| {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\n") {
            match stream.read(&mut byte) {
                Ok(1) => request.push(byte[0]),
                _ => return,
            }
        }
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n<!DOCTYPE html>");
    });
    let impatient = ["-X", "socket.timeout.ms=500"];
    let found = ottla(&[&["doctor", "-b", &web.to_string()], &impatient[..]].concat(), "").failed(1, &[]);
    assert!(found.stdout.contains("this is a web server"), "{}", found.stdout);
}

#[test]
fn each_piece_of_advice_is_given_once() {
    let nowhere = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
    let port = nowhere.port();
    let servers = format!("127.0.0.1:{port},localhost:{port}");
    let found = ottla(&["doctor", "-b", &servers], "").failed(1, &[]);
    let advice = format!("no process listens on port {port} of this machine");
    assert_eq!(found.stdout.matches(&advice).count(), 1, "{}", found.stdout);
}

/// A busy controller answers REQUEST_TIMED_OUT and continues; the doctor gave up at the same moment as the controller.
#[test]
fn a_change_that_the_controller_is_slow_with_is_waited_for() {
    let broker = broker(1);
    for api in [ApiKey::CreateTopics, ApiKey::DeleteTopics] {
        broker.cluster().intercept(api, None, 2, Fault::Fail(ErrorCode::RequestTimedOut));
    }
    let found = at(&broker, &["doctor", "--write"], "");
    assert!(found.status.success(), "{}", found.stdout);
    for step in ["create-topic", "delete-topic"] {
        let line = found.stdout.lines().find(|line| line.contains(step)).expect("a step");
        assert!(line.starts_with("ok "), "{}", found.stdout);
    }
    assert_eq!(broker.cluster().partitions_of("orders"), Some(1));
    assert_eq!(broker.cluster().intercepts_left(ApiKey::DeleteTopics, 1), 0);
}

/// An answer of the broker itself that its time is over reaches the doctor only within the doctor's own time.
#[test]
fn the_broker_has_less_time_than_the_answer() {
    let broker = broker(1);
    let to = broker.addresses()[0];
    let timeouts = Arc::new(Mutex::new(Vec::new()));
    let seen = timeouts.clone();
    let proxy = listen(move |mut here| {
        let Ok(mut there) = TcpStream::connect(to) else { return };
        while let Some(request) = frame(&mut here) {
            // The time limit of DeleteTopics precedes the empty tagged fields at its end.
            if request[4..6] == ApiKey::DeleteTopics.code().to_be_bytes() {
                let end = request.len() - 1;
                let limit = request[end - 4..end].try_into().map(i32::from_be_bytes).expect("four bytes");
                seen.lock().expect("not poisoned").push(limit);
            }
            if there.write_all(&request).is_err() {
                return;
            }
            let Some(answer) = frame(&mut there) else { return };
            if here.write_all(&answer).is_err() {
                return;
            }
        }
    });
    // The proxy is the advertised address, too.
    assert!(broker.cluster().advertise(1, "127.0.0.1", proxy.port()));
    let args = ["doctor", "--write", "-X", "socket.timeout.ms=30000", "-b", &proxy.to_string()];
    let found = ottla(&args, "");
    assert!(found.status.success(), "{}", found.stdout);
    assert_eq!(*timeouts.lock().expect("not poisoned"), [15_000]);
}

/// It was looked up for ten seconds, as if it were new.
#[test]
fn a_topic_that_does_not_exist_is_not_waited_for() {
    let broker = broker(1);
    broker.cluster().requests(ApiKey::Metadata);
    at(&broker, &["doctor", "--topic", "missing"], "").failed(1, &["topic missing"]);
    let lookups = broker.cluster().requests(ApiKey::Metadata);
    assert!(lookups < 20, "{lookups}");
}
