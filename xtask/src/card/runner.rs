//! Runs tests in processes with deadlines, a few at a time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_interop::{Failure, wait_until};

use super::kafka::Kafka;
use super::outcome::{Exit, Outcome};
use super::results::Results;
use super::suite::{Side, Suite, Test, by_scenario};
use crate::shell::end_with_descendants;

/// A run of tests on one library, or on one broker.
pub(super) struct Run<'a> {
    pub(super) suite: &'a dyn Suite,
    /// The side of the cluster, for a suite that compares brokers.
    pub(super) side: Side,
    /// The directory of the library, for `LD_LIBRARY_PATH`.
    pub(super) library: PathBuf,
    /// The directory of logs and configurations.
    pub(super) dir: PathBuf,
    /// Tests that run at the same time: most of them wait most of the time.
    pub(super) jobs: usize,
}

impl Run<'_> {
    /// Runs `tests`, one cluster per scenario, and records each outcome. A test that does not pass runs a second time
    /// alone: its own time limits are made for an idle machine. `within` is the deadline of a test.
    pub(super) fn run(
        &self,
        tests: &[&Test],
        within: impl Fn(&Test) -> Duration + Sync,
        results: &mut Results,
    ) -> Result<(), Failure> {
        fs::create_dir_all(&self.dir)
            .map_err(|error| Failure::new(format!("{}: {error}", self.dir.display())))?;
        for (scenario, tests) in by_scenario(tests) {
            let kafka = self.suite.cluster(scenario, self.side, &self.dir)?;
            let batches = self.suite.batches(&tests);
            self.run_on(&kafka, &batches, self.jobs.min(self.suite.jobs_max()), &within, results)?;
            let again: Vec<Vec<&Test>> = tests
                .into_iter()
                .filter(|test| results.of(&test.name()).is_some_and(Outcome::may_pass_alone))
                .map(|test| vec![test])
                .collect();
            self.run_on(&kafka, &again, 1, &within, results)?;
        }
        Ok(())
    }

    fn run_on(
        &self,
        kafka: &Kafka,
        batches: &[Vec<&Test>],
        jobs: usize,
        within: &(impl Fn(&Test) -> Duration + Sync),
        results: &mut Results,
    ) -> Result<(), Failure> {
        let queue = Mutex::new(batches.iter());
        let results = Mutex::new(results);
        std::thread::scope(|scope| {
            let work = || -> Result<(), Failure> {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(batch) = next else { return Ok(()) };
                    for (test, outcome) in self.run_batch(kafka, batch, within)? {
                        let (name, took) = (test.name(), outcome.took.as_secs_f64());
                        println!("{:8} {name:18} {took:>6.1} s  {}", outcome.verdict, outcome.detail);
                        results.lock().unwrap_or_else(PoisonError::into_inner).record(&name, outcome)?;
                    }
                }
            };
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })
    }

    /// Runs tests in one process, and those without an outcome in a process each.
    fn run_batch<'a>(
        &self,
        kafka: &Kafka,
        batch: &[&'a Test],
        within: &impl Fn(&Test) -> Duration,
    ) -> Result<Vec<(&'a Test, Outcome)>, Failure> {
        let output = match batch {
            [] | [_] => String::new(),
            [first, ..] => {
                let mut command = self.suite.batch_command(batch, kafka)?;
                let log = self.dir.join(format!("from-{}.log", file_name(first)));
                execute(&mut command, &log, batch.iter().map(|test| within(test)).sum())?;
                read(&log)?
            }
        };
        let outcome = |test: &&'a Test| {
            let in_batch = self.suite.outcome_in_batch(test, &output);
            let outcome = in_batch.map_or_else(|| self.run_test(kafka, test, within(test)), Ok);
            Ok((*test, outcome?))
        };
        batch.iter().map(outcome).collect()
    }

    fn run_test(&self, kafka: &Kafka, test: &Test, within: Duration) -> Result<Outcome, Failure> {
        let mut command = self.suite.command(test, &self.library, kafka, &self.dir)?;
        let log = self.log(test);
        let started = Instant::now();
        let exit = execute(&mut command, &log, within)?;
        let output = read(&log)?;
        Ok(exit.outcome(started.elapsed(), |status| self.suite.verdict(status, &output)))
    }

    /// The output of the last run of `test`.
    pub(super) fn log(&self, test: &Test) -> PathBuf {
        self.dir.join(format!("{}.log", file_name(test)))
    }
}

fn file_name(test: &Test) -> String {
    test.name().replace(['/', ':'], "_")
}

fn read(log: &Path) -> Result<String, Failure> {
    let output = fs::read(log).map_err(|error| Failure::new(format!("{}: {error}", log.display())))?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Runs `command` with its output in `log`. Past the deadline it is ended with every process below it.
fn execute(command: &mut Command, log: &Path, within: Duration) -> Result<Exit, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let spawn = || {
        let output = File::create(log)?;
        let errors = output.try_clone()?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn()
    };
    let mut child = { spawn }().map_err(|error| Failure::new(format!("{name} does not start: {error}")))?;
    let exit = wait_until(&name, within, || child.try_wait().transpose());
    match exit {
        Ok(Ok(status)) => Ok(Exit::Status(status)),
        Ok(Err(error)) => Err(Failure::new(format!("{name}: {error}"))),
        Err(_) => {
            end_with_descendants(child.id());
            let _ = child.wait();
            Ok(Exit::Deadline(within))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ended_at_its_deadline_and_its_output_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo begun; sleep 60; true"]);
        let exit = execute(&mut shell, &log, Duration::from_millis(300)).unwrap();
        assert!(matches!(exit, Exit::Deadline(_)));
        assert_eq!(fs::read_to_string(&log).unwrap(), "begun\n");
        let mut shell = Command::new("sh");
        let exit = execute(shell.args(["-c", "exit 3"]), &log, Duration::from_secs(20)).unwrap();
        assert!(matches!(exit, Exit::Status(status) if status.code() == Some(3)));
    }
}
