//! `ottla bench patterns` with small numbers of messages.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use ottla_interop::{Failure, OttlaBroker, ottla};
use serde_json::Value;

/// The JSON lines of its output.
fn patterns(broker: &OttlaBroker, args: &[&str]) -> Result<Vec<Value>, Failure> {
    let bootstrap = broker.bootstrap();
    let common = ["bench", "patterns", "--brokers", &bootstrap, "--topic", "patterns", "--json"];
    let text = ottla(&[&common[..], args].concat(), b"")?.succeeded()?.stdout_text();
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect())
}

#[test]
fn rounds_add_up() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&["--topic", "patterns:2"])?;
    let rows = patterns(
        &broker,
        &["--count", "2000", "--fill", "0", "--mode", "sync,multi-batch", "--rounds", "3"],
    )?;
    let rounds: Vec<_> = rows.iter().map(|it| (it["mode"].as_str(), it["messages"].as_u64())).collect();
    assert_eq!(rounds, [(Some("sync"), Some(6000)), (Some("multi-batch"), Some(6000))]);
    assert!(rows.iter().all(|it| it["cores"].as_f64() > Some(0.0)), "{rows:?}");
    // `{"id":N}`: 8 bytes around 1 to 4 digits.
    let bytes = 3 * (2000 * 7 + 10 + 90 * 2 + 900 * 3 + 1000 * 4);
    assert!(rows.iter().all(|it| it["bytes"].as_u64() == Some(bytes)), "{bytes}: {rows:?}");
    Ok(())
}

#[test]
fn a_live_producer_is_followed_in_every_mode() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&[])?;
    let rows = patterns(&broker, &["--live", "2000", "--seconds", "1", "--partitions", "2"])?;
    let modes: Vec<_> = rows.iter().filter_map(|it| it["mode"].as_str()).collect();
    assert_eq!(modes, ["sync", "batch", "multi-async", "multi-batch"]);
    for lag in &rows {
        assert!(lag["messages"].as_u64() > Some(0) && lag["bounded"].is_boolean(), "{lag}");
        let latency = &lag["latency_us"];
        assert!(
            latency["p50"].as_f64() > Some(0.0) && latency["p50"].as_f64() <= latency["max"].as_f64(),
            "{lag}"
        );
    }
    Ok(())
}

#[test]
fn handlers_that_wait_are_held_against_what_is_possible() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&["--topic", "patterns:2"])?;
    let rows = patterns(&broker, &["--count", "3000", "--fill", "0", "--waits"])?;
    let waits = rows[0]["waits"].as_array().expect("a row for each");
    let rows: Vec<_> =
        waits.iter().map(|it| (it["handler"].as_str().unwrap_or_default(), it["at_once"].as_u64())).collect();
    assert_eq!((rows.len(), rows[0], rows[14]), (15, ("async", Some(1)), ("blocking", Some(200))));
    // One concurrent handler reaches a good part of it on any machine.
    assert!(waits[0]["share"].as_f64() > Some(0.1), "{}", waits[0]);
    Ok(())
}

#[test]
fn members_that_are_killed_or_leave_lose_nothing() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&[])?;
    for ending in ["--crash", "--rebalance"] {
        let rows =
            patterns(&broker, &[ending, "1", "--block-us", "200", "--order", "key", "--partitions", "3"])?;
        assert_eq!(rows.len(), 4, "{rows:?}");
        for row in rows {
            let number = |name: &str| row[name].as_u64();
            assert_eq!((number("lost"), number("overtaken")), (Some(0), Some(0)), "{ending}: {row}");
            if ending == "--rebalance" {
                assert_eq!(number("repeated"), Some(0), "{row}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_peer_that_is_not_built_is_named_with_the_command_that_builds_it() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&["--topic", "patterns"])?;
    let bootstrap = broker.bootstrap();
    let args = ["bench", "patterns", "--brokers", &bootstrap, "--topic", "patterns", "--against", "sarama"];
    let output = ottla(&args, b"")?;
    let text = output.stderr_text();
    assert!(text.contains("cargo xtask peer sarama") && text.contains("OTTLA_PEER_SARAMA"), "{text}");
    Ok(())
}
