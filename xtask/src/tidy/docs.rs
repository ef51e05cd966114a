//! Rules for the documents: every link and every pointer into the code leads somewhere.

use super::{Finding, Tree};

/// The beginnings of pointers into the tree.
const TOPS: &[&str] =
    &["crates/", "sim/", "interop/", "bench/", "fuzz/", "xtask/", "docs/", ".ci/", ".cargo/", "examples/"];

/// The keywords that define an item.
const ITEM_WORDS: &[&str] =
    &["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!", "union"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension(&["md"]) {
        let mut in_block = false;
        for (line, number) in text.lines().zip(1..) {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if !in_block {
                links(tree, path, number, line, &mut findings);
                pointers(tree, path, number, line, &mut findings);
            }
        }
    }
    findings
}

/// `[text](target)`, relative to the document; targets elsewhere are not looked up.
fn links(tree: &Tree, path: &str, number: usize, line: &str, findings: &mut Vec<Finding>) {
    for (at, _) in line.match_indices("](") {
        let Some(target) = line[at + 2..].split([')', ' ']).next() else { continue };
        let file = target.split('#').next().unwrap_or_default();
        if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        match resolve(path, file) {
            Some(resolved) if tree.has(&resolved) => {}
            _ => findings.push(Finding::new(path, number, format!("the link to {target} leads nowhere"))),
        }
    }
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

    fn findings_in(document: &str) -> Vec<String> {
        let tree = tree(&[CODE, ("docs/WALK.md", document), ("README.md", "")]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn links_and_pointers_that_lead_somewhere_are_silent() {
        assert!(findings_in("[up](../README.md#top) [out](https://example.org/x) [here](#a)\n").is_empty());
        let pointers =
            "`crates/log/src/log.rs:Log::append` `crates/log/src/log.rs:append` `crates/log` `crates/*`\n";
        assert!(findings_in(pointers).is_empty());
        assert!(findings_in("```\n[not](a-link.md)\n```\n").is_empty());
    }

    #[test]
    fn broken_links_and_pointers_are_named() {
        assert_eq!(findings_in("[x](missing.md)\n"), ["the link to missing.md leads nowhere"]);
        assert_eq!(findings_in("[x](../../out.md)\n"), ["the link to ../../out.md leads nowhere"]);
        assert_eq!(findings_in("`crates/log/src/gone.rs`\n"), ["crates/log/src/gone.rs does not exist"]);
        assert_eq!(findings_in("`crates/log/src/log.rs:appen`\n"), ["crates/log/src/log.rs has no appen"]);
    }
}
