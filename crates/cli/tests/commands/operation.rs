//! `ottla broker` under scripts and supervisors: it reports that it is ready, and ends in an orderly way.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ended, PATIENCE, Running, binary, command, ottla};

const IN_MEMORY: [&str; 5] = ["broker", "--durability", "memory", "--listen", "127.0.0.1:0"];

/// A broker in memory that has printed the JSON of `--print-json`.
pub(crate) fn start(more: &[&str]) -> (Running, Value) {
    let args = [&IN_MEMORY[..], &["--print-json"], more].concat();
    let mut broker = Running::start(&mut command(&args), "");
    broker.until("ready", PATIENCE, |it| it.stdout().ends_with('\n'));
    let ready = serde_json::from_str(&broker.stdout()).expect("one JSON object");
    (broker, ready)
}

pub(crate) fn bootstrap(ready: &Value) -> &str {
    ready["bootstrap_servers"].as_str().expect("a text")
}

fn connect(ready: &Value) -> TcpStream {
    TcpStream::connect(bootstrap(ready)).expect("the broker listens")
}

pub(crate) fn end(broker: Running) -> Ended {
    broker.signal(Signal::TERM);
    broker.wait().succeeded()
}

#[test]
fn the_json_of_a_broker_that_is_ready_has_what_a_script_needs() {
    let data = tempfile::tempdir().expect("a directory");
    let data = data.path().to_str().expect("UTF-8");
    let args = ["broker", "--data", data, "--listen", "127.0.0.1:0", "--nodes", "2", "--print-json"];
    let mut broker = Running::start(&mut command(&args), "");
    broker.until("ready", PATIENCE, |it| it.stdout().ends_with('\n'));
    let ready: Value = serde_json::from_str(&broker.stdout()).expect("one JSON object");
    let keys: Vec<&String> = ready.as_object().expect("an object").keys().collect();
    let expected = [
        "bootstrap_servers",
        "cluster_id",
        "control",
        "data_dir",
        "durability",
        "event",
        "metrics",
        "nodes",
        "pid",
        "version",
    ];
    assert_eq!(keys, expected);
    assert_eq!((&ready["event"], &ready["durability"]), (&"ready".into(), &"disk".into()));
    assert_eq!(
        (&ready["data_dir"], &ready["metrics"], &ready["control"]),
        (&data.into(), &Value::Null, &Value::Null)
    );
    assert_eq!(ready["pid"], broker.id());
    let nodes = ready["nodes"].as_array().expect("a list");
    assert_eq!((&nodes[0]["id"], &nodes[1]["id"]), (&1.into(), &2.into()));
    for node in nodes {
        assert_eq!(node["listen"], node["advertised"]);
        TcpStream::connect(node["listen"].as_str().expect("a text")).expect("the node listens");
    }
    let listed = ottla(&["topics", "list", "-b", bootstrap(&ready)], "").succeeded();
    assert_eq!(listed.stdout, "");
    end(broker);
}

/// It was the path of the option: a program in another directory did not find the socket.
#[test]
fn the_control_address_of_the_json_is_absolute() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut in_dir = command(&[&IN_MEMORY[..], &["--print-json", "--control", "unix:control"]].concat());
    let mut broker = Running::start(in_dir.current_dir(dir.path()), "");
    broker.until("ready", PATIENCE, |it| it.stdout().ends_with('\n'));
    let ready: Value = serde_json::from_str(&broker.stdout()).expect("one JSON object");
    let control = ready["control"].as_str().expect("an address");
    assert!(control.starts_with("unix:/") && control.ends_with("/control"), "{control}");
    ottla(&["fault", "list", "--control", control], "").succeeded();
    end(broker);
}

/// The descriptor is a pipe: its reader sees the end while the broker runs.
#[test]
fn the_file_descriptor_gets_one_line_and_is_closed() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" --ready-fd 3 3>&0 </dev/null"]).arg(binary()).args(IN_MEMORY);
    let mut broker = Running::start_with_stdin(&mut shell, writer);
    drop(shell);
    let mut line = String::new();
    reader.read_to_string(&mut line).expect("read to its end");
    let ready: Value = serde_json::from_str(line.strip_suffix('\n').expect("a line")).expect("JSON");
    connect(&ready);
    broker.until("listening", PATIENCE, |it| it.stdout().starts_with("listening on "));
    end(broker);
}

#[test]
fn a_file_descriptor_that_is_not_open_is_refused() {
    ottla(&[&IN_MEMORY[..], &["--ready-fd", "97"]].concat(), "")
        .failed(2, &["--ready-fd 97", "no open file"]);
    ottla(&[&IN_MEMORY[..], &["--ready-fd", "1"]].concat(), "").failed(2, &["standard streams"]);
}

#[test]
fn systemd_is_notified_of_the_start_and_of_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let receive = || {
        let mut message = [0; 100];
        let length = socket.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let broker = Running::start(command(&IN_MEMORY).env("NOTIFY_SOCKET", &path), "");
    assert_eq!(receive(), "READY=1\n");
    broker.signal(Signal::TERM);
    assert_eq!(receive(), "STOPPING=1\n");
    broker.wait().succeeded();
}

/// A client that sends requests and reads no response, until the broker cannot write any more.
pub(crate) fn hog(ready: &Value) -> TcpStream {
    let mut stream = connect(ready);
    stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a socket");
    // ApiVersions, version 0, correlation id 7, no client id.
    let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];
    let requests = request.repeat(1000);
    while stream.write_all(&requests).is_ok() {}
    stream
}

#[test]
fn a_second_signal_ends_the_broker_at_once() {
    let (mut broker, ready) = start(&["--drain-timeout", "3600"]);
    let _hog = hog(&ready);
    broker.signal(Signal::TERM);
    broker.until("draining", PATIENCE, |_| TcpStream::connect(bootstrap(&ready)).is_err());
    broker.signal(Signal::INT);
    assert_eq!(broker.wait().status.code(), Some(130));
}

/// It ended the broker as a kill does: requests got no response, and the next start recovered the logs.
#[test]
fn a_closed_terminal_ends_the_broker_in_an_orderly_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("UTF-8");
    let args =
        ["broker", "--data", data, "--durability", "os", "--listen", "127.0.0.1:0", "--topic", "orders"];
    let mut broker = Running::start(&mut command(&args), "");
    broker.until("ready", PATIENCE, |it| it.stdout().starts_with("listening on "));
    broker.signal(Signal::HUP);
    broker.wait().succeeded();
    let (mut broker, ready) = start(&["--drain-timeout", "3600"]);
    let _hog = hog(&ready);
    broker.signal(Signal::TERM);
    broker.until("draining", PATIENCE, |_| TcpStream::connect(bootstrap(&ready)).is_err());
    broker.signal(Signal::HUP);
    assert_eq!(broker.wait().status.code(), Some(129));
}

#[test]
fn a_broker_under_nohup_ignores_a_closed_terminal() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(binary()).args(IN_MEMORY);
    let mut broker = Running::start(&mut shell, "");
    broker.until("ready", PATIENCE, |it| it.stdout().starts_with("listening on "));
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.id())).expect("a file");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a line");
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).expect("a number") & 1, 1, "{ignored}");
    broker.signal(Signal::HUP);
    end(broker);
}

/// A broker that recovered its logs, or read a slow file, ignored all signals until that was over. Here the file is a pipe without an end.
#[test]
fn a_signal_during_the_start_ends_the_broker() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("server.pem");
    let pipe = pipe.to_str().expect("UTF-8");
    assert!(Command::new("mkfifo").arg(pipe).status().expect("mkfifo runs").success());
    let keystore = format!("ssl.keystore.location={pipe}");
    let args = ["broker", "--durability", "memory", "-X", "listeners=SSL://127.0.0.1:0"];
    let args = [&args[..], &["-X", "ssl.keystore.type=PEM", "-X", &keystore]].concat();
    let mut broker = Running::start(&mut command(&args), "");
    let mut writer = None;
    // The pipe can be opened for writing once the broker reads it, and the read does not end before the pipe is closed.
    broker.until("reading", PATIENCE, |_| {
        writer = rustix::fs::open(pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
        writer.is_some()
    });
    broker.signal(Signal::TERM);
    assert_eq!(broker.wait().status.code(), Some(143));
    drop(writer);
}

/// The broker opened the file of `--trace` when signals had to wait for this thread: with a pipe without a reader, it ignored them.
#[test]
fn a_signal_ends_a_broker_whose_trace_has_no_reader() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("trace");
    let pipe = pipe.to_str().expect("UTF-8");
    assert!(Command::new("mkfifo").arg(pipe).status().expect("mkfifo runs").success());
    // The port is chosen now: the broker does not print it before its trace is open.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let address = port.to_string();
    let args = ["broker", "--durability", "memory", "--listen", &*address, "--trace", pipe];
    let mut broker = Running::start(&mut command(&args), "");
    broker.until("listening", PATIENCE, |_| TcpStream::connect(port).is_ok());
    broker.signal(Signal::TERM);
    assert_eq!(broker.wait().status.code(), Some(143));
}

/// The signal may also come before there is a handler, or after the start: the test above has one that certainly comes between.
#[test]
fn a_broker_whose_recovery_was_interrupted_has_all_records_after_the_next_start() {
    let data = tempfile::tempdir().expect("a directory");
    let data = data.path().to_str().expect("UTF-8");
    let args = ["broker", "--data", data, "--durability", "os", "--listen", "127.0.0.1:0", "--print-json"];
    let args = [&args[..], &["--topic", "orders", "--metrics-listen", "127.0.0.1:0"]].concat();
    let ready = |broker: &mut Running| -> Value {
        broker.until("ready", PATIENCE, |it| it.stdout().ends_with('\n'));
        serde_json::from_str(&broker.stdout()).expect("one JSON object")
    };
    let mut broker = Running::start(&mut command(&args), "");
    let servers = ready(&mut broker);
    let lines = format!("{:0999}\n", 1).repeat(16 << 10);
    ottla(&["produce", "orders", "-b", bootstrap(&servers)], &lines).succeeded();
    broker.signal(Signal::KILL);
    broker.wait();
    let mut broker = Running::start(&mut command(&args), "");
    broker.until("starting", PATIENCE, |it| it.stderr().contains("metrics at "));
    broker.signal(Signal::TERM);
    let ended = broker.wait();
    match (ended.status.code(), ended.status.signal()) {
        (Some(143), _) | (_, Some(15)) => {}
        (code, _) => assert!(code == Some(0) && ended.stdout.ends_with('\n'), "it was not ready: {ended:?}"),
    }
    let mut broker = Running::start(&mut command(&args), "");
    let servers = ready(&mut broker);
    let read = ottla(&["consume", "orders", "-e", "-b", bootstrap(&servers)], "").succeeded();
    assert_eq!(read.stdout.len(), lines.len());
    end(broker);
}

#[test]
fn connections_are_cut_after_the_time_of_the_option() {
    let (broker, ready) = start(&["--drain-timeout", "0"]);
    let _hog = hog(&ready);
    let ended = end(broker);
    assert!(ended.stderr.contains("--drain-timeout"), "{}", ended.stderr);
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect()
}

#[test]
fn each_line_of_a_json_log_has_the_same_keys() {
    let (broker, _) = start(&["-v", "--log-format", "json", "-X", "num.io.threads=4"]);
    let log = json_lines(&end(broker).stderr);
    assert!(log.iter().any(|line| line["level"] == "WARN"), "a property without an effect: {log:?}");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    let refused = ottla(&["broker", "--data", path, "--listen", "127.0.0.1:0", "--log-format", "json"], "");
    let refused = refused.failed(1, &[path]);
    let failure = json_lines(&refused.stderr);
    assert_eq!(failure.last().expect("a line")["level"], "ERROR");
    for line in log.iter().chain(&failure) {
        let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["fields", "level", "message", "target", "time"]);
    }
}
