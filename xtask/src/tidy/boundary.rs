//! Rules for the C interface: no function of it lets a panic out, and SAFETY comments name the clause they rely on.

use super::allowed::WITHOUT_BOUNDARY;
use super::{Finding, Tree};

const DIRECTORY: &str = "crates/capi/src/";
const ATTRIBUTE: &str = "on_panic(";
/// Names no clause.
const VAGUE: &str = "by contract";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, WITHOUT_BOUNDARY)
}

/// `allowed`: path, function, reason.
fn check_with(tree: &Tree, allowed: &[(&str, &str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for (path, text) in tree.with_extension(&["rs"]).filter(|(path, _)| path.starts_with(DIRECTORY)) {
        for (index, _) in text.lines().enumerate().filter(|(_, line)| line.contains(VAGUE)) {
            findings.push(Finding::new(
                path,
                index + 1,
                format!("`{VAGUE}`: name the clause, \"`rk` is a handle from `rd_kafka_new` (rdkafka.h, `rd_kafka_poll`)\""),
            ));
        }
        for (line, function, has_boundary) in functions(text) {
            let exception = allowed.iter().find(|(own, name, _)| *own == path && *name == function);
            match exception {
                Some(exception) if !has_boundary => used.push(exception),
                None if !has_boundary => findings.push(Finding::new(
                    path,
                    line,
                    format!(
                        "`{function}` is called by C and lets panics out: put `#[on_panic(VALUE)]` on it"
                    ),
                )),
                _ => {}
            }
        }
    }
    for exception in allowed.iter().filter(|exception| !used.contains(exception)) {
        findings.push(Finding::new(
            exception.0,
            0,
            format!("`{}`: needs no exception any more", exception.1),
        ));
    }
    findings
}

/// Definitions of `extern` functions: the line, the name, and whether the attribute is among those above it.
fn functions(text: &str) -> Vec<(usize, &str, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if let Some(name) = extern_function(code) {
            let above = lines[..index].iter().rev().take_while(|line| !ends_an_item(line));
            let has_boundary = above
                .filter(|line| !line.trim_start().starts_with("//"))
                .any(|line| line.contains(ATTRIBUTE));
            functions.push((index + 1, name, has_boundary));
        }
    }
    functions
}

/// The name after `extern "C" fn`; nothing for the types of function pointers, which have none.
fn extern_function(code: &str) -> Option<&str> {
    let (_, after) = code.split_once(concat!("ext", "ern \""))?;
    let (_, after) = after.split_once("\" fn ")?;
    let name = after.split(['(', '<']).next()?.trim();
    (!name.is_empty()).then_some(name)
}

fn ends_an_item(line: &str) -> bool {
    let line = line.trim_end();
    line.is_empty() || line.ends_with(['{', '}', ';'])
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const PATH: &str = "crates/capi/src/queue/poll.rs";

    fn checked(text: &str) -> Vec<Finding> {
        check_with(&tree(&[(PATH, text)]), &[])
    }

    #[test]
    fn a_function_without_the_boundary_is_found() {
        let text = "#[on_panic(0)]\n#[no_mangle]\npub extern \"C\" fn guarded() -> i32 {\n    0\n}\n\n\
                    /// Speaks of on_panic(0) only.\n#[no_mangle]\npub extern \"C\" fn bare() {}\n";
        let findings = checked(text);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].line, 9);
        assert!(findings[0].what.starts_with("`bare` is called by C"), "{findings:?}");
    }

    #[test]
    fn the_boundary_of_another_function_is_none() {
        let text = "#[on_panic(())]\nextern \"C\" fn one() {}\nextern \"C\" fn two() {}\n";
        assert_eq!(checked(text).iter().map(|finding| finding.line).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn functions_that_macros_write_are_found_and_types_are_not() {
        let text = "    ($name:ident) => {\n        pub extern \"C-unwind\" fn $name() {}\n    };\n\
                    type Callback = extern \"C\" fn(rk: *mut u8);\n\
                    extern \"C\" {\n    fn declared();\n}\n";
        let findings = checked(text);
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2], "{findings:?}");
    }

    #[test]
    fn a_comment_that_names_no_clause_is_found() {
        let text = "// SAFETY: NULL or a list (rdkafka.h, `rd_kafka_assign`).\n// SAFETY: by contract.\n";
        assert_eq!(checked(text).iter().map(|finding| finding.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn an_exception_names_the_function_and_a_stale_one_is_found() {
        let tree = tree(&[(PATH, "extern \"C\" fn naked() {}\n")]);
        assert_eq!(check_with(&tree, &[(PATH, "naked", "why")]), []);
        let findings = check_with(&tree, &[(PATH, "naked", "why"), (PATH, "gone", "why")]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].what, "`gone`: needs no exception any more");
    }
}
