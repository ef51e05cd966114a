//! A member of a group: a program on another client, or a thread on ours.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ottla_client::{Config, Consumer, Event, Polled};
use ottla_interop::{Failure, GroupMember, Process};

use crate::foreign::in_runtime;

const CLOSED_WITHIN: Duration = Duration::from_secs(60);

/// The partitions and records that a member has reported.
#[derive(Clone, Default)]
pub(crate) struct MemberOutput {
    /// The partitions that it owns.
    pub(crate) owned: BTreeSet<i32>,
    /// The records that it has committed: partition and offset.
    pub(crate) records: Vec<(i32, i64)>,
}

/// A running member.
pub(crate) enum Member {
    /// A program.
    Program(Process),
    /// A thread of this process.
    Ours(OurMember),
}

/// A thread with our consumer.
pub(crate) struct OurMember {
    stops: Arc<AtomicBool>,
    output: Arc<Mutex<MemberOutput>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Member {
    /// Starts a member; `None` is our client. The arguments are bootstrap servers, topic, group and protocol.
    pub(crate) fn start(name: &str, client: Option<GroupMember>, args: [&str; 4]) -> Result<Self, Failure> {
        match client {
            Some(client) => Ok(Self::Program(Process::spawn(name, client.command()?.args(args))?)),
            None => Ok(Self::Ours(OurMember::start(args.map(str::to_owned)))),
        }
    }

    pub(crate) fn output(&self) -> MemberOutput {
        match self {
            Self::Program(process) => MemberOutput::parse(&String::from_utf8_lossy(&process.stdout())),
            Self::Ours(ours) => ours.output.lock().expect("no member panics with it").clone(),
        }
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        match self {
            Self::Program(process) => process.try_exit().is_none(),
            Self::Ours(ours) => ours.thread.as_ref().is_some_and(|thread| !thread.is_finished()),
        }
    }

    /// Ends the member, which leaves the group. Returns all that it has reported.
    pub(crate) fn leave(self) -> Result<MemberOutput, Failure> {
        match self {
            Self::Program(mut process) => {
                // Python and Java have no exit code of their own for SIGTERM.
                process.stop()?;
                let text = String::from_utf8_lossy(&process.stdout()).into_owned();
                if text.lines().last() != Some("left") {
                    return Err(process.quoted(&Failure::new("a member did not end well")));
                }
                Ok(MemberOutput::parse(&text))
            }
            Self::Ours(mut ours) => {
                ours.stop();
                Ok(Self::Ours(ours).output())
            }
        }
    }

    /// Ends a program without a word to the group.
    pub(crate) fn kill(self) -> Result<MemberOutput, Failure> {
        let Self::Program(mut process) = self else { return Err(Failure::new("only a program is killed")) };
        process.kill()?;
        Ok(MemberOutput::parse(&String::from_utf8_lossy(&process.stdout())))
    }

    pub(crate) fn quoted(&self, failure: &Failure) -> Failure {
        match self {
            Self::Program(process) => process.quoted(failure),
            Self::Ours(_) => Failure::new(failure.to_string()),
        }
    }
}

impl MemberOutput {
    /// Parses the lines "owns PARTITION.." and "record PARTITION OFFSET". The last line may be incomplete.
    fn parse(text: &str) -> Self {
        let mut output = Self::default();
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        for line in complete.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("owns") => output.owned = words.filter_map(|word| word.parse().ok()).collect(),
                Some("record") => {
                    let numbers: Vec<i64> = words.filter_map(|word| word.parse().ok()).collect();
                    if let [partition, offset] = numbers[..] {
                        output.records.push((partition as i32, offset));
                    }
                }
                _ => {}
            }
        }
        output
    }
}

impl OurMember {
    fn start(args: [String; 4]) -> Self {
        let (stops, output) = (Arc::<AtomicBool>::default(), Arc::<Mutex<MemberOutput>>::default());
        let (until, report) = (stops.clone(), output.clone());
        let thread = std::thread::spawn(move || in_runtime(consume(args, &until, &report)));
        Self { stops, output, thread: Some(thread) }
    }

    fn stop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the member ends well");
        }
    }
}

impl Drop for OurMember {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

async fn consume(args: [String; 4], until: &AtomicBool, report: &Mutex<MemberOutput>) {
    let [bootstrap, topic, group, protocol] = args;
    let mut config = Config::new(bootstrap);
    let properties = [
        ("group.id", &*group),
        ("group.protocol", &*protocol),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
    ];
    config.set_all(properties).expect("known properties");
    let mut consumer = Consumer::new(config).expect("a consumer");
    consumer.subscribe(&[&topic]).await.expect("subscribed");
    while !until.load(Ordering::Relaxed) {
        match consumer.poll(Duration::from_millis(100)).await.expect("a poll") {
            Some(Polled::Event(event)) => {
                let mut report = report.lock().expect("no member panics with it");
                match event {
                    Event::Assigned(partitions) => {
                        report.owned.extend(partitions.iter().map(|at| at.partition));
                    }
                    Event::Revoked(partitions) | Event::Lost(partitions) => {
                        report.owned.retain(|owned| !partitions.iter().any(|at| at.partition == *owned));
                    }
                    _ => {}
                }
            }
            Some(Polled::Records(batch)) => {
                let at = batch.partition();
                let records: Vec<(i32, i64)> =
                    batch.iter().map(|record| (at, record.expect("a sound record").offset)).collect();
                drop(batch);
                consumer.commit().await.expect("committed");
                report.lock().expect("no member panics with it").records.extend(records);
            }
            _ => {}
        }
    }
    consumer.close(CLOSED_WITHIN).await.expect("closed");
}
