//! `cargo xtask tidy`: the house rules that a machine can check.

mod allowed;
mod boundary;
mod docs;
mod manifests;
mod sources;

use std::fmt;
use std::fs;
use std::process::{Command, ExitCode};

use ottla_interop::workspace_root;

/// A broken rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
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
    /// What git tracks or would track.
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

    fn findings(&self) -> Vec<Finding> {
        [sources::check, manifests::check, docs::check, boundary::check]
            .iter()
            .flat_map(|check| check(self))
            .collect()
    }
}

/// Prints every broken rule, and gives their number.
pub(crate) fn print() -> usize {
    match Tree::of_workspace() {
        Ok(tree) => {
            let findings = tree.findings();
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

/// The command of its own.
pub(crate) fn report() -> ExitCode {
    if print() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Tree {
    Tree { files: files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect() }
}
