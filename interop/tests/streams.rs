//! Programs on Kafka Streams 4.3 at the Ottla broker, with exact results.
//!
//! `interop/java/Streams.java` has the stories. `cargo xtask soak streams` runs them against Apache Kafka 4.3 as well.

use std::path::Path;
use std::time::Duration;

use ottla_interop::{
    Failure, OttlaBroker, Peer, Process, application_arguments, application_kills, java_application,
    kafka_for_applications, on_application_brokers, require, run,
};

/// The stories take about 15 seconds on an idle machine.
const STORIES_WITHIN: Duration = Duration::from_secs(240);

/// The time of a rebalance, the end of a session and a restoration.
const PROGRESS_WITHIN: Duration = Duration::from_secs(60);

/// Kills in CI. After every second one in a soak, the next instance has another state directory.
const KILLS: u32 = 1;

/// Records of each of 30 keys between two kills.
const RECORDS_EACH: u32 = 100;

#[test]
fn stores_are_restored_joins_are_exact_and_two_instances_share_the_work() -> Result<(), Failure> {
    require!(Peer::Applications);
    on_application_brokers(|broker| {
        let scratch = scratch()?;
        let mut java = java_application("Streams.java")?;
        java.arg(broker.bootstrap()).arg(scratch.path()).args(["word-count", "join", "two-instances"]);
        let printed = run("Streams", &mut java, b"", STORIES_WITHIN)?.succeeded()?.stdout_text();
        println!("{printed}");
        assert!(printed.contains("all stories told"), "{printed}");
        Ok(())
    })
}

#[test]
fn an_instance_that_is_killed_leaves_each_result_exactly_once() -> Result<(), Failure> {
    require!(Peer::Applications);
    on_application_brokers(|broker| {
        let kills = application_kills().unwrap_or(KILLS);
        let scratch = scratch()?;
        let judge = Judge::start(&broker.bootstrap(), scratch.path(), kills)?;
        for kill in 0..kills {
            // With the same state directory, the next instance aborts the transaction; otherwise its timeout does.
            let directory = scratch.path().join((kill / 2).to_string());
            let mut killed = instance(&broker.bootstrap(), &directory)?;
            killed.wait_for_line("processed 1500 records", PROGRESS_WITHIN)?;
            killed.kill()?;
        }
        let _last = instance(&broker.bootstrap(), &scratch.path().join("last"))?;
        judge.approves()
    })
}

#[test]
fn a_broker_that_is_killed_leaves_each_result_exactly_once() -> Result<(), Failure> {
    require!(Peer::Applications);
    if application_kills().is_some() {
        let mut kafka = kafka_for_applications()?;
        // Its restarts take seconds, in which transactions expire: after the seventh kill of a run, an instance
        // made no progress for a minute.
        broker_is_killed(&kafka.bootstrap(), KILLS, || {
            kafka.kill_node(1)?;
            kafka.start_node(1)
        })?;
        println!("Apache Kafka 4.3: passed");
    }
    let data = scratch()?;
    let args = application_arguments();
    let start = |address: &str| {
        let mut all = vec!["--listen", address];
        all.extend(args.iter().map(String::as_str));
        OttlaBroker::start_on(data.path(), &all)
    };
    let mut broker = Some(start("127.0.0.1:0")?);
    let address = broker.as_ref().map(OttlaBroker::bootstrap).unwrap_or_default();
    let kills = application_kills().unwrap_or(KILLS);
    broker_is_killed(&address, kills, || {
        broker.take().map_or(Ok(()), OttlaBroker::kill)?;
        broker = Some(start(&address)?);
        Ok(())
    })?;
    broker.map_or(Ok(()), OttlaBroker::stop)
}

fn broker_is_killed(
    bootstrap: &str,
    kills: u32,
    mut restart: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let scratch = scratch()?;
    let judge = Judge::start(bootstrap, scratch.path(), kills)?;
    let mut working = instance(bootstrap, &scratch.path().join("state"))?;
    for kill in 1..=kills {
        working.wait_for_line(&format!("processed {} records", 2000 * kill), PROGRESS_WITHIN)?;
        restart()?;
    }
    judge.approves()
}

/// The process that feeds the instances and checks their results.
struct Judge {
    process: Process,
    kills: u32,
}

impl Judge {
    fn start(bootstrap: &str, directory: &Path, kills: u32) -> Result<Self, Failure> {
        let mut java = java_application("Streams.java")?;
        let each = (RECORDS_EACH * (kills + 1)).to_string();
        java.arg(bootstrap).arg(directory).args(["exactly-once", &each]);
        let mut process = Process::spawn("Streams", &mut java)?;
        process.wait_for_line("created", PROGRESS_WITHIN)?;
        Ok(Self { process, kills })
    }

    fn approves(mut self) -> Result<(), Failure> {
        let status = self.process.wait(STORIES_WITHIN)?;
        if !status.success() {
            return Err(self.process.quoted(&Failure::new(format!("after {} kills: {status}", self.kills))));
        }
        println!("{} kills\n{}", self.kills, String::from_utf8_lossy(&self.process.stdout()));
        Ok(())
    }
}

fn instance(bootstrap: &str, directory: &Path) -> Result<Process, Failure> {
    let mut java = java_application("Streams.java")?;
    java.arg(bootstrap).arg(directory).arg("instance");
    Process::spawn("instance", &mut java)
}

fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::tempdir().map_err(|error| Failure::new(format!("a scratch directory: {error}")))
}
