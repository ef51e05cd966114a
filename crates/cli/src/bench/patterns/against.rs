//! `ottla bench patterns --against`: speed, latency, losses and repeats of each mode, beside another library's.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use ottla_parallel::Mode;
use serde_json::{Value, json};

use super::crash::{Ending, Members, Outcome, Program, create_topic, measure};
use super::live::{self, ProducerProgress};
use super::{Args, fill, produce};
use crate::bench::BenchSetup;
use crate::connect::runtime;
use crate::failure::{Failure, sentence};
use crate::output::{note, print};
use crate::table::Table;

/// Messages per second while latencies are measured, and its default duration in seconds.
const RATE: u64 = 10;
const SECONDS: u64 = 10;

/// Number of kills, and of rebalances.
const ENDINGS: u64 = 3;

/// The results of a program in a mode.
struct Row {
    program: &'static str,
    mode: &'static str,
    rate: f64,
    cpu_ns: f64,
    memory_kb: u64,
    p50_us: f64,
    p99_us: f64,
    killed: Outcome,
    rebalanced: Outcome,
}

pub(super) fn run(args: &Args, prepared: &BenchSetup, peer: &str) -> Result<(), Failure> {
    let path = find(peer)?;
    fill(args, prepared)?;
    let programs = [("Ottla", Program::Ottla), ("Sarama", Program::Peer(path))];
    let mut rows = Vec::new();
    for mode in args.modes() {
        for (name, program) in &programs {
            note(&format!("{}: {name}", mode.name()));
            rows.push(row(args, prepared, mode, name, program)?);
        }
    }
    print(&render(args, &rows))
}

/// The program of a peer: a path in its environment variable, or a program of its name in the search path.
fn find(peer: &str) -> Result<PathBuf, Failure> {
    let variable = format!("OTTLA_PEER_{}", peer.to_uppercase());
    let name = format!("ottla-peer-{peer}");
    let given = std::env::var_os(&variable).map(PathBuf::from);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates =
        given.into_iter().chain(std::env::split_paths(&folders).map(|folder| folder.join(&name)));
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        Failure::failed(format!(
            "peer `{peer}` is not built: run `cargo xtask peer {peer}` in Ottla's repository, and set {variable} to the path that it prints"
        ))
    })
}

fn row(
    args: &Args,
    prepared: &BenchSetup,
    mode: Mode,
    name: &'static str,
    program: &Program,
) -> Result<Row, Failure> {
    let speed = speed(args, mode, program)?;
    let latency = latency(args, prepared, mode, program)?;
    let endings = |ending| measure(args, &prepared.client, mode, program, ending, ENDINGS);
    let (killed, rebalanced) = (endings(Ending::Kill)?, endings(Ending::Leave)?);
    let number =
        |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN);
    Ok(Row {
        program: name,
        mode: mode.name(),
        rate: number(&speed, "/msgs_per_s"),
        cpu_ns: number(&speed, "/cpu_ns_per_msg"),
        memory_kb: speed["max_rss_kb"].as_u64().unwrap_or(0),
        p50_us: number(&latency, "/latency_us/p50"),
        p99_us: number(&latency, "/latency_us/p99"),
        killed,
        rebalanced,
    })
}

/// Reads the topic once, in a process of its own.
fn speed(args: &Args, mode: Mode, program: &Program) -> Result<Value, Failure> {
    let common = &args.common;
    let (count, workers) = (common.count.to_string(), args.workers.to_string());
    let shared =
        ["--topic", &*common.topic, "--mode", mode.name(), "--count", &*count, "--workers", &*workers];
    let mut command = match program {
        Program::Ottla => {
            let own = std::env::current_exe();
            let mut command = Command::new(
                own.map_err(|error| Failure::failed(format!("own program: {}", sentence(&error))))?,
            );
            command.args(["bench", "patterns", "--json"]).args(common.connect.arguments());
            if let Some(order) = args.order {
                command.args(["--order", super::order_name(order)]);
            }
            command
        }
        Program::Peer(path) => {
            let mut command = Command::new(path);
            command.args(["--brokers", &common.config()?.bootstrap_servers]);
            command
        }
    };
    let output = command.args(shared).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output =
        output.map_err(|error| Failure::failed(format!("cannot start a reader: {}", sentence(&error))))?;
    if !output.status.success() {
        return Err(Failure::failed(format!("a reader failed: {}", output.status)));
    }
    last_object(&String::from_utf8_lossy(&output.stdout))
}

/// Measures the latency at [`RATE`].
fn latency(args: &Args, prepared: &BenchSetup, mode: Mode, program: &Program) -> Result<Value, Failure> {
    let topic = create_topic(args, &prepared.client, mode)?;
    let members = Members::new(args, mode, program, &topic)?.block_us(0);
    let measured = members.start().and_then(|mut member| {
        // A first message, without a time, shows that the member has its partitions.
        produce(&prepared.client, &topic, 0..1, 0)?;
        members.await_handled(&mut member, 1)?;
        let seconds = Duration::from_secs(args.seconds.unwrap_or(SECONDS));
        let sent: std::sync::Arc<ProducerProgress> = std::sync::Arc::default();
        let producer = live::produce(args.common.config()?, topic.clone(), RATE, seconds, sent.clone());
        producer.join().map_err(|_| Failure::failed("the producer's thread panicked"))??;
        members.await_handled(&mut member, sent.count.load(std::sync::atomic::Ordering::Acquire))?;
        last_object(&member.leave()?)
    });
    runtime()?.block_on(prepared.client.admin().delete_topics(&[&topic]))?;
    measured
}

/// The JSON object in the last line that has one.
fn last_object(text: &str) -> Result<Value, Failure> {
    let object = text.lines().rev().find_map(|line| serde_json::from_str(line).ok().filter(Value::is_object));
    object.ok_or_else(|| Failure::failed("a reader printed no measurements"))
}

fn render(args: &Args, rows: &[Row]) -> String {
    let mut table = Table::new([
        "MODE",
        "READER",
        "M/S",
        "CPU NS",
        "RSS MB",
        "P50 MS",
        "P99 MS",
        "LOST",
        "REPEATED",
        "OVERTAKEN",
        "LOST, LEFT",
        "REPEATED, LEFT",
    ]);
    for row in rows {
        table.row([
            row.mode.to_owned(),
            row.program.to_owned(),
            format!("{:.2}", row.rate / 1e6),
            format!("{:.0}", row.cpu_ns),
            format!("{:.0}", row.memory_kb as f64 / 1e3),
            format!("{:.2}", row.p50_us / 1e3),
            format!("{:.2}", row.p99_us / 1e3),
            row.killed.lost.to_string(),
            row.killed.repeated.to_string(),
            row.killed.overtaken.to_string(),
            row.rebalanced.lost.to_string(),
            row.rebalanced.repeated.to_string(),
        ]);
    }
    let (count, messages) = (args.common.count, rows.first().map_or(0, |row| row.killed.messages));
    let mut text = format!(
        "{count} messages for the speed; latencies at {RATE} messages per second; {messages} messages with {ENDINGS} kills\n\
         (LOST, REPEATED, OVERTAKEN) and with {ENDINGS} members that join and leave (LEFT)\n{}",
        table.render()
    );
    if args.common.json {
        let rows: Vec<Value> = rows.iter().map(json).collect();
        text += &format!("{}\n", json!({ "patterns": rows }));
    }
    text
}

fn json(row: &Row) -> Value {
    let outcome =
        |it: &Outcome| json!({ "lost": it.lost, "repeated": it.repeated, "overtaken": it.overtaken });
    json!({
        "mode": row.mode,
        "reader": row.program,
        "msgs_per_s": row.rate,
        "cpu_ns_per_msg": row.cpu_ns,
        "max_rss_kb": row.memory_kb,
        "latency_us": { "p50": row.p50_us, "p99": row.p99_us },
        "killed": outcome(&row.killed),
        "rebalanced": outcome(&row.rebalanced),
    })
}
