//! Rules for every source file: length, leftovers, machine paths, `unsafe`, white space.

use super::allowed::{LONG_FILES, UNSAFE_FILES};
use super::{Finding, Tree};

/// A file that is longer does more than one thing.
pub(super) const LINES_MAX: usize = 700;

const CODE: &[&str] = &["rs", "c", "cpp", "h", "hpp", "go", "java", "py", "sh"];
const TEXT: &[&str] =
    &["rs", "c", "cpp", "h", "hpp", "java", "py", "sh", "md", "toml", "xml", "properties", "yml", "json"];

/// Split, so that this file does not find itself.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("to", "do!("), "write it, or leave it out"),
    (concat!("unimple", "mented!("), "write it, or leave it out"),
    (concat!("FIX", "ME"), "mend it, or say in an issue why not"),
    (concat!("dbg", "!("), "a debugging aid"),
    (concat!("#[ig", "nore"), "a test runs, or does not exist; long variants are soaks"),
];

/// Directories of the machines that build the project; a reader has none of them.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/", "wt")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, LONG_FILES, UNSAFE_FILES)
}

fn check_with(tree: &Tree, long: &[(&str, &str)], with_unsafe: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    lengths(tree, long, &mut findings);
    unsafe_code(tree, with_unsafe, &mut findings);
    for (path, text) in tree.with_extension(CODE) {
        for (number, line) in numbered(text) {
            for (leftover, advice) in LEFTOVERS.iter().filter(|(leftover, _)| line.contains(leftover)) {
                findings.push(Finding::new(path, number, format!("`{leftover}`: {advice}")));
            }
        }
    }
    for (path, text) in &tree.files {
        for (number, line) in numbered(text) {
            for place in MACHINE_PATHS.iter().filter(|place| starts_a_path(line, place)) {
                findings.push(Finding::new(path, number, format!("`{place}`: a path of one machine")));
            }
        }
    }
    for (path, text) in tree.with_extension(TEXT) {
        white_space(path, text, &mut findings);
    }
    findings
}

fn lengths(tree: &Tree, allowed: &[(&str, &str)], findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_extension(CODE) {
        let lines = text.lines().count();
        let is_allowed = allowed.iter().any(|&(own, _)| own == path);
        if lines > LINES_MAX && !is_allowed {
            findings.push(Finding::new(path, 0, format!("{lines} lines, more than {LINES_MAX}: split it")));
        }
        if lines <= LINES_MAX && is_allowed {
            findings.push(Finding::new(path, 0, format!("{lines} lines: needs no exception any more")));
        }
    }
    vanished(tree, allowed, findings);
}

fn unsafe_code(tree: &Tree, allowed: &[(&str, &str)], findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_extension(&["rs"]) {
        let first = numbered(text).find(|(_, line)| has_unsafe(line));
        let is_allowed = allowed.iter().any(|&(own, _)| own == path);
        if allowed.iter().any(|(room, _)| room.ends_with('/') && path.starts_with(room)) {
            continue;
        }
        match first {
            Some((number, _)) if !is_allowed => findings.push(Finding::new(
                path,
                number,
                "`unsafe` outside the files named with their reason in xtask/src/tidy/allowed.rs",
            )),
            None if is_allowed => {
                findings.push(Finding::new(path, 0, "no `unsafe`: needs no exception any more"));
            }
            _ => {}
        }
    }
    vanished(tree, allowed, findings);
}

fn vanished(tree: &Tree, allowed: &[(&str, &str)], findings: &mut Vec<Finding>) {
    for (path, _) in allowed.iter().filter(|(path, _)| !path.ends_with('/') && tree.get(path).is_none()) {
        findings.push(Finding::new(path, 0, "has an exception but does not exist"));
    }
}

/// The keyword where it opens something; not in comments, and not the names of lints.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let opens = |rest: &str| {
        ["{", "fn ", "impl ", "trait ", "extern ", "("].iter().any(|word| rest.trim_start().starts_with(word))
            || rest.trim().is_empty()
    };
    code.match_indices(concat!("un", "safe")).any(|(at, word)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + word.len()..];
        !before.is_some_and(|c| c.is_alphanumeric() || "_`\"".contains(c)) && opens(after)
    })
}

/// `true` if `place` occurs as a path from the root, not inside another path.
fn starts_a_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_.-/".contains(c))
    })
}

fn white_space(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in numbered(text) {
        if line.contains('\t') {
            findings.push(Finding::new(path, number, "a tab"));
        }
        if line.ends_with([' ', '\r']) {
            findings.push(Finding::new(path, number, "white space at the end of the line"));
        }
    }
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        findings.push(Finding::new(path, 0, "ends with one newline, no more and no less"));
    }
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // Not `lines`, which would hide a carriage return.
    text.split('\n').zip(1..).map(|(line, number)| (number, line))
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn whats(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    /// Without exceptions: they name files of the project.
    fn checked(tree: &Tree) -> Vec<Finding> {
        check_with(tree, &[], &[])
    }

    #[test]
    fn a_clean_file_has_no_findings() {
        let text = "//! Speaks of unsafe code and of work/ only.\n#![deny(unsafe_code)]\nfn main() {}\n";
        assert_eq!(checked(&tree(&[("a.rs", text)])), []);
    }

    #[test]
    fn leftovers_and_machine_paths_are_found_where_they_stand() {
        let text = format!("fn f() {{ {}) }}\nconst P: &str = \"{}x\";\n", LEFTOVERS[0].0, MACHINE_PATHS[0]);
        let findings = checked(&tree(&[("a.rs", &text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 2]);
        let inside = format!("see docs{}x\n", MACHINE_PATHS[0]);
        assert_eq!(checked(&tree(&[("a.md", &inside)])), [], "a directory of that name inside another");
    }

    #[test]
    fn a_long_file_needs_an_exception_and_a_stale_exception_is_found() {
        let long = "x\n".repeat(LINES_MAX + 1);
        let tree = tree(&[("long.rs", &long), ("short.rs", "x\n")]);
        let mut findings = Vec::new();
        lengths(&tree, &[], &mut findings);
        assert_eq!(whats(&findings), ["long.rs: 701 lines, more than 700: split it"]);
        findings.clear();
        lengths(&tree, &[("long.rs", "why"), ("short.rs", "why"), ("gone.rs", "why")], &mut findings);
        assert_eq!(
            whats(&findings),
            [
                "short.rs: 1 lines: needs no exception any more",
                "gone.rs: has an exception but does not exist"
            ]
        );
    }

    #[test]
    fn unsafe_is_found_where_it_opens_something() {
        let word = concat!("un", "safe");
        for opens in ["{ f() }", "fn f() {}", "impl Send for X {}", "extern \"C\" fn f() {}", "(no_mangle)"] {
            let line = format!("{word} {opens}\n");
            assert_eq!(checked(&tree(&[("a.rs", &line)])).len(), 1, "{line}");
        }
        for harmless in [format!("// {word} {{ }}\n"), format!("#![forbid({word}_code)]\n")] {
            assert_eq!(checked(&tree(&[("a.rs", &harmless)])), [], "{harmless}");
        }
    }

    #[test]
    fn white_space_is_checked_to_the_last_line() {
        let findings = checked(&tree(&[("a.md", "one \n\ttwo\nthree")]));
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 0]);
    }
}
