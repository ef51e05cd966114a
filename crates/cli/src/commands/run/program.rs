//! Checks that a program can be executed, before the first record is read.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, sentence};

/// Checks that `program` is an executable file: a path, or a name in a directory of `search`, which is `PATH`.
pub(super) fn check(program: &str, search: Option<&OsStr>) -> Result<(), Failure> {
    if program.is_empty() {
        return Err(Failure::usage("the command after -- is empty: name a program"));
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
            // As in execvp(3), a file that is not executable does not hide one in a later directory.
            Err(why) if candidate.is_file() => found = found.or(Some((candidate, why))),
            Err(_) => {}
        }
    }
    Err(Failure::usage(match found {
        Some((candidate, why)) => format!("the program `{}` {why}", candidate.display()),
        None => format!(
            "the program `{program}` is in none of the {} directories of PATH: check the name, or use a path such as ./{program}",
            directories.len()
        ),
    }))
}

/// Checks that a file can be executed; the error is the reason.
fn executable(path: &Path) -> Result<(), String> {
    let file = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be executed: {}", sentence(&error)),
    })?;
    if file.is_dir() {
        return Err("is a directory".to_owned());
    }
    if file.permissions().mode() & 0o111 == 0 {
        return Err(format!("is not executable: run chmod +x {}", path.display()));
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
            (path, "is not executable: run chmod +x"),
            ("handle", "is not executable: run chmod +x"),
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
