//! `cargo xtask tidy`: the house rules that a machine can check.

mod allowed;
mod baseline;
mod boundary;
mod doc_comments;
mod docs;
mod functions;
mod layers;
mod manifests;
mod rust;
mod sources;
mod words;

use std::fmt;
use std::fs;
use std::process::{Command, ExitCode};

use ottla_interop::workspace_root;

use baseline::Debt;
use rust::Source;

/// A broken rule: the place, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// From 1; 0 for the file as a whole.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// The text files of the project, with their paths from the root.
pub(crate) struct Tree {
    files: Vec<(String, String)>,
}

impl Tree {
    /// The files that git tracks or would track.
    fn of_workspace() -> Result<Self, String> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(workspace_root())
            .output()
            .map_err(|error| format!("git does not start: {error}"))?;
        if !listing.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr).trim()));
        }
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let paths = listing.split('\0').filter(|path| !path.is_empty());
        // Deleted files are still listed, binary ones are no text: neither can be read here.
        let read =
            |path: &str| Some((path.to_owned(), fs::read_to_string(workspace_root().join(path)).ok()?));
        Ok(Self { files: paths.filter_map(read).collect() })
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|(own, _)| own == path).map(|(_, text)| text.as_str())
    }

    fn has(&self, path: &str) -> bool {
        let below = format!("{}/", path.trim_end_matches('/'));
        self.files.iter().any(|(own, _)| own == path || own.starts_with(&below))
    }

    fn with_extension<'a>(&'a self, extensions: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let matches = |path: &str| path.rsplit_once('.').is_some_and(|(_, own)| extensions.contains(&own));
        self.files
            .iter()
            .filter(move |(path, _)| matches(path))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn findings(&self, sources: &Sources) -> Vec<Finding> {
        let mut findings: Vec<Finding> = [sources::check, manifests::check, docs::check, boundary::check]
            .iter()
            .flat_map(|check| check(self))
            .collect();
        findings.extend(functions::stale_exceptions(sources));
        findings.extend(layers::check(self, sources));
        findings.extend(baseline::check(self, &self.debts(sources)));
        findings
    }

    /// The exceptions that the baseline counts.
    fn debts(&self, sources: &Sources) -> Vec<Debt> {
        let mut debts = words::debts(self, sources);
        debts.extend(doc_comments::debts(sources));
        debts.extend(functions::debts(sources));
        debts.extend(layers::debts(self, sources));
        debts
    }
}

/// The Rust files, parsed once for all rules.
pub(crate) struct Sources {
    files: Vec<(String, Source)>,
}

impl Sources {
    fn parse(tree: &Tree) -> Self {
        let parse = |(path, text): (&str, &str)| (path.to_owned(), Source::parse(text));
        Self { files: tree.with_extension(&["rs"]).map(parse).collect() }
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.files.iter().map(|(path, source)| (path.as_str(), source))
    }
}

/// The crate of a file, `crates/client` or `sim`; `docs` for documents outside of crates.
fn crate_of(path: &str) -> &str {
    let end = |parts: usize| path.match_indices('/').nth(parts - 1).map(|(at, _)| &path[..at]);
    match end(1) {
        Some("crates") => end(2).unwrap_or(path),
        Some(top) => top,
        None => "docs",
    }
}

/// Options of the command of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action<'a> {
    /// Prints the broken rules.
    Check,
    /// Prints what is counted, in the form of the baseline.
    Counts,
    /// Lowers the numbers of the baseline.
    Lower,
    /// Lists the sentences that break the rules for words, of one crate or of all.
    Words(Option<&'a str>),
}

/// Prints every broken rule and returns their number.
pub(crate) fn print() -> usize {
    match Tree::of_workspace() {
        Ok(tree) => {
            let findings = tree.findings(&Sources::parse(&tree));
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {} files, {} findings", tree.files.len(), findings.len());
            findings.len()
        }
        Err(why) => {
            println!("tidy: {why}");
            1
        }
    }
}

/// `cargo xtask tidy`.
pub(crate) fn run(action: Action<'_>) -> ExitCode {
    let done = match action {
        Action::Check => return if print() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE },
        Action::Counts => Tree::of_workspace().map(|tree| {
            print!("{}", baseline::counts(&tree.debts(&Sources::parse(&tree))));
        }),
        Action::Lower => Tree::of_workspace().and_then(|tree| {
            let text = baseline::lower(&tree, &tree.debts(&Sources::parse(&tree)));
            fs::write(workspace_root().join(baseline::PATH), text)
                .map_err(|error| format!("{}: {error}", baseline::PATH))
        }),
        Action::Words(room) => Tree::of_workspace().map(|tree| {
            let lines = words::list(&tree, &Sources::parse(&tree), room);
            for line in &lines {
                println!("{line}");
            }
            println!("{} hits", lines.len());
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("tidy: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Tree {
    Tree { files: files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect() }
}
