//! The files that are shipped: built with the profile `dist` for old releases of glibc, and stripped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run, target_dir, workspace_root};

use super::oci::hex;
use super::tools::{Zig, create_dir};
use super::tree::{Tree, read, write};
use super::{build_id, elf, notices};
use crate::install::{self, ClassFlags};
use crate::shell;

/// The directory of the built files.
#[derive(Clone, Debug)]
pub(crate) struct Artefacts {
    dir: PathBuf,
    /// Of the profile `dev`, which has no limits.
    for_tests: bool,
}

/// The programs and libraries, with the libraries that each may need and the largest size in bytes.
const BINARIES: &[(&str, &[&[&str]], u64)] = &[
    ("ottla", &[install::ALLOWED], 15_000_000),
    ("rdkafka_performance", &[install::ALLOWED, &["librdkafka.so.1"]], 1_000_000),
    // The aim is 8,000,000: docs/INSTALL.md lists the parts of the library.
    ("librdkafka.so.1", &[install::ALLOWED], 10_500_000),
    ("librdkafka++.so.1", &[install::ALLOWED, install::ALLOWED_CXX], 1_000_000),
];
/// The static libraries, with the largest size in bytes.
const ARCHIVES: &[(&str, u64)] = &[("librdkafka.a", 40_000_000), ("librdkafka++.a", 2_000_000)];

/// The largest size of all files of the image.
const IMAGE_BYTES_MAX: usize = 30_000_000;

/// The profiles of the workspace's manifest.
const COMMAND_PROFILE: &str = "dist";
const LIBRARY_PROFILE: &str = "dist-library";

/// Rust's name of the target, zig's, and the glibc that both link for.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const ZIG_TARGET: &str = "x86_64-linux-gnu";
const GLIBC: &str = "2.28";

/// Directories that shipped files name instead of those of the machine.
const SOURCES: &str = "/usr/src/ottla";

const BUILT_WITHIN: Duration = Duration::from_secs(60 * 60);
const LINKED_WITHIN: Duration = Duration::from_secs(5 * 60);

impl Artefacts {
    /// The files of the last build.
    pub(crate) fn built() -> Result<Self, Failure> {
        let artefacts = Self { dir: Self::dist_dir(), for_tests: false };
        let last = artefacts.path("share/man");
        if last.is_dir() {
            return Ok(artefacts);
        }
        Err(Failure::new(format!("{} does not exist: run cargo xtask dist", last.display())))
    }

    /// Builds all files with the profile `dist`.
    pub(crate) fn build() -> Result<Self, Failure> {
        let artefacts = Self::empty(Self::dist_dir(), false)?;
        let zig = Zig::install()?;
        zig.compile_libc(&format!("{ZIG_TARGET}.{GLIBC}"))?;
        let libgcc = shared_libgcc()?;
        let from = build_crate(&zig, COMMAND_PROFILE, &["--package", "ottla", "--bin", "ottla"], &[])?;
        install::place(&from.join("ottla"), &artefacts.path("ottla"))?;
        let library = ["--package", "ottla-capi", "--lib", "--crate-type", "cdylib,staticlib"];
        let from = build_crate(&zig, LIBRARY_PROFILE, &library, &libgcc)?;
        install::place(&from.join("librdkafka.so"), &artefacts.path("librdkafka.so.1"))?;
        install::place(&from.join("librdkafka.a"), &artefacts.path("librdkafka.a"))?;
        install::link(&artefacts.dir, "librdkafka.so", "librdkafka.so.1")?;
        let compile = ["-g1".to_owned()].into_iter().chain(c_prefix_maps()).collect();
        let link = vec![build_id::linker_flag()];
        let include = include_dir(&artefacts)?.join("librdkafka");
        install::classes(&artefacts.dir, &include, &ClassFlags { compile, link })?;
        artefacts.performance(&zig)?;
        artefacts.finish()?;
        Ok(artefacts)
    }

    /// The files of the profile `dev` that the tests use. They are large, and need the glibc of this machine.
    pub(crate) fn for_tests(prefix: &Path) -> Result<Self, Failure> {
        let artefacts = Self::empty(target_dir().join("packages-dev/files"), true)?;
        install::place(&target_dir().join("debug/ottla"), &artefacts.path("ottla"))?;
        for library in ["librdkafka.so.1", "librdkafka.a", "librdkafka++.so.1", "librdkafka++.a"] {
            install::place(&prefix.join("lib").join(library), &artefacts.path(library))?;
        }
        let performance = "rdkafka_performance";
        install::place(&prefix.join("bin").join(performance), &artefacts.path(performance))?;
        create_dir(&artefacts.path("debug"))?;
        artefacts.strip()?;
        artefacts.documents()?;
        Ok(artefacts)
    }

    /// The contents of one file.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, Failure> {
        read(&self.path(name))
    }

    /// The files of a directory, by their names.
    pub(crate) fn files(&self, dir: &str) -> Result<Tree, Failure> {
        let mut tree = Tree::default();
        add_files(&self.path(dir), "", &mut tree)?;
        Ok(tree)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Fails when the files of the image are too large together.
    pub(crate) fn check_image(&self, bytes: usize) -> Result<(), Failure> {
        if bytes <= IMAGE_BYTES_MAX || self.for_tests {
            return Ok(());
        }
        Err(Failure::new(format!("the image has {bytes} bytes, more than {IMAGE_BYTES_MAX}")))
    }

    fn dist_dir() -> PathBuf {
        target_dir().join("packages/files")
    }

    fn empty(dir: PathBuf, for_tests: bool) -> Result<Self, Failure> {
        let _ = fs::remove_dir_all(&dir);
        create_dir(&dir)?;
        Ok(Self { dir, for_tests })
    }

    fn performance(&self, zig: &Zig) -> Result<(), Failure> {
        let source = workspace_root().join("crates/capi/examples/rdkafka_performance.c");
        let mut compile = zig.cc(&format!("{ZIG_TARGET}.{GLIBC}"));
        compile.args(["-O2", "-g1", "-Wall", "-Wextra"]).args(c_prefix_maps());
        compile.arg("-I").arg(include_dir(self)?).arg(source).arg("-o").arg(self.path("rdkafka_performance"));
        compile.arg("-L").arg(&self.dir).args(["-lrdkafka", "-Wl,-rpath,$ORIGIN/../lib"]);
        // The directory of the compilation is a part of the debug information.
        compile.arg(build_id::linker_flag()).current_dir(workspace_root());
        run("zig cc", &mut compile, b"", LINKED_WITHIN)?.succeeded().map(|_| ())
    }

    /// Strips and checks the built files, and adds the documents.
    fn finish(&self) -> Result<(), Failure> {
        self.strip()?;
        self.check_paths()?;
        self.documents()?;
        self.check()
    }

    /// Strips all files. The debug information of each binary becomes a file that debuggers find by the binary's build id.
    fn strip(&self) -> Result<(), Failure> {
        for (name, ..) in BINARIES {
            let binary = self.path(name);
            let debug = self.path("debug.new");
            binutils("objcopy", &["--only-keep-debug"], &[&binary, &debug])?;
            write(&debug, without_machine_paths(read(&debug)?))?;
            binutils("objcopy", &["--compress-debug-sections"], &[&debug])?;
            binutils("strip", &["--strip-unneeded", "--remove-section=.comment"], &[&binary])?;
            if !self.for_tests {
                self.write_build_id(name, &debug)?;
            }
        }
        for (name, _) in ARCHIVES {
            binutils("strip", &["--strip-debug", "--enable-deterministic-archives"], &[&self.path(name)])?;
        }
        Ok(())
    }

    fn write_build_id(&self, name: &str, debug: &Path) -> Result<(), Failure> {
        let (mut binary, mut information) = (self.bytes(name)?, read(debug)?);
        let id = build_id::of(&binary);
        for bytes in [&mut binary, &mut information] {
            if !build_id::write(bytes, id) {
                return Err(Failure::new(format!("{name} has no build id, or more than one")));
            }
        }
        write(&self.path(name), binary)?;
        let hex = hex(&id);
        let (dir, file) = hex.split_at(2);
        let dir = self.path("debug/.build-id").join(dir);
        create_dir(&dir)?;
        write(&dir.join(format!("{file}.debug")), information)
    }

    /// The manual pages and the completions, as the binary writes them.
    fn documents(&self) -> Result<(), Failure> {
        let ottla = |args: &[&str]| {
            let mut command = Command::new(self.path("ottla"));
            run("ottla", command.args(args), b"", LINKED_WITHIN)?.succeeded()
        };
        let completions = self.path("share/completions");
        create_dir(&completions)?;
        for shell in ["bash", "zsh", "fish"] {
            write(&completions.join(shell), ottla(&["completions", shell])?.stdout)?;
        }
        let pages = self.path("share/man");
        create_dir(&pages)?;
        ottla(&["man", &pages.to_string_lossy()])?;
        write(&self.path("THIRD-PARTY.txt"), notices::text()?)
    }

    /// Fails when a file names a directory of this machine.
    fn check_paths(&self) -> Result<(), Failure> {
        let paths = machine_paths();
        for name in BINARIES.iter().map(|&(name, ..)| name).chain(ARCHIVES.iter().map(|&(name, _)| name)) {
            if let Some(path) = elf::contains_path(&self.bytes(name)?, &paths) {
                return Err(Failure::new(format!("{name} contains the path {path} of this machine")));
            }
        }
        Ok(())
    }

    /// Fails when a file would not run at the floor, or is too large.
    fn check(&self) -> Result<(), Failure> {
        let sizes = BINARIES.iter().map(|&(name, _, limit)| (name, limit)).chain(ARCHIVES.iter().copied());
        for (name, limit) in sizes {
            let bytes = self.bytes(name)?.len() as u64;
            if bytes > limit {
                return Err(Failure::new(format!("{name} has {bytes} bytes, more than {limit}")));
            }
        }
        for (name, allowed, _) in BINARIES {
            let dynamic = elf::check(&self.path(name), &allowed.concat())?;
            let glibc = dynamic.glibc().unwrap_or("no glibc");
            println!(
                "{name}: {glibc}, {} bytes, needs {}",
                self.bytes(name)?.len(),
                dynamic.needed.join(" ")
            );
        }
        Ok(())
    }
}

/// With the linker of zig, and without a path of this machine in the results; their directory.
fn build_crate(zig: &Zig, profile: &str, what: &[&str], link: &[String]) -> Result<PathBuf, Failure> {
    let mut build = zig.cargo();
    build.args(["rustc", "--locked", "--profile", profile, "--target", &format!("{TARGET}.{GLIBC}")]);
    build.args(what).arg("--").arg(format!("-Clink-arg={}", build_id::linker_flag()));
    build.args(link.iter().map(|argument| format!("-Clink-arg={argument}")));
    build.current_dir(workspace_root());
    let maps = prefix_maps().into_iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    build.env("CARGO_ENCODED_RUSTFLAGS", maps.collect::<Vec<String>>().join("\x1f"));
    // libdeflate enables this feature per function, and zig disables it for the file.
    let c_flags: Vec<String> = c_prefix_maps().chain(["-mevex512".to_owned()]).collect();
    build.env(format!("CFLAGS_{}", TARGET.replace('-', "_")), c_flags.join(" "));
    build.env("CARGO_INCREMENTAL", "0");
    let built = shell::run(&mut build, BUILT_WITHIN).map_err(Failure::new)?;
    if built.status.success() {
        return Ok(target_dir().join(TARGET).join(profile));
    }
    Err(Failure::new(format!("cargo-zigbuild {} ({})", what.join(" "), built.status)))
}

/// The unwinder of the process. Zig would link its own, which cannot pass the frames of the application's callbacks.
fn shared_libgcc() -> Result<[String; 1], Failure> {
    let mut cc = Command::new("cc");
    let found = run("cc", cc.arg("-print-file-name=libgcc_s.so.1"), b"", LINKED_WITHIN)?.succeeded()?;
    Ok([found.stdout_text().trim().to_owned()])
}

/// Programs include `librdkafka/rdkafka.h`.
fn include_dir(artefacts: &Artefacts) -> Result<PathBuf, Failure> {
    let include = artefacts.path("include");
    create_dir(&include.join("librdkafka"))?;
    for header in install::files(&workspace_root().join("crates/capi/include"), "h")? {
        install::place(&header, &include.join("librdkafka").join(header.file_name().unwrap_or_default()))?;
    }
    Ok(include)
}

/// Directories of this machine that compilers see, with the names that they write. A later one that matches wins.
fn prefix_maps() -> Vec<(String, String)> {
    let home = |variable: &str, dir: &str| {
        let user = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(dir);
        std::env::var_os(variable).map_or_else(user, PathBuf::from).display().to_string()
    };
    vec![
        (home("CARGO_HOME", ".cargo"), "/usr/src/cargo".to_owned()),
        (home("RUSTUP_HOME", ".rustup"), "/usr/src/rustup".to_owned()),
        (workspace_root().display().to_string(), SOURCES.to_owned()),
        (target_dir().display().to_string(), format!("{SOURCES}/target")),
    ]
}

fn c_prefix_maps() -> impl Iterator<Item = String> {
    prefix_maps().into_iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}"))
}

/// Paths that no shipped file may contain.
fn machine_paths() -> Vec<String> {
    let home = std::env::var("HOME").ok();
    let dirs = prefix_maps().into_iter().map(|(from, _)| from).chain(home);
    // A directory such as `/` would be found everywhere.
    dirs.filter(|dir| dir.len() > 2).map(|dir| format!("{dir}/")).collect()
}

/// The debug information with other directories of the same length: zig compiles parts of the C library without our prefix maps.
fn without_machine_paths(mut bytes: Vec<u8>) -> Vec<u8> {
    for path in machine_paths() {
        let other = format!("{:/<width$}", "/usr/src/", width = path.len());
        let places: Vec<usize> = elf::places(&bytes, path.as_bytes()).collect();
        for place in places {
            bytes[place..place + path.len()].copy_from_slice(&other.as_bytes()[..path.len()]);
        }
    }
    bytes
}

fn binutils(program: &str, options: &[&str], files: &[&Path]) -> Result<(), Failure> {
    run(program, Command::new(program).args(options).args(files), b"", LINKED_WITHIN)?.succeeded().map(|_| ())
}

fn add_files(dir: &Path, prefix: &str, tree: &mut Tree) -> Result<(), Failure> {
    let entries = fs::read_dir(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    for entry in entries.flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            add_files(&entry.path(), &format!("{name}/"), tree)?;
        } else {
            tree.file(&name, read(&entry.path())?);
        }
    }
    Ok(())
}
