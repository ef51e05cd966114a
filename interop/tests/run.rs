//! `ottla run`: child processes handle records, which are done when a result is read.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use ottla_interop::{Failure, OttlaBroker, Process, ottla, ottla_command, wait_until};

/// Time limit for the answers to all records.
const PATIENCE: Duration = Duration::from_secs(60);

const RECORDS: usize = 300;

/// A broker whose topic has numbers, and one line that the handler answers with an error.
fn filled() -> Result<OttlaBroker, Failure> {
    let broker = OttlaBroker::start(&["--topic", "orders:3", "--topic", "dead:1"])?;
    let mut lines = String::from("x:error: no such order\n");
    for number in 0..RECORDS {
        let _ = writeln!(lines, "{}:order {number}", number % 7);
    }
    let args = ["produce", "orders", "--brokers", &broker.bootstrap(), "--key-delimiter", ":"];
    ottla(&args, lines.as_bytes())?.succeeded()?;
    Ok(broker)
}

fn committed(broker: &OttlaBroker, group: &str) -> Result<u64, Failure> {
    let args = ["groups", "describe", group, "--brokers", &broker.bootstrap()];
    let text = ottla(&args, b"")?.succeeded()?.stdout_text();
    let rows = text.lines().filter(|line| line.starts_with("orders "));
    Ok(rows.filter_map(|row| row.split_whitespace().nth(2)?.parse::<u64>().ok()).sum())
}

fn printed(process: &Process) -> Vec<String> {
    String::from_utf8_lossy(&process.stdout()).lines().map(str::to_owned).collect()
}

#[test]
fn every_record_is_answered_once_and_errors_become_dead_letters() -> Result<(), Failure> {
    for batch in ["1", "20"] {
        let broker = filled()?;
        let bootstrap = broker.bootstrap();
        let args =
            ["run", "--topic", "orders", "--group", "workers", "--workers", "3", "--print", "--brokers"];
        let more = ["--retries", "1", "--retry-delay-ms", "5", "--dead-letters", "dead", "--order", "key"];
        let tail = ["--batch", batch, "--", "cat"];
        let mut command = ottla_command(&[&args[..], &[&*bootstrap], &more, &tail].concat())?;
        let mut workers = Process::spawn("ottla run", &mut command)?;
        let dead = ["consume", "dead", "--from", "beginning", "-n", "1", "--brokers", &bootstrap];
        let all = wait_until("all answers", PATIENCE, || (printed(&workers).len() >= RECORDS).then_some(()));
        all.map_err(|failure| workers.quoted(&failure))?;
        let dead = ottla(&[&dead[..], &["-f", "%s %h\n"]].concat(), b"")?.succeeded()?.stdout_text();
        assert!(dead.starts_with("error: no such order "), "{dead}");
        assert!(dead.contains("ottla.error.reason=no such order"), "{dead}");
        assert!(dead.contains("ottla.error.attempts=2"), "{dead}");
        assert!(workers.stop()?.success(), "{}", workers.quoted(&Failure::new("it stops as it should")));
        let lines = printed(&workers);
        let distinct: BTreeSet<_> = lines.iter().collect();
        assert_eq!((lines.len(), distinct.len()), (RECORDS, RECORDS));
        for key in 0..7 {
            let of_key = lines.iter().filter_map(|line| line.strip_prefix("order ")?.parse::<usize>().ok());
            let of_key: Vec<_> = of_key.filter(|number| number % 7 == key).collect();
            assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
        }
        assert_eq!(committed(&broker, "workers")?, RECORDS as u64 + 1);
    }
    Ok(())
}

#[test]
fn a_process_that_ends_leaves_its_record_to_the_next() -> Result<(), Failure> {
    let broker = filled()?;
    let bootstrap = broker.bootstrap();
    let args = ["run", "--topic", "orders", "--group", "workers", "--workers", "2", "--print", "--json"];
    // Each process answers ten records and exits.
    let script = "n=0; while [ $n -lt 10 ] && read -r line; do echo \"$line\"; n=$((n+1)); done";
    let tail =
        ["--brokers", &bootstrap, "--retries", "1000", "--retry-delay-ms", "1", "--", "sh", "-c", script];
    let mut command = ottla_command(&[&args[..], &tail].concat())?;
    let mut workers = Process::spawn("ottla run", &mut command)?;
    let done = wait_until("all answers", PATIENCE, || (printed(&workers).len() > RECORDS).then_some(()));
    done.map_err(|failure| workers.quoted(&failure))?;
    assert!(workers.stop()?.success());
    let lines = printed(&workers);
    assert!(lines.iter().all(|line| line.starts_with('{') && line.contains("\"offset\":")), "{lines:?}");
    let distinct: BTreeSet<_> = lines.iter().collect();
    assert_eq!(distinct.len(), RECORDS + 1);
    assert_eq!(committed(&broker, "workers")?, RECORDS as u64 + 1);
    Ok(())
}
