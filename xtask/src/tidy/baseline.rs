//! Known exceptions to the newer rules, as numbers that can only fall: `xtask/src/tidy/baseline.txt`.
//!
//! A number that rises above its line in the file breaks the rule. A number that falls below it is a finding as well,
//! so that the file is lowered in the same commit; `cargo xtask tidy --lower` does that.

use std::collections::BTreeMap;

use super::{Finding, Tree};

pub(super) const PATH: &str = "xtask/src/tidy/baseline.txt";

const HEADER: &str = "\
# Exceptions that may only shrink. `cargo xtask tidy --lower` removes what is no longer needed; it raises nothing.
#   words CLASS CRATE = hits of the rules for words      doc-comments CRATE = misplaced doc comments
#   function CRATE NAME = lines of a long function       layer CRATE FROM -> TO = imports against the layers
";

/// One exception that a rule has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Debt {
    /// The name of the number, as in the file before the `=`.
    pub(super) key: String,
    pub(super) count: usize,
    /// Where it is, and the advice.
    pub(super) finding: Finding,
}

/// Sorted counts per key; a key may occur more than once.
type Counts<'a> = BTreeMap<&'a str, Vec<usize>>;

pub(super) fn check(tree: &Tree, debts: &[Debt]) -> Vec<Finding> {
    let (allowed, mut findings) = parse(tree.get(PATH).unwrap_or_default());
    let mut by_key: BTreeMap<&str, Vec<&Debt>> = BTreeMap::new();
    for debt in debts {
        by_key.entry(&debt.key).or_default().push(debt);
    }
    for (key, debts) in &mut by_key {
        debts.sort_by_key(|debt| std::cmp::Reverse(debt.count));
        let allowed = allowed.get(key).map(Vec::as_slice).unwrap_or_default();
        for (index, debt) in debts.iter().enumerate() {
            match allowed.get(index) {
                None => findings.push(debt.finding.clone()),
                Some(&allowed) if debt.count > allowed => findings.push(Finding {
                    what: format!("{} ({} counted, {allowed} allowed)", debt.finding.what, debt.count),
                    ..debt.finding.clone()
                }),
                Some(&allowed) if debt.count < allowed => {
                    findings.push(lowered(key, &format!("{allowed} to {}", debt.count)));
                }
                Some(_) => {}
            }
        }
    }
    for (key, allowed) in &allowed {
        let debts = by_key.get(key).map_or(0, Vec::len);
        for count in allowed.iter().skip(debts) {
            findings.push(lowered(key, &format!("{count} to nothing")));
        }
    }
    findings
}

fn lowered(key: &str, change: &str) -> Finding {
    Finding::new(PATH, 0, format!("`{key}` fell from {change}: run `cargo xtask tidy --lower`"))
}

/// The file as it would be if every number were as counted.
///
/// A merge of branches that move or rename code needs it: the names of functions and layers change then.
pub(super) fn counts(debts: &[Debt]) -> String {
    let mut counted: Counts<'_> = BTreeMap::new();
    for debt in debts {
        counted.entry(&debt.key).or_default().push(debt.count);
    }
    let mut text = HEADER.to_owned();
    for (key, counts) in &mut counted {
        counts.sort_by_key(|&count| std::cmp::Reverse(count));
        for count in counts {
            text.extend([key, " = ", &count.to_string(), "\n"]);
        }
    }
    text
}

/// The file with every number lowered to the counted one.
pub(super) fn lower(tree: &Tree, debts: &[Debt]) -> String {
    let (allowed, _) = parse(tree.get(PATH).unwrap_or_default());
    let mut counted: Counts<'_> = BTreeMap::new();
    for debt in debts {
        counted.entry(&debt.key).or_default().push(debt.count);
    }
    let mut text = HEADER.to_owned();
    for (key, counts) in &mut counted {
        counts.sort_by_key(|&count| std::cmp::Reverse(count));
        let allowed = allowed.get(key).map(Vec::as_slice).unwrap_or_default();
        for (&count, &allowed) in counts.iter().zip(allowed) {
            text.extend([key, " = ", &count.min(allowed).to_string(), "\n"]);
        }
    }
    text
}

/// The counts per key, highest first, and the lines that are none.
fn parse(text: &str) -> (Counts<'_>, Vec<Finding>) {
    let mut counts: Counts<'_> = BTreeMap::new();
    let mut findings = Vec::new();
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.starts_with('#')) {
        let parsed =
            line.rsplit_once(" = ").and_then(|(key, count)| Some((key, count.parse::<usize>().ok()?)));
        match parsed {
            Some((key, count)) => counts.entry(key).or_default().push(count),
            None => findings.push(Finding::new(PATH, number, "no `KEY = NUMBER`")),
        }
    }
    for counts in counts.values_mut() {
        counts.sort_by_key(|&count| std::cmp::Reverse(count));
    }
    (counts, findings)
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn debt(key: &str, count: usize) -> Debt {
        Debt { key: key.to_owned(), count, finding: Finding::new("a.rs", 1, key) }
    }

    #[test]
    fn a_number_that_rises_or_falls_is_found_and_an_equal_one_is_not() {
        let tree = tree(&[(PATH, "# Why.\nwords public a = 3\n")]);
        assert_eq!(check(&tree, &[debt("words public a", 3)]), []);
        let risen = check(&tree, &[debt("words public a", 4)]);
        assert_eq!(risen[0].what, "words public a (4 counted, 3 allowed)");
        let fallen = check(&tree, &[debt("words public a", 2)]);
        assert_eq!(fallen[0].what, "`words public a` fell from 3 to 2: run `cargo xtask tidy --lower`");
        let gone = check(&tree, &[]);
        assert_eq!(gone[0].what, "`words public a` fell from 3 to nothing: run `cargo xtask tidy --lower`");
        assert_eq!(check(&tree, &[debt("words public a", 3), debt("b", 1)]).len(), 1, "b has no line");
    }

    #[test]
    fn equal_keys_are_compared_in_order_of_their_numbers() {
        let tree = tree(&[(PATH, "function a run = 90\nfunction a run = 120\n")]);
        assert_eq!(check(&tree, &[debt("function a run", 120), debt("function a run", 90)]), []);
        assert_eq!(check(&tree, &[debt("function a run", 121), debt("function a run", 90)]).len(), 1);
    }

    #[test]
    fn lowering_never_raises() {
        let tree = tree(&[(PATH, "a = 3\nb = 2\nc = 1\n")]);
        let text = lower(&tree, &[debt("a", 1), debt("b", 5), debt("new", 1)]);
        assert_eq!(text.strip_prefix(HEADER), Some("a = 1\nb = 2\n"));
    }

    #[test]
    fn counts_are_a_baseline_without_findings() {
        let debts = [debt("b", 90), debt("a", 3), debt("b", 120)];
        let text = counts(&debts);
        assert_eq!(text.strip_prefix(HEADER), Some("a = 3\nb = 120\nb = 90\n"));
        assert_eq!(check(&tree(&[(PATH, &text)]), &debts), []);
    }

    #[test]
    fn a_line_that_is_none_is_found() {
        let tree = tree(&[(PATH, "words\n")]);
        assert_eq!(check(&tree, &[])[0].line, 1);
    }
}
