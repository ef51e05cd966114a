//! `ottla broker --metrics-listen`: metrics, health and readiness over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use crate::operation::{bootstrap, end, hog, start};
use crate::support::{PATIENCE, ottla};

const LISTEN: [&str; 2] = ["--metrics-listen", "127.0.0.1:0"];

/// The status and the body of a page.
fn get(metrics: &str, path: &str) -> (u16, String) {
    let address = metrics.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.expect("the URL of the metrics");
    let mut stream = TcpStream::connect(address).expect("the endpoint listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
}

#[test]
fn the_endpoint_has_metrics_health_and_readiness() {
    let (broker, ready) =
        start(&[&LISTEN[..], &["--topic", "orders:3", "--metrics-series-max", "2"]].concat());
    let metrics = ready["metrics"].as_str().expect("a text");
    ottla(&["produce", "orders", "-b", bootstrap(&ready)], "1\n2\n3\n").succeeded();
    ottla(&["consume", "orders", "-G", "readers", "-e", "-b", bootstrap(&ready)], "").succeeded();
    let (status, text) = get(metrics, "/metrics");
    assert_eq!(status, 200);
    for sample in [
        "ottla_appended_records_total 3\n",
        "ottla_group_lag_sum_records{group=\"readers\"} 0\n",
        "ottla_series_left_out{metric=\"ottla_partition_high_watermark\"} ",
    ] {
        assert!(text.contains(sample), "{sample}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("ottla_partition_log_bytes{")).count(), 2);
    assert_eq!(get(metrics, "/healthz"), (200, "healthy\n".into()));
    assert_eq!(get(metrics, "/readyz"), (200, "ready\n".into()));
    assert_eq!(get(metrics, "/").0, 404);
    end(broker);
}

#[test]
fn a_broker_that_ends_is_not_ready() {
    let (broker, ready) = start(&[&LISTEN[..], &["--drain-timeout", "3600"]].concat());
    let metrics = ready["metrics"].as_str().expect("a text").to_owned();
    let _hog = hog(&ready);
    let mut broker = broker;
    broker.signal(Signal::TERM);
    broker.until("not ready", PATIENCE, |_| get(&metrics, "/readyz").0 == 503);
    assert_eq!(get(&metrics, "/healthz").0, 200);
    broker.signal(Signal::TERM);
    assert_eq!(broker.wait().status.code(), Some(143));
}

/// Connections that send nothing, half a request, or no end of a head.
#[test]
fn hostile_connections_delay_neither_clients_nor_the_metrics_for_long() {
    let (broker, ready) = start(&[&LISTEN[..], &["--topic", "orders:1"]].concat());
    let metrics = ready["metrics"].as_str().expect("a text");
    let address = metrics.trim_start_matches("http://").trim_end_matches("/metrics");
    let connect = || TcpStream::connect(address).expect("the endpoint listens");
    let hostile: Vec<TcpStream> = (0..24).map(|_| connect()).collect();
    for (mut stream, number) in hostile.iter().zip(0..) {
        let endless = format!("GET /metrics HTTP/1.1\r\n{}", "x: y\r\n".repeat(4000));
        let part = ["", "GET /metr", &endless][number % 3];
        // The endpoint may have closed the connection already.
        let _ = stream.write_all(part.as_bytes());
    }
    ottla(&["produce", "orders", "-b", bootstrap(&ready)], "1\n").succeeded();
    assert_eq!(get(metrics, "/healthz").0, 200);
    drop(hostile);
    end(broker);
}

#[test]
fn an_address_in_use_is_reported() {
    let (broker, ready) = start(&[]);
    let taken = bootstrap(&ready);
    let args = ["broker", "--durability", "memory", "--listen", "127.0.0.1:0", "--metrics-listen", taken];
    ottla(&args, "").failed(1, &[&format!("--metrics-listen {taken}: address already in use")]);
    end(broker);
}

/// The broker and a client ended with the exit code of a failure, and without a word about the form of an address.
#[test]
fn an_address_that_is_none_is_a_usage_error() {
    for command in [&["broker", "--durability", "memory"][..], &["produce", "orders"]] {
        for address in ["9090", "localhost", "127.0.0.1:99999"] {
            ottla(&[command, &["--metrics-listen", address]].concat(), "")
                .failed(2, &["--metrics-listen", address, "expected HOST:PORT"]);
        }
    }
}
