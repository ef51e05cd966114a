//! Whether a program can be executed, found out before the first record is read.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, sentence};

/// Checks that `program` is a file that can be executed: a path, or a name that is in a directory of `search`, which is `PATH`.
pub(super) fn check(program: &str, search: Option<&OsStr>) -> Result<(), Failure> {
    if program.is_empty() {
        return Err(Failure::usage(
            "the command after -- is empty: name the program that handles the records",
        ));
    }
    if program.contains('/') {
        return executable(Path::new(program))
            .map_err(|why| Failure::usage(format!("the program `{program}` {why}")));
    }
    let directories: Vec<PathBuf> =
        search.map(|search| std::env::split_paths(search).collect()).unwrap_or_default();
    let mut found = None;
    for candidate in directories.iter().map(|directory| directory.join(program)) {
        match executable(&candidate) {
            Ok(()) => return Ok(()),
            // As execvp(3) does: a file that cannot be executed does not hide one in a later directory.
            Err(why) if candidate.is_file() => found = found.or(Some((candidate, why))),
            Err(_) => {}
        }
    }
    Err(Failure::usage(match found {
        Some((candidate, why)) => format!("the program `{}` {why}", candidate.display()),
        None => format!(
            "the program `{program}` is in none of the {} directories of PATH: check its name, or give its path, as in ./{program}",
            directories.len()
        ),
    }))
}

/// Why a file cannot be executed.
fn executable(path: &Path) -> Result<(), String> {
    let file = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be executed: {}", sentence(&error)),
    })?;
    if file.is_dir() {
        return Err("is a directory".to_owned());
    }
    if file.permissions().mode() & 0o111 == 0 {
        return Err(format!("is not executable: chmod +x {}", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_path_or_a_name_in_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("handle");
        std::fs::write(&script, "#!/bin/sh\n").expect("written");
        let path = script.to_str().expect("UTF-8");
        let search = Some(dir.path().as_os_str());
        for (program, words) in [
            (path, "is not executable: chmod +x"),
            ("handle", "is not executable: chmod +x"),
            ("handel", "is in none of the 1 directories of PATH"),
            ("./no/such/program", "does not exist"),
            (dir.path().to_str().expect("UTF-8"), "is a directory"),
            ("", "is empty"),
        ] {
            let refused = check(program, search).expect_err("cannot be executed").to_string();
            assert!(refused.contains(words), "{refused}");
        }
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("changed");
        assert!(check(path, search).is_ok() && check("handle", search).is_ok());
    }
}
