//! `cargo xtask dist`: everything that is shipped, built for old releases of glibc, checked, and used once.
//!
//! The results do not depend on the machine, the directory or the time: `--twice` compares two builds byte for byte.

mod archive;
mod build;
mod build_id;
mod crates;
mod deb;
mod elf;
mod layout;
mod notices;
mod oci;
mod sbom;
mod tools;
mod tree;
mod twice;
mod used;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use ottla_interop::{Failure, our_prefix, run as run_command, target_dir, workspace_root};

use self::build::Artefacts;
use self::layout::VERSION;
use self::tree::write;

/// The options of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The directory of the results; below the target directory by default.
    output: Option<PathBuf>,
    /// Packs the files of the last build.
    reuse: bool,
    /// Only builds and packs.
    unused: bool,
    /// Builds again, from a copy of the sources in another directory, and compares.
    twice: bool,
    /// The binaries of the tests, as in `cargo xtask test`.
    dev: bool,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            match arg {
                "--output" => {
                    let dir = args.next().ok_or("dist: --output needs a value")?;
                    options.output = Some(PathBuf::from(dir));
                }
                "--reuse" => options.reuse = true,
                "--unused" => options.unused = true,
                "--twice" => options.twice = true,
                "--dev" => options.dev = true,
                other => return Err(format!("dist: no option {other}")),
            }
        }
        Ok(options)
    }

    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| target_dir().join("packages/results"))
    }
}

/// The shipped files by their names.
pub(crate) type Shipped = BTreeMap<String, Vec<u8>>;

pub(crate) fn run(options: &Options) -> ExitCode {
    match dist(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("dist: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn dist(options: &Options) -> Result<(), Failure> {
    if options.dev {
        return run_with_dev_profile().map(|_| ());
    }
    tools::require_debian_programs()?;
    let epoch_s = epoch_s()?;
    let artefacts = if options.reuse { Artefacts::built()? } else { Artefacts::build()? };
    let mut shipped = pack(&artefacts, epoch_s)?;
    shipped.extend(sbom::documents(epoch_s)?);
    shipped.insert("SHA256SUMS".to_owned(), sums(&shipped).into_bytes());
    let output = options.output();
    write_all(&shipped, &output)?;
    for (name, contents) in &shipped {
        println!("{:>12} {name}", contents.len());
    }
    println!("dist: {} files in {}", shipped.len(), output.display());
    if !options.unused {
        let stories = used::run(&output)?;
        println!("dist: {} uses of the files succeeded", stories.len());
        println!("dist: {} crates were built from their packages", crates::package(true)?);
    }
    if options.twice {
        twice::compare(&output)?;
    }
    Ok(())
}

/// The programs that are missing, with the command that installs them.
pub(crate) fn missing_programs() -> Option<String> {
    tools::missing_programs()
}

/// For `cargo xtask test`: the packages with the binaries of the profile `dev`, each used once. The names of the
/// uses that succeeded.
pub(crate) fn run_with_dev_profile() -> Result<Vec<&'static str>, Failure> {
    tools::require_debian_programs()?;
    let artefacts = Artefacts::for_tests(&our_prefix())?;
    let output = target_dir().join("packages-dev/results");
    let first = pack(&artefacts, epoch_s()?)?;
    if first != pack(&artefacts, epoch_s()?)? {
        return Err(Failure::new("the same files, packed twice, gave other bytes"));
    }
    write_all(&first, &output)?;
    crates::package(false)?;
    used::run(&output)
}

/// The files that have one version for all machines, except the documents of `sbom`.
fn pack(artefacts: &Artefacts, epoch_s: u64) -> Result<Shipped, Failure> {
    let mut shipped = Shipped::new();
    let name = format!("ottla-{VERSION}-x86_64-linux-gnu");
    let tarball = |tree, prefix: &str| archive::gzip(&archive::tar(&tree, prefix, epoch_s)?);
    shipped.insert(format!("{name}.tar.gz"), tarball(layout::tarball(artefacts)?, &format!("{name}/"))?);
    shipped.insert(format!("{name}-debug.tar.gz"), tarball(layout::debug(artefacts)?, "")?);
    for package in layout::packages(artefacts)? {
        shipped.insert(package.file_name(), package.build(epoch_s)?);
    }
    let layers = oci::layers(artefacts)?;
    let image = oci::archive(&layers, epoch_s)?;
    artefacts.check_image(layers.iter().flat_map(tree::Tree::files).map(|(_, file)| file.len()).sum())?;
    shipped.insert(format!("ottla-{VERSION}-oci.tar"), image);
    Ok(shipped)
}

/// The lines that `sha256sum --check` reads.
fn sums(shipped: &Shipped) -> String {
    let sum = |contents: &[u8]| oci::digest(contents).replace("sha256:", "");
    shipped.iter().fold(String::new(), |all, (name, contents)| all + &sum(contents) + "  " + name + "\n")
}

/// Only these files are in the directory afterwards.
fn write_all(shipped: &Shipped, output: &Path) -> Result<(), Failure> {
    let _ = fs::remove_dir_all(output);
    tools::create_dir(output)?;
    shipped.iter().try_for_each(|(name, contents)| write(&output.join(name), contents))
}

/// The time of everything that is shipped: `SOURCE_DATE_EPOCH`, or that of the last commit.
fn epoch_s() -> Result<u64, Failure> {
    let text = if let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") {
        text.to_string_lossy().into_owned()
    } else {
        let mut git = Command::new("git");
        git.args(["log", "-1", "--format=%ct"]).current_dir(workspace_root());
        run_command("git log", &mut git, b"", Duration::from_secs(60))?.succeeded()?.stdout_text()
    };
    text.trim().parse().map_err(|_| {
        Failure::new(format!("SOURCE_DATE_EPOCH: {text:?} is not a number of seconds since 1970"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_wrong_ones_named() {
        let options = Options::parse(&["--reuse", "--output", "/tmp/x"]).unwrap();
        assert_eq!((options.reuse, options.output()), (true, PathBuf::from("/tmp/x")));
        assert_eq!(Options::parse(&["--fast"]).unwrap_err(), "dist: no option --fast");
        assert_eq!(Options::parse(&["--output"]).unwrap_err(), "dist: --output needs a value");
    }

    #[test]
    fn sums_are_in_the_form_of_sha256sum() {
        let shipped = Shipped::from([("a".to_owned(), Vec::new())]);
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sums(&shipped), format!("{empty}  a\n"));
    }
}
