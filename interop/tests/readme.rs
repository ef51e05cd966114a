//! The Rust program of the README builds with the dependencies that the README prints, and prints its record.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run, target_dir, workspace_root};

/// Builds the client and the broker once more, because the program is a workspace of its own.
const BUILT_WITHIN: Duration = Duration::from_secs(20 * 60);

/// The crates of this workspace that the program uses: names and folders.
const OURS: [(&str, &str); 2] = [("ottla-broker", "crates/broker"), ("ottla-client", "crates/client")];

#[test]
fn the_readmes_program_builds_and_prints_its_record() -> Result<(), Failure> {
    let root = workspace_root();
    let readme = read(&root.join("README.md"))?;
    let dependencies = block(&readme, "toml")?;
    let program = block(&readme, "rust")?;

    let package = target_dir().join("readme");
    fs::create_dir_all(package.join("src")).map_err(|error| failure(&package, &error))?;
    let manifest = format!(
        "[package]\nname = \"readme\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [profile.dev]\ndebug = false\n\n{}",
        in_this_checkout(dependencies, root)?
    );
    write(&package.join("Cargo.toml"), &manifest)?;
    write(&package.join("src/main.rs"), program)?;
    // The same versions as the workspace, which are on this machine already.
    write(&package.join("Cargo.lock"), &read(&root.join("Cargo.lock"))?)?;

    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(package.join("target"))
        .current_dir(&package);
    let output = run("the README's program", &mut cargo, b"", BUILT_WITHIN)?.succeeded()?;
    assert_eq!(output.stdout_text(), "paid\n");
    Ok(())
}

/// Replaces the printed paths of our crates by those of this checkout. Each crate must be named with its folder.
fn in_this_checkout(dependencies: &str, root: &Path) -> Result<String, Failure> {
    let mut replaced = dependencies.to_owned();
    for (name, folder) in OURS {
        let printed = format!("{name} = {{ path = \"ottla/{folder}\" }}");
        if !replaced.lines().any(|line| line == printed) {
            return Err(Failure::new(format!("README.md has no dependency `{printed}`")));
        }
        let path = root.join(folder);
        replaced =
            replaced.replace(&printed, &format!("{name} = {{ path = {:?} }}", path.display().to_string()));
    }
    Ok(replaced)
}

/// The first block of a language.
fn block<'a>(text: &'a str, language: &str) -> Result<&'a str, Failure> {
    let opening = format!("```{language}\n");
    let block = text.split_once(&opening).and_then(|(_, rest)| rest.split_once("```"));
    block.map(|(block, _)| block).ok_or_else(|| Failure::new(format!("README.md has no block of {language}")))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| failure(path, &error))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| failure(path, &error))
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
