//! `ottla broker --control` and `ottla fault`: a test in any language makes the broker misbehave.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Ended, PATIENCE, Running, broker, command, ottla};

/// A broker in memory with two nodes and the topic `orders`, and its control address.
struct Controlled {
    broker: Running,
    servers: String,
    control: Vec<String>,
    dir: TempDir,
}

impl Controlled {
    fn start(control: impl Fn(&Path) -> Vec<String>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let control = control(dir.path());
        let fixed = [
            "broker",
            "--durability",
            "memory",
            "--listen",
            "127.0.0.1:0",
            "--topic",
            "orders",
            "--nodes",
            "2",
        ];
        let args: Vec<&str> = fixed.into_iter().chain(control.iter().map(String::as_str)).collect();
        let mut broker = Running::start(&mut command(&args), "");
        broker.until("listening", PATIENCE, |it| it.stdout().lines().count() == 2);
        let lines = broker.stdout();
        let servers: Vec<&str> =
            lines.lines().filter_map(|line| line.strip_prefix("listening on ")).collect();
        Self { servers: servers.join(","), broker, control, dir }
    }

    fn at_socket() -> Self {
        Self::start(|dir| vec!["--control".into(), format!("unix:{}/control", dir.display())])
    }

    fn fault(&self, args: &[&str]) -> Ended {
        let control: Vec<&str> = self.control.iter().map(String::as_str).collect();
        ottla(&[&["fault"], args, &control].concat(), "")
    }

    fn ok(&self, args: &[&str]) -> Value {
        let printed = self.fault(args).succeeded().stdout;
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    }

    fn produce(&self, properties: &[&str]) -> Ended {
        let properties: Vec<&str> = properties.iter().flat_map(|property| ["-X", property]).collect();
        ottla(&[&["produce", "orders", "--brokers", &self.servers], &*properties].concat(), "paid\n")
    }
}

/// `now compact` failed with the topic of the example.
#[test]
fn the_examples_of_the_guide_to_tests_work_with_their_topic() {
    let broker = Controlled::at_socket();
    let guide = include_str!("../../../../docs/TESTING.md");
    let examples: Vec<&str> =
        guide.lines().filter_map(|line| line.strip_prefix("ottla fault now ")).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let words: Vec<&str> = example.split(' ').collect();
        broker.ok(&[&["now"], &words[..]].concat());
    }
}

#[test]
fn a_fault_meets_the_client_and_topic_it_names_and_then_is_over() {
    let broker = Controlled::at_socket();
    let rule = [
        "add",
        "Produce",
        "fail",
        "--error",
        "MESSAGE_TOO_LARGE",
        "--client-id",
        "till",
        "--topic",
        "orders",
    ];
    let id = broker.ok(&rule)["id"].as_u64().expect("an id");
    broker.produce(&["client.id=office"]).succeeded();
    let listed = json!({ "faults": [{ "id": id, "api": "Produce", "action": "fail", "error": "MESSAGE_TOO_LARGE",
        "client_id": "till", "topic": "orders", "count": 1 }] });
    assert_eq!(broker.ok(&["list"]), listed);
    broker.produce(&["client.id=till", "retries=0"]).failed(1, &["MESSAGE_TOO_LARGE"]);
    assert_eq!(broker.ok(&["list"]), json!({ "faults": [] }));
    broker.fault(&["remove", &id.to_string()]).failed(1, &["there is no fault"]);
}

#[test]
fn the_disk_is_full_for_the_topic_and_the_calls_that_are_named() {
    let mut broker = Controlled::at_socket();
    let id =
        broker.ok(&["disk", "add", "write", "full", "--topic", "orders", "--partition", "0"])["id"].clone();
    // It was `DiskRule { call: Write, .. }`.
    broker
        .broker
        .until("warned", PATIENCE, |it| it.stderr().contains("write calls of orders-0 have no room"));
    let listed =
        json!({ "disk_faults": [{ "id": id, "call": "write", "action": "full", "directory": "orders-0" }] });
    assert_eq!(broker.ok(&["disk", "list"]), listed);
    broker.produce(&["message.timeout.ms=1500"]).failed(1, &["orders"]);
    broker.ok(&["disk", "remove", &id.to_string()]);
    broker.produce(&[]).succeeded();
    broker.fault(&["disk", "remove", &id.to_string()]).failed(1, &["there is no fault", "of the disk"]);
    broker.fault(&["disk", "add", "sync", "slow"]).failed(2, &["--delay-ms"]);
    broker.fault(&["disk", "add", "sync", "fail", "--partition", "0"]).failed(2, &["--topic"]);
}

#[test]
fn nodes_leaders_and_coordinators_are_moved() {
    let broker = Controlled::at_socket();
    broker.ok(&["move", "--to", "2", "--topic", "orders"]);
    broker.ok(&["move", "--to", "2", "--group", "billing"]);
    broker.ok(&["follow", "--at", "1", "--topic", "orders", "--low", "0"]);
    broker.ok(&["follow", "--at", "-1", "--topic", "orders"]);
    broker.fault(&["follow", "--at", "9", "--topic", "orders"]).failed(1, &["there is no node 9"]);
    broker.ok(&["node", "1", "stop"]);
    broker.produce(&[]).succeeded();
    broker.ok(&["node", "1", "start"]);
    broker.ok(&["node", "3", "add"]);
    // A node that starts leads the partitions again that it led first.
    broker.ok(&["move", "--to", "2", "--topic", "orders"]);
    broker.ok(&["node", "2", "lag", "--lag-ms", "300"]);
    let began = Instant::now();
    broker.produce(&[]).succeeded();
    assert!(began.elapsed() >= Duration::from_millis(300), "node 2 leads, and answers late");
    broker.fault(&["node", "9", "stop"]).failed(1, &["there is no node 9"]);
    broker.fault(&["add", "Fetch", "cut", "--node", "9"]).failed(1, &["there is no node 9"]);
    broker.fault(&["move", "--to", "9", "--topic", "orders"]).failed(1, &["node 9 is not up"]);
}

#[test]
fn a_node_is_paused_and_resumed() {
    let broker = Controlled::at_socket();
    broker.ok(&["move", "--to", "2", "--topic", "orders"]);
    broker.ok(&["node", "2", "pause"]);
    // The other node names it as the leader, and it does not answer.
    broker.produce(&["message.timeout.ms=1500"]).failed(1, &["not acknowledged"]);
    broker.ok(&["node", "2", "resume"]);
    broker.produce(&[]).succeeded();
    broker.ok(&["node", "2", "stop"]);
    broker.fault(&["node", "2", "pause"]).failed(1, &["node 2 is not up"]);
    // A broker with a paused node ends.
    broker.ok(&["node", "1", "pause"]);
    let Controlled { broker, dir: _dir, .. } = broker;
    broker.signal(Signal::TERM);
    broker.wait().succeeded();
}

#[test]
fn work_is_done_now_and_states_are_waited_for() {
    let broker = Controlled::at_socket();
    broker.ok(&["requests"]);
    broker.produce(&[]).succeeded();
    assert_eq!(broker.ok(&["now", "roll", "--topic", "orders"]), json!({ "rolled": 1 }));
    broker.ok(&["now", "apply-retention"]);
    broker.fault(&["now", "compact", "--topic", "orders"]).failed(1, &["`cleanup.policy`"]);
    broker.fault(&["now", "compact", "--topic", "bills"]).failed(1, &["no topic `bills`"]);
    broker.ok(&["wait", "--api", "Produce", "--count", "1"]);
    assert!(broker.ok(&["requests"])["Produce"].as_u64() >= Some(1));
    let foo = ["wait", "--group", "billing", "--state", "Foo"];
    broker.fault(&foo).failed(2, &["`Foo` is no state", "PreparingRebalance", "Stable"]);
    let late = broker.fault(&["wait", "--group", "billing", "--state", "Stable", "--within-ms", "20"]);
    late.failed(1, &["state Stable of group billing did not come about within 20 ms: Dead"]);
}

#[test]
fn a_broker_is_restored_and_forked() {
    let broker = Controlled::at_socket();
    broker.ok(&["snapshot", "empty"]);
    broker.produce(&[]).succeeded();
    let fork = broker.ok(&["fork", "--snapshot", "empty"]);
    assert_eq!(fork["id"], json!(1));
    assert_ne!(fork["bootstrap_servers"], json!(broker.servers));
    broker.ok(&["add", "Produce", "fail", "--error", "NOT_ENOUGH_REPLICAS", "--of-fork", "1"]);
    assert_eq!(broker.ok(&["list"]), json!({ "faults": [] }));
    broker.ok(&["restore", "empty"]);
    assert_eq!(broker.ok(&["now", "roll", "--topic", "orders"]), json!({ "rolled": 0 }), "it is empty again");
    broker.produce(&[]).succeeded();
    broker.ok(&["end-fork", "1"]);
    broker.fault(&["end-fork", "1"]).failed(1, &["there is no fork 1"]);
    broker.fault(&["restore", "other"]).failed(1, &["there is no snapshot `other`"]);
    broker.fault(&["snapshot", "a/b"]).failed(2, &["letters, digits"]);
}

#[test]
fn a_socket_is_its_owners_alone_and_goes_with_the_broker() {
    let broker = Controlled::at_socket();
    let socket = broker.dir.path().join("control");
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    let second = format!("unix:{}", socket.display());
    let taken =
        ottla(&["broker", "--durability", "memory", "--listen", "127.0.0.1:0", "--control", &second], "");
    taken.failed(1, &["another process uses the socket"]);
    broker.ok(&["list"]);
    let Controlled { broker, dir, .. } = broker;
    broker.signal(Signal::TERM);
    broker.wait().succeeded();
    assert!(!dir.path().join("control").exists());
}

#[test]
fn only_the_socket_of_a_broker_that_was_killed_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("control");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
    let address = format!("unix:{}", socket.display());
    let file = dir.path().join("notes");
    fs::write(&file, "kept").expect("written");
    let at_file = format!("unix:{}", file.display());
    ottla(&["broker", "--durability", "memory", "--listen", "127.0.0.1:0", "--control", &at_file], "")
        .failed(1, &["a file has this name"]);
    assert_eq!(fs::read_to_string(&file).expect("a file"), "kept");
    let broker = Controlled::start(|_| vec!["--control".into(), address.clone()]);
    broker.ok(&["list"]);
}

#[test]
fn a_port_answers_only_with_the_token() {
    let token = |dir: &Path| dir.join("token").display().to_string();
    // The port is chosen now: the broker is asked at an address that the test must know.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let broker = Controlled::start(|dir| {
        vec!["--control".into(), port.to_string(), "--control-token".into(), token(dir)]
    });
    let file = PathBuf::from(token(broker.dir.path()));
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    broker.ok(&["list"]);
    ottla(&["fault", "list", "--control", &port.to_string()], "").failed(1, &["Authorization"]);
    fs::write(&file, "0123456789abcdef0123456789abcdef\n").expect("written");
    broker.fault(&["list"]).failed(1, &["Authorization", "--control-token"]);
}

#[test]
fn addresses_and_actions_that_do_not_exist_are_usage_errors() {
    let outside = ["broker", "--durability", "memory", "--control", "192.0.2.1:1"];
    ottla(&outside, "").failed(2, &["from its own machine"]);
    let tokenless =
        ["broker", "--durability", "memory", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    ottla(&tokenless, "").failed(2, &["--control-token"]);
    ottla(&["fault", "list"], "").failed(2, &["--control"]);
    ottla(&["fault", "add", "Produce", "explode", "--control", "unix:x"], "").failed(2, &["explode"]);
    ottla(&["fault", "list", "--control", "unix:/nonexistent/x"], "").failed(1, &["ottla broker --control"]);
}

/// They returned 1, as a broker that cannot do it now.
#[test]
fn arguments_that_the_broker_refuses_are_usage_errors() {
    let broker = Controlled::at_socket();
    broker.fault(&["add", "Produc", "cut"]).failed(2, &["`Produc` is no API"]);
    broker.fault(&["add", "Produce", "cut", "--count", "0"]).failed(2, &[]);
    broker.fault(&["node", "-1", "add"]).failed(2, &["an id is 0 or above"]);
    let below = ["follow", "--at", "1", "--topic", "orders", "--high", "-5"];
    broker.fault(&below).failed(2, &["offsets from 0 on, not -5"]);
}

#[test]
fn a_trace_has_a_line_for_each_request_with_its_client_and_errors() {
    let broker = Controlled::start(|dir| {
        let [control, trace] =
            [format!("unix:{}/control", dir.display()), format!("{}/trace", dir.display())];
        ["--control", &control, "--trace", &trace].map(str::to_owned).into()
    });
    let trace = broker.dir.path().join("trace");
    // The options of `ottla fault` are without those of the broker.
    let control = &broker.control[..2].iter().map(String::as_str).collect::<Vec<_>>();
    let rule = ["fault", "add", "Produce", "fail", "--error", "NOT_ENOUGH_REPLICAS", "--client-id", "till"];
    let _added = ottla(&[&rule, &control[..]].concat(), "").succeeded();
    let _written = broker.produce(&["client.id=till"]).succeeded();

    let text = fs::read_to_string(trace).expect("a trace");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let produced: Vec<Value> = lines.filter(|line| line["api"] == "Produce").collect();
    let [refused, written] = &*produced else { panic!("two requests: {produced:?}") };
    assert_eq!(refused["errors"], json!(["NOT_ENOUGH_REPLICAS"]));
    assert_eq!((&written["errors"], &written["sent"]), (&json!([]), &json!(true)));
    assert_eq!((&written["client_id"], &written["moved_records"]), (&json!("till"), &json!(true)));
    for number in ["at_ms", "node", "version", "took_us"] {
        assert!(written[number].is_u64(), "{number}: {written}");
    }
}

/// 64 waits had all places, and the request that would have ended them was not accepted.
#[test]
fn waits_leave_places_for_other_requests() {
    let broker = Controlled::at_socket();
    let send = |method: &str, path: &str, body: &str| {
        let mut stream = UnixStream::connect(broker.dir.path().join("control")).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    };
    let endless = r#"{"group":"billing","state":"Stable","within_ms":600000}"#;
    let mut waits: Vec<UnixStream> = (0..64).map(|_| send("POST", "/wait", endless)).collect();
    let mut refused = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while refused.len() < 32 {
        assert!(Instant::now() < deadline, "{} waits are refused", refused.len());
        waits.retain_mut(|wait| {
            let mut start = [0; 12];
            wait.set_nonblocking(true).expect("set");
            match wait.read(&mut start) {
                Ok(length) => {
                    refused.push(String::from_utf8_lossy(&start[..length]).into_owned());
                    false
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    true
                }
            }
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(refused.iter().all(|start| start == "HTTP/1.1 409"), "{refused:?}");
    assert_eq!(waits.len(), 32, "the others wait");
    let mut overview = String::new();
    send("GET", "/", "").read_to_string(&mut overview).expect("an answer in time");
    assert!(overview.starts_with("HTTP/1.1 200"), "{overview}");
}

/// It was `connection closed before message completed`.
#[test]
fn a_listener_of_clients_is_no_control_address() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    let listed = ottla(&["fault", "list", "--control", &*servers], "");
    listed.failed(1, &[&*servers, "is it the address of `ottla broker --control`?"]);
}
