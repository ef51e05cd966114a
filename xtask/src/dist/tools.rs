//! The programs that `cargo xtask dist` needs. Those of registries come into the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run, target_dir};

use crate::shell::{self, cargo};

/// Zig's C compiler brings the symbols of every release of glibc; cargo-zigbuild makes it Rust's linker.
const ZIG: &[&str] = &["ziglang==0.15.2", "cargo-zigbuild==0.24.0"];

const CYCLONEDX_VERSION: &str = "0.5.9";

/// Programs of Debian, with their packages.
const DEBIAN: &[(&str, &str)] = &[
    ("objdump", "binutils"),
    ("c++", "g++"),
    ("cc", "gcc"),
    ("pkg-config", "pkg-config"),
    ("pip3", "python3-pip"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
    ("systemd-analyze", "systemd"),
    ("man", "man-db"),
];

const FETCHED_WITHIN: Duration = Duration::from_secs(10 * 60);
const BUILT_WITHIN: Duration = Duration::from_secs(20 * 60);

/// The directory of the programs that are no packages of Debian; `OTTLA_DIST_TOOLS` names another.
pub(crate) fn tools_dir() -> PathBuf {
    std::env::var_os(TOOLS_VARIABLE).map_or_else(|| target_dir().join("tools"), PathBuf::from)
}

pub(crate) const TOOLS_VARIABLE: &str = "OTTLA_DIST_TOOLS";

/// Zig and cargo-zigbuild, unpacked from their wheels.
pub(crate) struct Zig {
    dir: PathBuf,
}

impl Zig {
    /// Installs both with pip, once per version.
    pub(crate) fn install() -> Result<Self, Failure> {
        let dir = tools_dir().join(ZIG.join("-").replace("==", "-"));
        let zig = Self { dir };
        if zig.program().is_file() && zig.cargo_zigbuild().is_file() {
            return Ok(zig);
        }
        let mut pip = Command::new("pip3");
        pip.args(["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--upgrade", "--target"]);
        pip.arg(&zig.dir).args(ZIG);
        run("pip3", &mut pip, b"", FETCHED_WITHIN)?.succeeded()?;
        Ok(zig)
    }

    /// `zig` itself.
    pub(crate) fn program(&self) -> PathBuf {
        self.dir.join("ziglang/zig")
    }

    /// `cargo-zigbuild` with its caches next to it.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(self.cargo_zigbuild());
        command.env("CARGO_ZIGBUILD_ZIG_PATH", self.program());
        command.env("CARGO_ZIGBUILD_CACHE_DIR", self.dir.join("wrappers"));
        self.with_cache(&mut command);
        command
    }

    /// `zig cc` for `target`.
    pub(crate) fn cc(&self, target: &str) -> Command {
        let mut command = Command::new(self.program());
        command.args(["cc", "-target", target]);
        self.with_cache(&mut command);
        command
    }

    /// Compiles the parts of the C library that zig adds to programs and libraries. The first link would do it in whatever
    /// directory it runs, and the debug information would name that directory.
    pub(crate) fn compile_libc(&self, target: &str) -> Result<(), Failure> {
        let source = self.dir.join("empty.c");
        super::tree::write(&source, "int main(void) { return 0; }\n")?;
        for options in [&["-o", "empty"][..], &["-shared", "-fPIC", "-o", "libempty.so"]] {
            let mut cc = self.cc(target);
            cc.arg("empty.c").args(options).arg("-lunwind").current_dir(&self.dir);
            run("zig cc", &mut cc, b"", FETCHED_WITHIN)?.succeeded()?;
        }
        Ok(())
    }

    fn with_cache(&self, command: &mut Command) {
        command.env("ZIG_GLOBAL_CACHE_DIR", self.dir.join("cache"));
        command.env("ZIG_LOCAL_CACHE_DIR", self.dir.join("cache"));
    }

    fn cargo_zigbuild(&self) -> PathBuf {
        self.dir.join("bin/cargo-zigbuild")
    }
}

/// cargo-cyclonedx, which lists what a crate is built from.
pub(crate) fn cyclonedx() -> Result<PathBuf, Failure> {
    let root = tools_dir();
    let program = root.join("bin/cargo-cyclonedx");
    if program.is_file() {
        return Ok(program);
    }
    let root = root.to_string_lossy();
    let install = ["install", "--locked", "cargo-cyclonedx", "--version", CYCLONEDX_VERSION, "--root", &root];
    let installed = shell::run(&mut cargo(&install), BUILT_WITHIN).map_err(Failure::new)?;
    if installed.status.success() && program.is_file() {
        return Ok(program);
    }
    Err(Failure::new(format!("cargo {} ({})", install.join(" "), installed.status)))
}

/// Fails with the command that installs the missing programs. With `CI=true` it runs that command first.
pub(crate) fn require_debian_programs() -> Result<(), Failure> {
    let missing = missing_packages();
    if !missing.is_empty() && ottla_interop::in_ci() {
        ottla_interop::apt_install(&missing)?;
    }
    missing_programs().map_or(Ok(()), |missing| Err(Failure::new(missing)))
}

/// A sentence with the command that installs the missing programs.
pub(crate) fn missing_programs() -> Option<String> {
    let missing = missing_packages();
    (!missing.is_empty()).then(|| format!("programs are missing (apt-get install {})", missing.join(" ")))
}

fn missing_packages() -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    DEBIAN.iter().filter(|(program, _)| !on_path(program)).map(|&(_, package)| package).collect()
}

/// Debian's packages as apt finds them for this machine, unpacked to a directory below the target directory.
pub(crate) fn debian_packages(packages: &[&str]) -> Result<PathBuf, Failure> {
    let dir = tools_dir().join("debian").join(packages.join("-"));
    let root = dir.join("root");
    if root.is_dir() {
        return Ok(root);
    }
    let fresh = dir.join("fresh");
    let _ = fs::remove_dir_all(&dir);
    create_dir(&fresh)?;
    let mut download = Command::new("apt-get");
    download.arg("download").args(packages).current_dir(&dir);
    run("apt-get", &mut download, b"", FETCHED_WITHIN)?.succeeded()?;
    for package in packages {
        let file = downloaded(&dir, package)?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&file).arg(&fresh);
        run("dpkg-deb", &mut unpack, b"", FETCHED_WITHIN)?.succeeded()?;
    }
    fs::rename(&fresh, &root).map_err(|error| Failure::new(format!("{}: {error}", root.display())))?;
    Ok(root)
}

/// The versions of the packages, from the names of their files.
pub(crate) fn debian_versions(packages: &[&str]) -> Result<Vec<String>, Failure> {
    let root = debian_packages(packages)?;
    let dir = root.parent().unwrap_or(&root).to_owned();
    let version = |package: &&str| {
        let file = downloaded(&dir, package)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // apt writes the colon of a version as `%3a`.
        let version = name.split('_').nth(1).unwrap_or_default().replace("%3a", ":");
        if version.is_empty() { Err(Failure::new(format!("{name} has no version"))) } else { Ok(version) }
    };
    packages.iter().map(version).collect()
}

/// The file of a downloaded package: its name has the version.
pub(crate) fn downloaded(dir: &Path, package: &str) -> Result<PathBuf, Failure> {
    let prefix = format!("{package}_");
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files = files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix));
    let file = files.next().map(|file| file.path());
    file.ok_or_else(|| Failure::new(format!("{} has no file {prefix}*", dir.display())))
}

pub(crate) fn create_dir(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))
}
