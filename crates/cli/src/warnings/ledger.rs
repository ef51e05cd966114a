//! Selects the log events to show, and their text.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::failure::without_os_error;

/// Delay before a failing connection is reported. A later attempt may succeed, and a command that ends reports it
/// itself.
const FAILING_AFTER: Duration = Duration::from_millis(1500);

/// Delay before an unanswered connection attempt is reported.
const SILENT_AFTER: Duration = Duration::from_millis(2500);

/// Number of failed attempts after which a batch is reported; 0.7 s with the default backoff.
const ATTEMPTS_MIN: u32 = 4;

/// Minimum interval between reports of the same problem.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of different problems in a [`REPEAT_INTERVAL`]. Others are reported by one line, unless they are errors.
const PROBLEMS_MAX: usize = 100;

/// The part of a problem's text that distinguishes it from others.
const PROBLEM_CHARS_MAX: usize = 500;

/// A log event.
#[derive(Debug, Default)]
pub(super) struct LogEvent {
    /// `true` for errors too.
    pub(super) is_warning: bool,
    pub(super) is_error: bool,
    /// The client's log facility; empty for others.
    pub(super) facility: String,
    pub(super) message: String,
    /// The other fields, as text to append to the message.
    pub(super) rest: String,
}

/// The reported problems, and the pending connections.
#[derive(Debug)]
pub(super) struct Ledger {
    /// `true` until a line has pointed to `ottla doctor`.
    doctor: bool,
    reported: BTreeMap<String, ReportedProblem>,
    /// The line about warnings above [`PROBLEMS_MAX`].
    overflow: Option<ReportedProblem>,
    connections: BTreeMap<String, PendingConnection>,
}

/// The command that finds the cause of a problem.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Hint {
    /// The doctor, which examines connections and brokers.
    Doctor,
    /// The line has the cause: a full disk, or the answer of a program.
    None,
}

#[derive(Debug)]
struct ReportedProblem {
    at: Instant,
    is_error: bool,
    /// Number of repetitions since the last report.
    repeated: u64,
}

#[derive(Debug)]
struct PendingConnection {
    since: Instant,
    failure: Option<String>,
    reported: bool,
}

impl Ledger {
    pub(super) fn new(doctor: bool) -> Self {
        Self { doctor, reported: BTreeMap::new(), overflow: None, connections: BTreeMap::new() }
    }

    /// `true` if a pending connection was not reported yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.connections.values().any(|waiting| !waiting.reported)
    }

    /// The line for an event, if it must be shown now.
    pub(super) fn on_event(&mut self, now: Instant, event: LogEvent) -> Option<String> {
        match &*event.facility {
            "CONNECT" | "CONNECTED" | "FAIL" => self.on_connection(now, &event),
            "RETRY" => {
                let (what, problem) = event.message.split_once(" attempt(s): ")?;
                let attempts: u32 = what.rsplit(' ').next()?.parse().ok()?;
                let place = what.split(": MessageSet").next()?;
                if attempts < ATTEMPTS_MIN {
                    return None;
                }
                let line = format!("{place}: retrying rejected records: {problem}");
                self.report(now, &format!("records {problem}"), line, Hint::None, event.is_error)
            }
            "STALL" if event.is_warning => {
                let (stall, _) = event.message.split_once(" for ")?;
                // The connection was already reported.
                let known = event.message.contains("no connection")
                    && self.connections.values().any(|waiting| waiting.reported);
                if known {
                    return None;
                }
                self.report(now, stall, without_correlation(&event.message), Hint::Doctor, event.is_error)
            }
            "STALL" => {
                let (stall, _) = event.message.split_once(": over ")?;
                let reported = self.reported.contains_key(&problem_of(stall));
                reported.then(|| format!("ottla: {}", without_correlation(&event.message)))
            }
            _ if event.is_warning => {
                let line = format!("{}{}", event.message, event.rest);
                self.report(now, &line, line.clone(), Hint::None, event.is_error)
            }
            _ => None,
        }
    }

    /// The lines about connections that have been pending for too long. Addresses outside `bootstrap` were advertised
    /// by a broker.
    pub(super) fn due(&mut self, now: Instant, bootstrap: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for (address, waiting) in &mut self.connections {
            let limit = if waiting.failure.is_some() { FAILING_AFTER } else { SILENT_AFTER };
            if !waiting.reported && now.saturating_duration_since(waiting.since) >= limit {
                waiting.reported = true;
                let why = waiting.failure.as_deref().unwrap_or("no answer yet");
                let from = if is_given(bootstrap, address) {
                    ""
                } else {
                    ", which a broker advertises as its address"
                };
                lines.push((address.clone(), format!("no connection to {address}{from}: {why}; retrying")));
            }
        }
        lines
            .into_iter()
            .filter_map(|(address, line)| {
                self.report(now, &format!("to {address}"), line, Hint::Doctor, false)
            })
            .collect()
    }

    fn on_connection(&mut self, now: Instant, event: &LogEvent) -> Option<String> {
        let (address, text) = event.message.split_once(": ")?;
        match &*event.facility {
            "CONNECTED" => {
                let waiting = self.connections.remove(address)?;
                let seconds = now.saturating_duration_since(waiting.since).as_secs_f64();
                waiting.reported.then(|| format!("ottla: connected to {address} after {seconds:.1} s"))
            }
            facility => {
                if self.connections.len() < PROBLEMS_MAX || self.connections.contains_key(address) {
                    let new = PendingConnection { since: now, failure: None, reported: false };
                    let waiting = self.connections.entry(address.to_owned()).or_insert(new);
                    if facility == "FAIL" {
                        let why = text.strip_prefix(&format!("connection to {address}: ")).unwrap_or(text);
                        waiting.failure = Some(why.to_owned());
                    }
                }
                None
            }
        }
    }

    fn report(
        &mut self,
        now: Instant,
        problem: &str,
        line: String,
        hint: Hint,
        is_error: bool,
    ) -> Option<String> {
        let problem = problem_of(problem);
        let new = ReportedProblem { at: now, is_error, repeated: 0 };
        let mut since = String::new();
        if let Some(reported) = self.reported.get_mut(&problem) {
            if reported.is_recent(now) {
                reported.repeated += 1;
                return None;
            }
            since = format!(" (repeated {} times since the last line)", reported.repeated);
            *reported = new;
        } else if self.make_room(now, is_error) {
            self.reported.insert(problem, new);
        } else {
            return self.report_overflow(now);
        }
        let doctor = if hint == Hint::Doctor && std::mem::take(&mut self.doctor) {
            " (run `ottla doctor` with the same connection arguments to find the cause)"
        } else {
            ""
        };
        Some(format!("ottla: warning: {}{since}{doctor}", without_os_error(&line)))
    }

    /// Forgets problems if there are too many: those that would be reported again anyway, or the oldest one for an error.
    /// Returns `true` if there is room for another.
    fn make_room(&mut self, now: Instant, is_error: bool) -> bool {
        if self.reported.len() < PROBLEMS_MAX {
            return true;
        }
        self.reported.retain(|_, reported| reported.is_recent(now));
        if is_error && self.reported.len() >= PROBLEMS_MAX {
            // Warnings before errors: a new error is always reported.
            let oldest = self.reported.iter().min_by_key(|(_, reported)| (reported.is_error, reported.at));
            if let Some(problem) = oldest.map(|(problem, _)| problem.clone()) {
                self.reported.remove(&problem);
            }
        }
        self.reported.len() < PROBLEMS_MAX
    }

    /// The line for a warning that has no room, once in an interval.
    fn report_overflow(&mut self, now: Instant) -> Option<String> {
        let before = match &mut self.overflow {
            Some(reported) if reported.is_recent(now) => {
                reported.repeated += 1;
                return None;
            }
            Some(reported) => format!(" ({} since the last line like this)", reported.repeated),
            None => String::new(),
        };
        self.overflow = Some(ReportedProblem { at: now, is_error: false, repeated: 1 });
        Some(format!(
            "ottla: warning: more than {PROBLEMS_MAX} different warnings in {} s: others are not shown{before}; -v shows all",
            REPEAT_INTERVAL.as_secs()
        ))
    }
}

impl ReportedProblem {
    /// Returns `true` if a repetition of the problem is not reported.
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < REPEAT_INTERVAL
    }
}

/// The problem in a text: its first part without the numbers, which differ each time.
fn problem_of(text: &str) -> String {
    let mut problem = String::new();
    for letter in text.chars().take(PROBLEM_CHARS_MAX) {
        match letter {
            '0'..='9' if problem.ends_with('#') => {}
            '0'..='9' => problem.push('#'),
            letter => problem.push(letter),
        }
    }
    problem
}

/// Removes the client's own request numbers.
fn without_correlation(text: &str) -> String {
    match text.split_once(" (CorrId ") {
        Some((before, after)) => format!("{before}{}", after.split_once(')').map_or("", |(_, rest)| rest)),
        None => text.to_owned(),
    }
}

fn is_given(bootstrap: &str, address: &str) -> bool {
    let host = address.strip_suffix(":9092").unwrap_or(address);
    bootstrap
        .split(',')
        .map(|server| server.trim().split_once("://").map_or(server.trim(), |(_, server)| server))
        .any(|server| server == address || server == host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(facility: &str, message: &str) -> LogEvent {
        let is_warning = matches!(facility, "STALL" | "");
        let (facility, message) = (facility.into(), message.into());
        LogEvent { is_warning, is_error: false, facility, message, rest: String::new() }
    }

    #[test]
    fn a_connection_that_keeps_failing_is_reported() {
        let (start, mut ledger) = (Instant::now(), Ledger::new(true));
        let at = |ms| start + Duration::from_millis(ms);
        ledger.on_event(at(0), event("CONNECT", "b:9092: connecting"));
        let refused = "b:9092: connection to b:9092: Connection refused (os error 111)";
        assert_eq!(ledger.on_event(at(10), event("FAIL", refused)), None);
        assert_eq!(ledger.due(at(1000), "a:9092"), [""; 0]);
        let lines = ledger.due(at(1600), "a:9092");
        assert_eq!(lines.len(), 1);
        let line = "ottla: warning: no connection to b:9092, which a broker advertises as its address: Connection refused; retrying (run `ottla doctor`";
        assert!(lines[0].starts_with(line), "{}", lines[0]);
        let stall = "no connection to b:9092 for 5004 ms: attempt 9 to connect; the last failure: refused";
        assert_eq!(ledger.on_event(at(5004), event("STALL", stall)), None, "one line for one problem");
        assert_eq!(ledger.due(at(9000), "a:9092"), [""; 0]);
        let connected = ledger.on_event(at(9000), event("CONNECTED", "b:9092: connected"));
        assert_eq!(connected.as_deref(), Some("ottla: connected to b:9092 after 9.0 s"));
        assert!(!ledger.is_waiting());

        ledger.on_event(at(9000), event("CONNECT", "a:9092: connecting"));
        ledger.on_event(at(9001), event("FAIL", "a:9092: refused"));
        assert_eq!(ledger.on_event(at(9500), event("CONNECTED", "a:9092: connected")), None, "in time");
    }

    #[test]
    fn repeatedly_rejected_records_are_reported_for_each_problem() {
        let (now, mut ledger) = (Instant::now(), Ledger::new(false));
        let retry = |partition, attempts, problem| {
            let text = format!(
                "orders [{partition}]: MessageSet with 3 message(s) goes again after {attempts} attempt(s): {problem}"
            );
            event("RETRY", &text)
        };
        assert_eq!(ledger.on_event(now, retry(0, 1, "disk full")), None, "this may pass");
        let line = ledger.on_event(now, retry(0, 4, "disk full at offset 17 (os error 28)"));
        let expected = "ottla: warning: orders [0]: retrying rejected records: disk full at offset 17";
        assert_eq!(line.as_deref(), Some(expected));
        assert_eq!(ledger.on_event(now, retry(1, 4, "disk full at offset 3 (os error 28)")), None);
        assert!(ledger.on_event(now, retry(1, 4, "no leader")).is_some());
        let later =
            ledger.on_event(now + REPEAT_INTERVAL, retry(1, 9, "disk full at offset 3 (os error 28)"));
        assert!(later.is_some_and(|line| line.ends_with("(repeated 1 times since the last line)")));
    }

    #[test]
    fn the_first_problem_that_the_doctor_can_examine_points_to_it() {
        let (now, mut ledger) = (Instant::now(), Ledger::new(true));
        let line = ledger.on_event(now, event("", "the handler answered: no such order")).expect("a warning");
        assert!(!line.contains("doctor"), "{line}");
        let stall =
            ledger.on_event(now, event("STALL", "no answer to Fetch (CorrId 7) from a:1 for 5000 ms"));
        assert!(stall.is_some_and(|line| line.contains("run `ottla doctor`")));
        let other =
            ledger.on_event(now, event("STALL", "no answer to Produce (CorrId 8) from a:1 for 5000 ms"));
        assert!(other.is_some_and(|line| !line.contains("doctor")), "once is enough");
    }

    /// After 100 different warnings, no new warning and no error was reported until the end of the process.
    #[test]
    fn new_problems_are_reported_after_many_others() {
        let (start, mut ledger) = (Instant::now(), Ledger::new(false));
        let problem = |number: usize| {
            // Without digits, which do not distinguish problems.
            let name: String =
                number.to_string().bytes().map(|digit| (digit - b'0' + b'a') as char).collect();
            event("", &format!("problem {name}"))
        };
        for number in 0..PROBLEMS_MAX {
            assert!(ledger.on_event(start, problem(number)).is_some());
        }
        let overflow = ledger.on_event(start, problem(1000)).expect("one line for the others");
        assert!(overflow.contains("more than 100 different warnings in 60 s"), "{overflow}");
        assert_eq!(ledger.on_event(start, problem(1001)), None);
        let error = |number| LogEvent { is_error: true, ..problem(number) };
        for number in 2000..2200 {
            assert!(ledger.on_event(start, error(number)).is_some(), "an error");
            assert_eq!(ledger.on_event(start, error(number)), None, "its repetition");
        }
        assert!(ledger.reported.len() <= PROBLEMS_MAX);
        let later = start + REPEAT_INTERVAL;
        for number in 3000..3000 + PROBLEMS_MAX {
            assert!(ledger.on_event(later, problem(number)).is_some(), "the others are forgotten");
        }
        let overflow = ledger.on_event(later, problem(4000)).expect("the next line");
        assert!(overflow.contains("(2 since the last line like this)"), "{overflow}");
    }

    #[test]
    fn a_long_text_is_a_problem_by_its_first_part() {
        let (now, mut ledger) = (Instant::now(), Ledger::new(false));
        let long = "x".repeat(1 << 20);
        assert!(ledger.on_event(now, event("", &long)).is_some_and(|line| line.ends_with(&long)));
        assert!(ledger.reported.keys().all(|problem| problem.len() <= PROBLEM_CHARS_MAX));
    }

    #[test]
    fn the_end_of_a_reported_stall_is_reported() {
        let (now, mut ledger) = (Instant::now(), Ledger::new(false));
        let text = "no answer to Fetch (CorrId 7) from a:1 for 5000 ms: 3 requests wait";
        let line = ledger.on_event(now, event("STALL", text));
        assert_eq!(
            line.as_deref(),
            Some("ottla: warning: no answer to Fetch from a:1 for 5000 ms: 3 requests wait")
        );
        let over = |text: &str| LogEvent { is_warning: false, ..event("STALL", text) };
        let line = ledger.on_event(now, over("no answer to Fetch (CorrId 7) from a:1: over after 6000 ms"));
        assert_eq!(line.as_deref(), Some("ottla: no answer to Fetch from a:1: over after 6000 ms"));
        assert_eq!(ledger.on_event(now, over("something else: over after 1 ms")), None);
    }
}
