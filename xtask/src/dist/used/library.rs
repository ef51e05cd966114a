//! The library: from the tarball, next to Debian's librdkafka, in its place, and linked statically.

use std::path::{Path, PathBuf};
use std::process::Command;

use ottla_interop::{Failure, Output, run, workspace_root};

use super::root::Root;
use super::{Broker, COMMAND_WITHIN, named, package, require};
use crate::dist::layout::DEB_LIB;

/// The C library and what our libraries need with it.
const RUNTIME: &[&str] = &["libc6", "libgcc-s1", "libstdc++6"];
/// The same with Debian's librdkafka and everything that it needs.
const DEBIAN_LIBRDKAFKA: &[&str] = &[
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "librdkafka1",
    "liblz4-1",
    "libsasl2-2",
    "libssl3",
    "libzstd1",
    "zlib1g",
];

const MESSAGES: &str = "message 0\nmessage 1\nmessage 2\n";

pub(super) fn tarball(results: &Path) -> Result<(), Failure> {
    let root = Root::empty()?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(named(results, "-linux-gnu.tar.gz")?).arg("-C").arg(root.path("tmp"));
    run("tar", unpack.arg("--strip-components=1"), b"", COMMAND_WITHIN)?.succeeded()?;
    let dir = root.path("tmp");
    let ottla = || Command::new(dir.join("bin/ottla"));
    let broker = Broker::start(ottla(), &["--durability", "memory"])?;
    broker.roundtrip(&ottla, "lines")?;

    let program = dir.join("roundtrip");
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_LIBDIR", dir.join("lib/pkgconfig"));
    compile("cc", "roundtrip.c", &flags(&mut pkg_config, "rdkafka")?, &program)?;
    let args = [broker.address.as_str(), "from-c"];
    let output = run("roundtrip", Command::new(&program).args(args), b"", COMMAND_WITHIN)?.succeeded()?;
    consumed(&output, "lib/librdkafka.so.1")?;

    let mut performance = Command::new(dir.join("bin/rdkafka_performance"));
    performance.args(["-P", "-t", "load", "-s", "100", "-c", "1000", "-b", &broker.address]);
    run("rdkafka_performance", &mut performance, b"", COMMAND_WITHIN)?.succeeded().map(|_| ())
}

/// Debian's library is in the root too, in the directory of all libraries.
pub(super) fn next_to_debian(results: &Path) -> Result<(), Failure> {
    let root = Root::with_debian(DEBIAN_LIBRDKAFKA)?;
    install(&root, results, &["libottla-rdkafka", "libottla-rdkafka-dev"])?;
    let broker = broker(&root, results)?;
    compile("cc", "roundtrip.c", &flags_outside(&root, "ottla-rdkafka")?, &root.path("c"))?;
    consumed(&root.run("/c", &[&broker.address, "from-c"], b"")?, DEB_LIB)?;
    compile("c++", "roundtrip.cpp", &flags_outside(&root, "ottla-rdkafka++")?, &root.path("cpp"))?;
    let output = root.run("/cpp", &[&broker.address, "from-cpp"], b"")?;
    let text = output.stdout_text();
    require(text.starts_with("delivered at offset 0"), &format!("the C++ program printed {text:?}"))?;
    // Builds that ask for librdkafka by its own name.
    let mut by_name = pkg_config(&root);
    by_name.env("PKG_CONFIG_PATH", root.path(DEB_LIB).join("pkgconfig"));
    require(
        flags(&mut by_name, "rdkafka")?.iter().any(|flag| flag.contains(DEB_LIB)),
        "rdkafka.pc is not ours",
    )
}

pub(super) fn linked_statically(results: &Path) -> Result<(), Failure> {
    let root = Root::with_debian(RUNTIME)?;
    install(&root, results, &["libottla-rdkafka", "libottla-rdkafka-dev"])?;
    let broker = broker(&root, results)?;
    let flags = flags_outside(&root, "ottla-rdkafka-static")?;
    compile("cc", "roundtrip.c", &flags, &root.path("static"))?;
    root.dpkg(
        &["--force-depends", "--remove"],
        &["libottla-rdkafka-dev", "libottla-rdkafka"].map(PathBuf::from),
    )?;
    consumed(&root.run("/static", &[&broker.address, "static"], b"")?, "/static")
}

/// The program of `crates/capi/tests/leaving.rs`: exceptions, `longjmp` and ends of threads pass the shipped library.
pub(super) fn callbacks_leave(results: &Path) -> Result<(), Failure> {
    let root = Root::with_debian(RUNTIME)?;
    install(&root, results, &["libottla-rdkafka", "libottla-rdkafka-dev"])?;
    let source = workspace_root().join("crates/capi/tests/leaving/leaving.c");
    for (compiler, language, ways) in
        [("cc", "c", &["longjmp", "pthread_exit"][..]), ("c++", "c++", &["throw"])]
    {
        let program = root.path(language);
        let mut compile = Command::new(compiler);
        compile.args(["-w", "-x", language]).arg(&source).args(["-x", "none", "-o"]).arg(&program);
        compile.arg(format!("-I{}", root.path("usr/include/ottla/librdkafka").display()));
        compile.args(flags_outside(&root, "ottla-rdkafka")?).arg("-pthread");
        run(compiler, &mut compile, b"", COMMAND_WITHIN)?.succeeded()?;
        for way in ways {
            for function in ["poll", "flush", "consumer_poll", "consume_callback", "consumer_close"] {
                let rounds = if function == "consumer_close" { "1" } else { "3" };
                root.run(&format!("/{language}"), &[function, way, rounds], b"")?;
            }
        }
    }
    Ok(())
}

/// A program that was built for Debian's library, which does not record a directory.
pub(super) fn in_the_place_of_debian(results: &Path) -> Result<(), Failure> {
    let root = Root::with_debian(DEBIAN_LIBRDKAFKA)?;
    install(&root, results, &["libottla-rdkafka", "libottla-rdkafka-dev"])?;
    let flags = flags_outside(&root, "ottla-rdkafka")?;
    let flags: Vec<String> = flags.into_iter().filter(|flag| !flag.contains("-rpath")).collect();
    compile("cc", "roundtrip.c", &flags, &root.path("program"))?;
    let library = || -> Result<String, Failure> {
        root.ldconfig()?;
        Ok(root.run("/program", &[], b"")?.stdout_text())
    };
    let debian = library()?;
    require(debian.contains("librdkafka.so.1") && !debian.contains(DEB_LIB), &format!("before: {debian}"))?;
    install(&root, results, &["libottla-rdkafka-default"])?;
    let ours = library()?;
    require(ours.contains(DEB_LIB), &format!("with libottla-rdkafka-default: {ours}"))?;
    // Our package satisfies the dependencies of programs on Debian's: dpkg would refuse this one.
    let dependent = dependent(&root)?;
    root.dpkg(&["--install"], &[dependent])?;
    let broker = broker(&root, results)?;
    consumed(&root.run("/program", &[&broker.address, "orders"], b"")?, DEB_LIB)?;
    root.dpkg(&["--remove"], &["needs-librdkafka1", "libottla-rdkafka-default"].map(PathBuf::from))?;
    root.dpkg(&["--purge"], &[PathBuf::from("libottla-rdkafka-default")])?;
    let debian = library()?;
    require(!debian.contains(DEB_LIB), &format!("after the removal: {debian}"))
}

/// A package without files that depends on Debian's library as Debian's programs do.
fn dependent(root: &Root) -> Result<PathBuf, Failure> {
    let package = crate::dist::deb::Package {
        name: "needs-librdkafka1",
        version: "1".to_owned(),
        section: "misc",
        summary: "a test",
        description: &["A test."],
        relations: vec![("Depends", "librdkafka1 (>= 2.0.2), librdkafka++1 (>= 2.0.2)".to_owned())],
        conffiles: &[],
        scripts: &[],
        files: crate::dist::tree::Tree::default(),
    };
    let file = root.path("tmp").join(package.file_name());
    crate::dist::tree::write(&file, package.build(0)?)?;
    Ok(file)
}

/// The root's database has none of Debian's packages, which are only unpacked.
fn install(root: &Root, results: &Path, packages: &[&str]) -> Result<(), Failure> {
    let files: Result<Vec<PathBuf>, Failure> = packages.iter().map(|name| package(results, name)).collect();
    root.dpkg(&["--force-depends", "--install"], &files?).map(|_| ())
}

fn broker(root: &Root, results: &Path) -> Result<Broker, Failure> {
    install(root, results, &["ottla"])?;
    Broker::start(root.command("/usr/bin/ottla"), &["--durability", "memory"])
}

/// pkg-config with the files of the root.
fn pkg_config(root: &Root) -> Command {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_LIBDIR", root.path("usr/lib/x86_64-linux-gnu/pkgconfig"));
    command
}

/// The flags for a compiler outside of the root. The directory that the program records is the one inside.
fn flags_outside(root: &Root, name: &str) -> Result<Vec<String>, Failure> {
    let outside = |flag: String| {
        let option = ["-I", "-L", ""].into_iter().find(|option| flag.starts_with(&format!("{option}/")));
        match option {
            Some(option) => format!("{option}{}", root.path(&flag[option.len()..]).display()),
            None => flag,
        }
    };
    Ok(flags(&mut pkg_config(root), name)?.into_iter().map(outside).collect())
}

fn flags(pkg_config: &mut Command, name: &str) -> Result<Vec<String>, Failure> {
    let output =
        run("pkg-config", pkg_config.args(["--cflags", "--libs", name]), b"", COMMAND_WITHIN)?.succeeded()?;
    Ok(output.stdout_text().split_whitespace().map(str::to_owned).collect())
}

fn compile(compiler: &str, source: &str, flags: &[String], program: &Path) -> Result<(), Failure> {
    let mut compile = Command::new(compiler);
    compile
        .args(["-O1", "-Wall", "-Wextra", "-Werror"])
        .arg(workspace_root().join("xtask/dist").join(source));
    compile.arg("-o").arg(program).args(flags).arg("-ldl");
    run(compiler, &mut compile, b"", COMMAND_WITHIN)?.succeeded().map(|_| ())
}

/// The output of `roundtrip.c`: the file of the library, then the messages.
fn consumed(output: &Output, library: &str) -> Result<(), Failure> {
    let text = output.stdout_text();
    let (first, messages) = text.split_once('\n').unwrap_or_default();
    require(first.contains(library), &format!("{first:?} is not {library}"))?;
    require(messages == MESSAGES, &format!("consumed {messages:?}"))
}
