//! The outcome of one test, read from its exit status and its output.

use std::fmt;
use std::process::ExitStatus;
use std::time::Duration;

/// The result of one test on one library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// A signal ended the process before the test had failed.
    Crashed,
    /// The test's own deadline or ours expired.
    Hung,
    Skipped,
}

impl Verdict {
    const ALL: [Self; 5] = [Self::Passed, Self::Failed, Self::Crashed, Self::Hung, Self::Skipped];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Crashed => "crashed",
            Self::Hung => "hung",
            Self::Skipped => "skipped",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.word() == word)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A verdict with its reason and the time that the test took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) took: Duration,
    /// The first failure, the reason of a skipped test, or nothing. One line without tabs.
    pub(super) detail: String,
}

/// The way a process ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exit {
    Status(ExitStatus),
    /// We ended it at our deadline.
    Deadline(Duration),
}

impl Exit {
    /// The outcome of a test; `verdict` reads the one of a test that ended itself.
    pub(super) fn outcome(
        self,
        took: Duration,
        verdict: impl FnOnce(ExitStatus) -> (Verdict, String),
    ) -> Outcome {
        let (verdict, detail) = match self {
            Self::Deadline(within) => (Verdict::Hung, format!("not done within {} s", within.as_secs())),
            Self::Status(status) => verdict(status),
        };
        Outcome::new(verdict, took, &detail)
    }
}

/// The longest detail: a report has it in a table's cell.
const DETAIL_CHARS_MAX: usize = 200;

impl Outcome {
    /// An outcome with one line of detail, in which everything that differs from run to run is cut.
    pub(super) fn new(verdict: Verdict, took: Duration, detail: &str) -> Self {
        Self { verdict, took, detail: short(&steady(detail)) }
    }

    pub(super) fn has_passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }

    /// A failure may come from the load of other tests. A hang has had much more time than the test needs.
    pub(super) fn may_pass_alone(&self) -> bool {
        self.verdict == Verdict::Failed
    }
}

/// The last line of a program's output that is not empty.
pub(super) fn last_line(output: &str) -> Option<String> {
    output.lines().rev().map(without_colours).find(|line| !line.trim().is_empty())
}

/// Removes a terminal's colours.
pub(super) fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut parts = line.split("\u{1b}[");
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, text)| text));
    }
    plain
}

/// Replaces ports, addresses and random parts of names, which differ from run to run, by `*`.
fn steady(detail: &str) -> String {
    let mut text = detail.replace(&*ottla_interop::target_dir().to_string_lossy(), "TARGET");
    for before in RANDOM {
        let mut parts = text.split(before);
        let mut cut = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
            cut.push_str(before);
            cut.push_str(if rest.len() < part.len() { "*" } else { "" });
            cut.push_str(rest);
        }
        text = cut;
    }
    text
}

/// Texts before digits that differ. Ports are decimal, which is hexadecimal too.
const RANDOM: &[&str] = &["127.0.0.1:", "_rnd", "0x"];

fn short(detail: &str) -> String {
    let line: String = detail.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= DETAIL_CHARS_MAX {
        return line;
    }
    line.chars().take(DETAIL_CHARS_MAX).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_beyond_our_deadline_hangs() {
        let within = Duration::from_secs(60);
        let outcome = Exit::Deadline(within).outcome(within, |_| unreachable!("it did not end"));
        assert_eq!((outcome.verdict, outcome.detail.as_str()), (Verdict::Hung, "not done within 60 s"));
    }

    #[test]
    fn details_are_one_short_line_that_is_the_same_in_the_next_run() {
        let detail = "topic x_rnd12ab34_0001 at 127.0.0.1:9092,127.0.0.1:9093:\n\tno\tmessage after 0x7f00aa";
        let outcome = Outcome::new(Verdict::Failed, Duration::ZERO, detail);
        assert_eq!(outcome.detail, "topic x_rnd*_0001 at 127.0.0.1:*,127.0.0.1:*: no message after 0x*");
        let long = Outcome::new(Verdict::Failed, Duration::ZERO, &"a".repeat(500));
        assert_eq!(long.detail.len(), DETAIL_CHARS_MAX + 3);
        assert_eq!(Verdict::parse("hung"), Some(Verdict::Hung));
    }
}
