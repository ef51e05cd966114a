//! Builds everything from a copy of the sources in another directory, and compares the results byte for byte.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run, target_dir, workspace_root};

use super::tools::{TOOLS_VARIABLE, create_dir, tools_dir};
use super::tree::read;
use crate::shell::{self, cargo};

const COPIED_WITHIN: Duration = Duration::from_secs(60);
const BUILT_WITHIN: Duration = Duration::from_secs(2 * 60 * 60);

/// Fails with the names of the files that differ from those in `first`.
pub(crate) fn compare(first: &Path) -> Result<(), Failure> {
    let copy = target_dir().join("packages/copy");
    let _ = fs::remove_dir_all(&copy);
    copy_sources(&copy.join("sources"))?;
    let second = copy.join("results");
    let mut again = cargo(&["xtask", "dist", "--unused", "--output"]);
    again.arg(&second).current_dir(copy.join("sources"));
    again
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .env(TOOLS_VARIABLE, tools_dir())
        .env("SOURCE_DATE_EPOCH", super::epoch_s()?.to_string());
    let built = shell::run(&mut again, BUILT_WITHIN).map_err(Failure::new)?;
    if !built.status.success() {
        return Err(Failure::new(format!("the second build: {}", built.status)));
    }
    let lines =
        |dir: &Path| read(&dir.join("SHA256SUMS")).map(|sums| String::from_utf8_lossy(&sums).into_owned());
    let (first, second) = (lines(first)?, lines(&second)?);
    let differing: Vec<&str> =
        first.lines().filter(|line| !second.lines().any(|other| other == *line)).collect();
    if differing.is_empty() && first.len() == second.len() {
        println!("dist: two builds in two directories gave the same bytes");
        return Ok(());
    }
    Err(Failure::new(format!("the second build gave other bytes: {}", differing.join(", "))))
}

/// The files of the repository as they are in the workspace.
pub(crate) fn copy_sources(to: &Path) -> Result<(), Failure> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(workspace_root());
    let list = run("git ls-files", &mut git, b"", COPIED_WITHIN)?.succeeded()?.stdout_text();
    for name in list.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (workspace_root().join(name), to.join(name));
        // A deleted file is still listed before its commit.
        if !from.is_file() {
            continue;
        }
        create_dir(to.parent().unwrap_or(&to))?;
        fs::copy(&from, &to).map_err(|error| Failure::new(format!("{}: {error}", from.display())))?;
    }
    Ok(())
}
