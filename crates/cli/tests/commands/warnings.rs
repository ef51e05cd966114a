//! Problems while a command runs are reported without `-v`, one line each.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use ottla_broker::{Broker, Fault};
use ottla_protocol::{ApiKey, ErrorCode};

use crate::support::{PATIENCE, Running, at, binary, broker, command, ottla};

/// The time limit for a warning. Earlier, no warning was printed for 15 to 120 s.
const SOON: Duration = Duration::from_secs(4);

/// Returns the warning, which is printed soon and is the only one.
#[track_caller]
fn one_warning(running: &mut Running, words: &[&str]) -> String {
    running.until("warned", SOON, |it| it.stderr().contains("ottla: warning: "));
    // Long enough for the same to come again.
    running.until("goes on", PATIENCE, {
        let begun = std::time::Instant::now();
        move |_| begun.elapsed() > Duration::from_millis(2500)
    });
    let stderr = running.stderr();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "`{word}` is not in {stderr}");
    }
    for internal in ["os error", "facility", "CorrId", "ottla#", " ERROR ", " WARN "] {
        assert!(!stderr.contains(internal), "{internal}: {stderr}");
    }
    stderr
}

#[test]
fn a_broker_whose_disk_fails_is_reported_while_records_wait() {
    let broker = broker(3);
    broker.cluster().intercept(ApiKey::Produce, None, 10_000, Fault::Fail(ErrorCode::KafkaStorageError));
    let servers = broker.bootstrap_servers();
    let mut running = Running::start(&mut command(&["produce", "orders", "-b", &servers]), "1\n2\n3\n4\n");
    let warning =
        one_warning(&mut running, &["orders [", "retrying rejected records", "KAFKA_STORAGE_ERROR"]);
    assert!(!warning.contains("ottla doctor"), "the cause is known: {warning}");
}

/// The limit of the size of files stands for a disk without space: both refuse a write.
#[test]
fn a_full_disk_is_reported_by_the_producer_and_once_by_the_broker() {
    let dir = tempfile::tempdir().expect("a directory");
    // SIGXFSZ is ignored: the write fails as it does on a full disk.
    let script = "ulimit -f 64; trap '' 25; exec \"$0\" broker --data \"$1\" --durability os --listen 127.0.0.1:0 --topic orders:1";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(binary()).arg(dir.path());
    let mut broker = Running::start(&mut shell, "");
    broker.until("listening", PATIENCE, |it| it.stdout().contains("listening on "));
    let servers = broker.stdout().trim().replace("listening on ", "");
    let lines = format!("{}\n", "x".repeat(1000)).repeat(500);
    let mut running = Running::start(&mut command(&["produce", "orders", "-b", &servers]), &lines);
    one_warning(&mut running, &["orders [0]", "File too large"]);
    one_warning(&mut broker, &["File too large"]);
}

#[test]
fn an_advertised_listener_on_which_nothing_listens_is_reported() {
    let nowhere = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
    let builder = Broker::builder().memory().topic("orders", 2).advertise(nowhere.to_string());
    let broker = builder.spawn().expect("a broker");
    let servers = broker.addresses()[0].to_string();
    let words = [&*nowhere.to_string(), "Connection refused", "a broker advertises", "`ottla doctor`"];
    let produce = ["produce", "orders", "-b", &servers];
    one_warning(&mut Running::start(&mut command(&produce), "1\n"), &words);
    let consume = ["consume", "orders", "-b", &servers];
    one_warning(&mut Running::start(&mut command(&consume), ""), &words);
    let group = ["consume", "orders", "--group", "readers", "-b", &servers];
    one_warning(&mut Running::start(&mut command(&group), ""), &words);
}

#[test]
fn an_error_is_printed_once_and_in_words() {
    let nowhere = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
    for args in [&["topics", "list"][..], &["consume", "orders"], &["produce", "orders"], &["groups", "list"]]
    {
        let ended = ottla(&[args, &["-b", &nowhere.to_string()]].concat(), "");
        let expected = format!(
            "ottla: no broker could be reached at {nowhere}: connection to {nowhere}: Connection refused (run `ottla doctor` with the same connection arguments to find the cause)\n"
        );
        assert_eq!(ended.stderr, expected);
        assert_eq!(ended.status.code(), Some(1));
    }
}

#[test]
fn a_healthy_cluster_gives_no_warning() {
    let broker = broker(3);
    let produced = at(&broker, &["produce", "orders"], "1\n2\n").succeeded();
    assert_eq!(produced.stderr.lines().count(), 1, "the summary: {}", produced.stderr);
    let consumed = at(&broker, &["consume", "orders", "--group", "g", "--exit-at-end"], "").succeeded();
    assert_eq!(consumed.stderr, "");
}
