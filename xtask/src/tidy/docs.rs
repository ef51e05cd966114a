//! Rules for the documents: every link and every pointer into the code leads somewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Tree};

/// The beginnings of pointers into the tree.
const TOPS: &[&str] =
    &["crates/", "sim/", "interop/", "bench/", "fuzz/", "xtask/", "docs/", ".ci/", ".cargo/", "examples/"];

/// The keywords that define an item.
const ITEM_WORDS: &[&str] =
    &["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!", "union"];

/// The anchors of each document, by its path.
type Anchors<'a> = BTreeMap<&'a str, BTreeSet<String>>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let anchors: Anchors<'_> =
        tree.with_extension(&["md"]).map(|(path, text)| (path, anchors_of(text))).collect();
    for (path, text) in tree.with_extension(&["md"]) {
        for (line, number) in prose(text) {
            links(tree, &anchors, (path, number), line, &mut findings);
            pointers(tree, path, number, line, &mut findings);
        }
    }
    findings
}

/// The lines of a document that are not in blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut in_block = false;
    text.lines().zip(1..).filter(move |(line, _)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

/// `[text](target)`, relative to the document; targets elsewhere are not looked up.
fn links(
    tree: &Tree,
    anchors: &Anchors<'_>,
    (path, number): (&str, usize),
    line: &str,
    findings: &mut Vec<Finding>,
) {
    for (at, _) in line.match_indices("](") {
        let Some(target) = line[at + 2..].split([')', ' ']).next() else { continue };
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let resolved = if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
        let Some(resolved) = resolved.filter(|resolved| tree.has(resolved)) else {
            findings.push(Finding::new(path, number, format!("the link to {target} leads nowhere")));
            continue;
        };
        let is_missing = |known: &BTreeSet<String>| !anchor.is_empty() && !known.contains(anchor);
        if anchors.get(resolved.as_str()).is_some_and(is_missing) {
            findings.push(Finding::new(path, number, format!("{resolved} has no heading #{anchor}")));
        }
    }
}

/// The anchors of the headings of a document, by GitHub's rule. A repeated one has a number.
fn anchors_of(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).filter_map(|(line, _)| heading_of(line)) {
        let anchor = anchor_of(heading);
        let mut unique = anchor.clone();
        let mut repeated = 0;
        while !anchors.insert(unique.clone()) {
            repeated += 1;
            unique = format!("{anchor}-{repeated}");
        }
    }
    anchors
}

/// The text of a line that is a heading.
fn heading_of(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim())
}

/// Returns a heading in lower case, with hyphens for spaces, without other signs and without the targets of links.
fn anchor_of(heading: &str) -> String {
    let parts = heading.split("](").enumerate();
    let shown = parts.map(|(at, part)| match part.split_once(')') {
        Some((_, behind)) if at > 0 => behind,
        _ => part,
    });
    let text = shown.collect::<String>().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// `` `crates/x/src/y.rs` `` and `` `crates/x/src/y.rs:item` ``, with `Type::item` allowed.
fn pointers(tree: &Tree, path: &str, number: usize, line: &str, findings: &mut Vec<Finding>) {
    for span in line.split('`').skip(1).step_by(2).filter(|span| TOPS.iter().any(|top| span.starts_with(top)))
    {
        // Patterns and placeholders (`crates/*`, `<request>`) name no one file.
        if span.contains(['*', '<', '{', ' ']) {
            continue;
        }
        let (file, item) = span.split_once(':').unwrap_or((span, ""));
        if !tree.has(file) {
            findings.push(Finding::new(path, number, format!("{file} does not exist")));
        } else if let Some(text) = tree.get(file) {
            let item = item.trim_matches(':').rsplit("::").next().unwrap_or_default().trim_end_matches("()");
            if !item.is_empty() && !defines(text, item) {
                findings.push(Finding::new(path, number, format!("{file} has no {item}")));
            }
        }
    }
}

fn defines(text: &str, item: &str) -> bool {
    text.match_indices(item).any(|(at, _)| {
        let word =
            text[..at].trim_end().rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
        let after = text[at + item.len()..].chars().next();
        ITEM_WORDS.contains(&word) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// `target` as seen from `document`, as a path from the root; none when it leaves the tree.
fn resolve(document: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const CODE: (&str, &str) = ("crates/log/src/log.rs", "impl Log {\n    pub fn append(&mut self) {}\n}\n");

    const README: &str = "# The top\n\n## C\n\n## C\n\n## A `fail`-ed [link](docs/WALK.md): it's (not) one, 4.4\n\n\
                          ```sh\n# no heading\n```\n";

    fn findings_in(document: &str) -> Vec<String> {
        let tree = tree(&[CODE, ("docs/WALK.md", document), ("README.md", README)]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn links_and_pointers_that_lead_somewhere_are_silent() {
        assert!(
            findings_in("# A\n[up](../README.md#the-top) [out](https://example.org/x) [here](#a)\n")
                .is_empty()
        );
        let pointers =
            "`crates/log/src/log.rs:Log::append` `crates/log/src/log.rs:append` `crates/log` `crates/*`\n";
        assert!(findings_in(pointers).is_empty());
        assert!(findings_in("```\n[not](a-link.md)\n```\n").is_empty());
    }

    #[test]
    fn broken_links_and_pointers_are_named() {
        assert_eq!(findings_in("[x](missing.md)\n"), ["the link to missing.md leads nowhere"]);
        assert_eq!(findings_in("[x](../../out.md)\n"), ["the link to ../../out.md leads nowhere"]);
        assert_eq!(findings_in("# Here\n[x](#there)\n"), ["docs/WALK.md has no heading #there"]);
        assert_eq!(findings_in("`crates/log/src/gone.rs`\n"), ["crates/log/src/gone.rs does not exist"]);
        assert_eq!(findings_in("`crates/log/src/log.rs:appen`\n"), ["crates/log/src/log.rs has no appen"]);
    }

    #[test]
    fn anchors_have_githubs_rule() {
        let is_known = |anchor: &str| findings_in(&format!("[x](../README.md#{anchor})\n")).is_empty();
        for anchor in ["the-top", "c", "c-1", "a-fail-ed-link-its-not-one-44"] {
            assert!(is_known(anchor), "{anchor}");
        }
        for anchor in ["top", "The-top", "c-2", "no-heading", "a-fail-ed-link"] {
            assert!(!is_known(anchor), "{anchor}");
        }
        assert!(findings_in("[x](../crates/log/src/log.rs#L1)\n").is_empty(), "a line of code");
    }
}
