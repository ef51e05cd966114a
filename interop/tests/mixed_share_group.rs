//! A share group of our consumers and of programs on other clients.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ottla_client::{Client, Record, ShareBatch, ShareConsumer};
use ottla_interop::{Failure, Process, build_foreign_go};

/// Usually milliseconds; longer on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Records that are produced before every member has received one.
const RECORDS: usize = 3000;

/// Records of one burst.
const BURST: usize = 50;

/// Produces records until every member has received some, and all are received. Each record must be received once.
///
/// The group and the members exist; the group reads from the beginning of `topic`, which is empty.
pub(crate) fn each_record_comes_once(
    client: &Client,
    topic: &str,
    mut ours: Vec<ShareConsumer>,
    mut programs: Vec<Process>,
) -> Result<(), Failure> {
    let mut seen: Vec<usize> = Vec::new();
    let mut by_ours = vec![0; ours.len()];
    // JVMs take their time to start.
    let (mut written, deadline) = (0, Instant::now() + PATIENCE * 3);
    loop {
        let by_programs: Vec<usize> = programs.iter().map(|program| printed(program).len()).collect();
        let all_take_part = by_ours.iter().chain(&by_programs).all(|count| *count > 0);
        if written < RECORDS || !all_take_part {
            if written >= RECORDS {
                std::thread::sleep(Duration::from_millis(20));
            }
            produce(client, topic, written..written + BURST);
            written += BURST;
        } else if seen.len() + by_programs.iter().sum::<usize>() >= written {
            break;
        }
        for (consumer, count) in ours.iter_mut().zip(&mut by_ours) {
            if let Some(batch) = consumer.poll_blocking(Duration::from_millis(20)).expect("no error") {
                *count += batch.len();
                seen.extend(values(&batch));
            }
        }
        let is_late = Instant::now() >= deadline;
        if is_late || programs.iter_mut().any(|program| program.try_exit().is_some()) {
            let state = Failure::new(format!("{by_ours:?} and {by_programs:?} of {written}"));
            return Err(programs.iter().fold(state, |failure, program| program.quoted(&failure)));
        }
    }
    ours.iter_mut().for_each(commit);
    for program in &mut programs {
        program.stop()?;
        seen.extend(printed(program));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..written).collect::<Vec<_>>());
    Ok(())
}

/// Builds the member on franz-go.
pub(crate) fn franz_go(scratch: &Path) -> Result<PathBuf, Failure> {
    let (source, program) = (scratch.join("main.go"), scratch.join("program"));
    std::fs::write(&source, include_str!("share_consumer/main.go"))
        .map_err(|error| Failure::new(format!("{}: {error}", source.display())))?;
    build_foreign_go(&source, &program)?;
    Ok(program)
}

/// Produces records with these numbers as key and value.
pub(crate) fn produce(client: &Client, topic: &str, values: impl Iterator<Item = usize>) {
    let producer = client.producer();
    let deliveries: Vec<_> = values
        .map(|value| {
            let value = value.to_string();
            producer.enqueue_blocking(Record::to(topic).key(&value).value(&value)).expect("taken")
        })
        .collect();
    producer.flush_blocking(PATIENCE).expect("written");
    for delivery in deliveries {
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
}

/// The numbers in the values of a batch.
pub(crate) fn values(batch: &ShareBatch) -> Vec<usize> {
    let number =
        |value: Option<&[u8]>| String::from_utf8_lossy(value.expect("a value")).parse().expect("a number");
    batch.iter().map(|record| number(record.value())).collect()
}

pub(crate) fn commit(consumer: &mut ShareConsumer) {
    for (at, result) in consumer.commit_blocking(PATIENCE).expect("answered") {
        result.unwrap_or_else(|error| panic!("{at}: {error}"));
    }
}

/// The numbers that a program has printed: one in a line, or in the `record_data` events of `VerifiableShareConsumer`.
fn printed(program: &Process) -> Vec<usize> {
    let text = String::from_utf8_lossy(&program.stdout()).into_owned();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let number = |line: &str| match line.split_once(r#""value":""#) {
        Some((_, value)) => value.split('"').next()?.parse().ok(),
        None => line.trim().parse().ok(),
    };
    complete.lines().filter_map(number).collect()
}
