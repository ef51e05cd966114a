//! Rules for the manifests: reasons for dependencies, lints in every crate, the crates that each crate may use, the Rust
//! version, and that every file of tests runs.

use super::{Finding, Tree};

/// One comment may stand for a few dependencies that belong together.
const DEPENDENCIES_PER_REASON_MAX: usize = 3;

/// Which of our own crates each crate may use outside its tests: only rooms below it. A crate that is not listed
/// (the command line, simulation, interop, xtask) may use all; nothing depends on those.
const ROOMS: &[(&str, &[&str])] = &[
    ("ottla-wire", &[]),
    ("ottla-protocol-derive", &[]),
    ("ottla-protocol", &["ottla-wire", "ottla-protocol-derive"]),
    ("ottla-log", &["ottla-wire"]),
    ("ottla-client", &["ottla-wire", "ottla-protocol"]),
    ("ottla-broker", &["ottla-wire", "ottla-protocol", "ottla-log"]),
    ("ottla-parallel", &["ottla-client"]),
    ("ottla-testkit", &["ottla-client", "ottla-broker"]),
    ("ottla-capi-attribute", &[]),
    ("ottla-models", &[]),
    ("ottla-capi", &["ottla-capi-attribute", "ottla-client", "ottla-parallel", "ottla-broker"]),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension(&["toml"]).filter(|(path, _)| path.ends_with("Cargo.toml")) {
        if path == "Cargo.toml" {
            reasons(path, text, &mut findings);
        } else if !text.contains("[workspace]") {
            // A package with a workspace of its own (fuzzing) follows its own tools.
            lints(path, text, &mut findings);
            dependencies(path, text, &mut findings);
            test_files(tree, path, text, &mut findings);
        }
    }
    rust_version(tree, &mut findings);
    findings
}

/// Documents that give the oldest Rust version give the root manifest's.
fn rust_version(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut package = section(tree.get("Cargo.toml").unwrap_or_default(), "[workspace.package]");
    let version = package.find_map(|(_, line)| line.strip_prefix("rust-version = "));
    let version = version.unwrap_or_default().trim_matches('"');
    for (path, text) in tree.with_extension(&["md"]) {
        for (line, number) in text.lines().zip(1..) {
            for (at, marker) in line.match_indices("Rust 1.") {
                let rest = &line[at + marker.len() - 2..];
                let named =
                    rest.split(|c: char| !(c.is_ascii_digit() || c == '.')).next().unwrap_or_default();
                if named.trim_end_matches('.') != version {
                    let what = format!("Rust {named}: the root manifest's rust-version is {version}");
                    findings.push(Finding::new(path, number, what));
                }
            }
        }
    }
}

fn reasons(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let mut since_reason = DEPENDENCIES_PER_REASON_MAX;
    for (number, line) in section(text, "[workspace.dependencies]") {
        if line.starts_with('#') {
            since_reason = 0;
        } else if let Some((name, value)) = line.split_once('=') {
            if value.contains("path =") {
                continue;
            }
            if since_reason == DEPENDENCIES_PER_REASON_MAX {
                findings.push(Finding::new(
                    path,
                    number,
                    format!("{}: a comment above says why we do not own that code", name.trim()),
                ));
            } else {
                since_reason += 1;
            }
        } else {
            since_reason = DEPENDENCIES_PER_REASON_MAX;
        }
    }
}

fn lints(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !section(text, "[lints]").any(|(_, line)| line.replace(' ', "") == "workspace=true") {
        findings.push(Finding::new(path, 0, "[lints] workspace = true is missing"));
    }
}

fn dependencies(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let name = section(text, "[package]")
        .find_map(|(_, line)| line.strip_prefix("name = "))
        .unwrap_or_default()
        .trim_matches('"');
    let rooms = ROOMS.iter().find(|(room, _)| *room == name).map(|(_, below)| *below);
    for (number, line) in section(text, "[dependencies]") {
        let used = used_crate(line);
        if let Some(below) = rooms
            && used.starts_with("ottla-")
            && !below.contains(&used)
        {
            findings.push(Finding::new(
                path,
                number,
                format!("{name} must not use {used}: it is no room below"),
            ));
        }
    }
    for heading in ["[dependencies]", "[dev-dependencies]", "[build-dependencies]"] {
        for (number, line) in section(text, heading).filter(|(_, line)| line.contains('=')) {
            if !line.replace(' ', "").contains("workspace=true") {
                let used = used_crate(line);
                // `cargo package` leaves out a dependency of tests that has no version. So tests can use crates above theirs.
                if heading == "[dev-dependencies]" && used.starts_with("ottla-") && line.contains("path =") {
                    continue;
                }
                findings.push(Finding::new(
                    path,
                    number,
                    format!("{used}: only the root manifest has its version"),
                ));
            }
        }
    }
}

/// With `autotests = false`, each file of tests must be a program of the manifest or a module of one.
fn test_files(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !text.lines().any(|line| line == "autotests = false") {
        return;
    }
    let dir = path.replace("Cargo.toml", "tests/");
    let files: Vec<(&str, &str, &str)> = tree
        .with_extension(&["rs"])
        .filter_map(|(file, text)| Some((file, file.strip_prefix(&dir)?.strip_suffix(".rs")?, text)))
        .filter(|(_, name, _)| !name.contains('/'))
        .collect();
    for (file, name, _) in &files {
        let program = format!("name = \"{name}\"");
        let root = format!("path = \"tests/{name}.rs\"");
        let module = format!("mod {name};");
        let runs = text.lines().any(|line| line == program || line == root)
            || files.iter().any(|(_, _, text)| text.lines().any(|line| line == module));
        if !runs {
            let what = format!("no test in it runs: no program of {dir} has `{module}`");
            findings.push(Finding::new(file, 0, what));
        }
    }
}

/// `name` of `name = ..` and of `name.workspace = true`.
fn used_crate(line: &str) -> &str {
    line.split(['=', '.']).next().unwrap_or_default().trim()
}

/// The lines below a heading, up to the next, with their numbers; lists and tables that go on over lines as one.
fn section<'a>(text: &'a str, heading: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    text.lines()
        .zip(1..)
        .map(|(line, number)| (number, line))
        .skip_while(move |(_, line)| line.trim() != heading)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['))
        .filter(|(_, line)| !line.starts_with([' ', ']', '}']))
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let text = "[workspace.dependencies]\nours = { path = \"x\" }\n\n# Why.\na = \"1\"\nb = \"1\"\n\nc = \"1\"\n";
        let findings = check(&tree(&[("Cargo.toml", text)]));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.starts_with("c: "), "{findings:?}");
    }

    #[test]
    fn one_reason_does_not_stand_for_many() {
        let text = "[workspace.dependencies]\n# Why.\na = \"1\"\nb = \"1\"\nc = \"1\"\nd = \"1\"\n";
        let findings = check(&tree(&[("Cargo.toml", text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn crates_opt_into_the_lints_and_take_versions_from_the_root() {
        let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = { workspace = true }\nc = \"1\"\n";
        let findings = check(&tree(&[("crates/x/Cargo.toml", text)]));
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert_eq!(findings[0].what, "[lints] workspace = true is missing");
        assert_eq!(findings[1].line, 6);
    }

    #[test]
    fn tests_may_name_our_crates_by_their_path() {
        let text = |heading: &str| {
            format!(
                "[package]\nname = \"x\"\n[lints]\nworkspace = true\n[{heading}]\n\
                 ottla-broker = {{ path = \"../broker\" }}\n"
            )
        };
        let findings = |heading: &str| check(&tree(&[("crates/x/Cargo.toml", &text(heading))])).len();
        assert_eq!((findings("dev-dependencies"), findings("dependencies")), (0, 1));
    }

    #[test]
    fn a_file_of_tests_that_is_no_program_and_no_module_is_found() {
        let manifest = "[package]\nname = \"x\"\nautotests = false\n[lints]\nworkspace = true\n[[test]]\nname = \"all\"\n\
                        [[test]]\nname = \"alone\"\n";
        let files = [
            ("crates/x/Cargo.toml", manifest),
            ("crates/x/tests/all.rs", "mod common;\n\nmod groups;\n"),
            ("crates/x/tests/alone.rs", ""),
            ("crates/x/tests/common/mod.rs", ""),
            ("crates/x/tests/groups.rs", ""),
            ("crates/x/tests/topics.rs", ""),
        ];
        let findings = check(&tree(&files));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].to_string().contains("topics.rs"), "{findings:?}");
    }

    #[test]
    fn documents_give_the_rust_version_of_the_root_manifest() {
        let manifest = "[workspace.package]\nrust-version = \"1.95\"\n";
        let document = "Builds with Rust 1.95 or newer.\nBuilds with Rust 1.90.\n";
        let findings = check(&tree(&[("Cargo.toml", manifest), ("README.md", document)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2], "{findings:?}");
    }

    #[test]
    fn a_room_uses_only_rooms_below_it() {
        let text = "[package]\nname = \"ottla-client\"\n[lints]\nworkspace = true\n[dependencies]\n\
                    ottla-wire.workspace = true\nottla-broker.workspace = true\n\
                    [dev-dependencies]\nottla-broker.workspace = true\n";
        let findings = check(&tree(&[("crates/client/Cargo.toml", text)]));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].what, "ottla-client must not use ottla-broker: it is no room below");
    }
}
