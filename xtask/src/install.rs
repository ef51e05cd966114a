//! `cargo xtask install`: librdkafka's interfaces on Ottla, laid out as programs and bindings expect them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use ottla_interop::{Failure, run as run_command, target_dir, workspace_root};

use crate::shell::{self, cargo};

const BUILD_WITHIN: Duration = Duration::from_secs(30 * 60);
const COMPILED_WITHIN: Duration = Duration::from_secs(5 * 60);

/// The release of librdkafka whose interface this is: pkg-config compares it with what bindings ask for.
pub(crate) const VERSION: &str = "2.16.0";

/// Libraries of every Linux with glibc; loading our library may need no others.
pub(crate) const ALLOWED: &[&str] =
    &["libc.so", "libgcc_s.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux"];
/// The C++ classes need besides: the C library below them, and their language's.
pub(crate) const ALLOWED_CXX: &[&str] = &["librdkafka.so.1", "libstdc++.so"];

/// Programs record the directory of the shared libraries, because the loader does not search it. `LD_LIBRARY_PATH` takes precedence.
const RUN_PATH: &str = "-Wl,-rpath,${libdir}";

/// The system libraries that `librdkafka.a` needs.
const STATIC_LIBS: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

pub(crate) struct Options {
    prefix: PathBuf,
    profile: String,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let (mut prefix, mut profile) = (None, "release".to_owned());
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("install: {arg} needs a value"));
            match arg {
                "--prefix" => prefix = Some(PathBuf::from(value()?)),
                "--profile" => value()?.clone_into(&mut profile),
                other => return Err(format!("install: no option {other}")),
            }
        }
        let prefix = prefix.ok_or("install: --prefix DIR says where to")?;
        Ok(Self { prefix, profile })
    }

    /// For the tests: the profile whose artefacts they share, where they look for it.
    pub(crate) fn for_tests() -> Self {
        Self { prefix: ottla_interop::our_prefix(), profile: "dev".to_owned() }
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match install(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("install: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Builds everything and lays it out below the prefix.
pub(crate) fn install(options: &Options) -> Result<(), Failure> {
    // For the tests, with the features of the whole workspace: it shares every artefact with them.
    let packages: &[&str] =
        if options.profile == "dev" { &["--workspace"] } else { &["--package", "ottla-capi"] };
    let build = [&["build"], packages, &["--profile", &options.profile]].concat();
    let built = shell::run(&mut cargo(&build), BUILD_WITHIN).map_err(Failure::new)?;
    if !built.status.success() {
        return Err(Failure::new(format!("cargo {} ({})", build.join(" "), built.status)));
    }
    // Cargo's directory of the profile `dev` has another name.
    let profile_dir = if options.profile == "dev" { "debug" } else { &options.profile };
    let built = target_dir().join(profile_dir);
    make_dirs(&options.prefix)?;
    let prefix = fs::canonicalize(&options.prefix)
        .map_err(|error| Failure::new(format!("{}: {error}", options.prefix.display())))?;
    let lib = prefix.join("lib");
    let include = prefix.join("include/librdkafka");

    place(&built.join("librdkafka.so"), &lib.join("librdkafka.so.1"))?;
    place(&built.join("librdkafka.a"), &lib.join("librdkafka.a"))?;
    link(&lib, "librdkafka.so", "librdkafka.so.1")?;
    needs_only(&lib.join("librdkafka.so.1"), ALLOWED)?;

    let capi = workspace_root().join("crates/capi");
    for header in files(&capi.join("include"), "h")? {
        place(&header, &include.join(header.file_name().unwrap_or_default()))?;
    }
    classes(&lib, &include, &ClassFlags::default())?;
    program(&capi.join("examples/rdkafka_performance.c"), &prefix)?;
    pkg_config(&prefix)?;
    println!("installed below {}", prefix.display());
    Ok(())
}

fn make_dirs(prefix: &Path) -> Result<(), Failure> {
    for dir in ["bin", "lib/pkgconfig", "include/librdkafka"] {
        let dir = prefix.join(dir);
        fs::create_dir_all(&dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    }
    Ok(())
}

/// Beside its place first: a running program keeps the file it has mapped.
pub(crate) fn place(from: &Path, to: &Path) -> Result<(), Failure> {
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh)
        .and_then(|_| fs::rename(&fresh, to))
        .map_err(|error| Failure::new(format!("{} to {}: {error}", from.display(), to.display())))
}

pub(crate) fn link(dir: &Path, name: &str, target: &str) -> Result<(), Failure> {
    let path = dir.join(name);
    if fs::read_link(&path).is_ok_and(|existing| existing == Path::new(target)) {
        return Ok(());
    }
    let _ = fs::remove_file(&path);
    symlink(target, &path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

pub(crate) fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension() == Some(OsStr::new(extension)));
    files.sort();
    Ok(files)
}

/// Further flags for `librdkafka++`.
#[derive(Debug, Default)]
pub(crate) struct ClassFlags {
    pub(crate) compile: Vec<String>,
    pub(crate) link: Vec<String>,
}

/// `librdkafka++`, from its sources: shared and static, next to `librdkafka.so` in `lib`.
pub(crate) fn classes(lib: &Path, include: &Path, flags: &ClassFlags) -> Result<(), Failure> {
    let objects = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let mut made = Vec::new();
    for source in files(&workspace_root().join("crates/capi/cpp"), "cpp")? {
        let object = objects.path().join(source.file_name().unwrap_or_default()).with_extension("o");
        let mut compile = Command::new(compiler("CXX", "c++"));
        compile.args(["-c", "-std=c++11", "-O2", "-fPIC", "-Wall", "-Wextra", "-I"]);
        compile.arg(include).args(&flags.compile).arg(&source).arg("-o").arg(&object);
        execute("c++", &mut compile)?;
        made.push(object);
    }
    let shared = lib.join("librdkafka++.so.1");
    let mut linked = Command::new(compiler("CXX", "c++"));
    // A run path of the program does not count for what its libraries need.
    linked.args([
        "-shared",
        "-Wl,-soname,librdkafka++.so.1",
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--no-undefined",
        "-o",
    ]);
    linked.arg(&shared).args(&made).arg("-L").arg(lib).arg("-lrdkafka").args(&flags.link);
    execute("c++", &mut linked)?;
    link(lib, "librdkafka++.so", "librdkafka++.so.1")?;
    let archive = lib.join("librdkafka++.a");
    let _ = fs::remove_file(&archive);
    execute("ar", Command::new(compiler("AR", "ar")).arg("rcsD").arg(&archive).args(&made))?;
    needs_only(&shared, &[ALLOWED, ALLOWED_CXX].concat())
}

fn program(source: &Path, prefix: &Path) -> Result<(), Failure> {
    let name = source.file_stem().unwrap_or_default();
    let mut compile = Command::new(compiler("CC", "cc"));
    compile.args(["-O2", "-Wall", "-Wextra", "-I"]).arg(prefix.join("include"));
    compile.arg(source).arg("-o").arg(prefix.join("bin").join(name));
    compile.arg("-L").arg(prefix.join("lib")).args(["-lrdkafka", "-Wl,-rpath,$ORIGIN/../lib"]);
    execute("cc", &mut compile)
}

fn pkg_config(prefix: &Path) -> Result<(), Failure> {
    let dirs =
        format!("prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n", prefix.display());
    for (file, text) in pkg_config_files(&dirs) {
        let path = prefix.join("lib/pkgconfig").join(file);
        fs::write(&path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// The names and contents of the files. `dirs` is the lines that set `libdir` and `includedir`.
pub(crate) fn pkg_config_files(dirs: &str) -> [(&'static str, String); 4] {
    let text = |name: &str, requires: &str, libs: &str, private: &str| {
        format!(
            "{dirs}\nName: {name}\nDescription: librdkafka's interface on the Ottla client\nVersion: {VERSION}\n\
             {requires}Cflags: -I${{includedir}}\nLibs: {libs}\n{private}"
        )
    };
    let shared = format!("-L${{libdir}} {RUN_PATH}");
    let private = format!("Libs.private: {STATIC_LIBS}\n");
    let archive = format!("-L${{libdir}} ${{libdir}}/librdkafka.a {STATIC_LIBS}");
    let classes_archive = "-L${libdir} ${libdir}/librdkafka++.a -lstdc++";
    [
        ("rdkafka.pc", text("librdkafka", "", &format!("{shared} -lrdkafka"), &private)),
        ("rdkafka++.pc", text("librdkafka++", "Requires: rdkafka\n", &format!("{shared} -lrdkafka++"), "")),
        ("rdkafka-static.pc", text("librdkafka-static", "", &archive, "")),
        (
            "rdkafka++-static.pc",
            text("librdkafka++-static", "Requires: rdkafka-static\n", classes_archive, ""),
        ),
    ]
}

/// Fails when the loader would look for anything that is not `allowed`.
fn needs_only(library: &Path, allowed: &[&str]) -> Result<(), Failure> {
    let mut readelf = Command::new("readelf");
    let output = run_command("readelf", readelf.arg("-d").arg(library), b"", COMPILED_WITHIN)?.succeeded()?;
    let strange: Vec<String> = needed(&output.stdout_text())
        .into_iter()
        .filter(|name| !allowed.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    if strange.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("{} needs {} at run time", library.display(), strange.join(", "))))
}

/// From lines such as ` 0x0000000000000001 (NEEDED)  Shared library: [libc.so.6]`.
fn needed(dynamic: &str) -> Vec<String> {
    let names = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    names.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())).collect()
}

fn compiler(variable: &str, usual: &str) -> std::ffi::OsString {
    std::env::var_os(variable).unwrap_or_else(|| usual.into())
}

fn execute(name: &str, command: &mut Command) -> Result<(), Failure> {
    run_command(name, command, b"", COMPILED_WITHIN)?.succeeded().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_need_a_prefix() {
        let options = Options::parse(&["--prefix", "/opt/ottla", "--profile", "dev"]).unwrap();
        assert_eq!((options.prefix, options.profile), (PathBuf::from("/opt/ottla"), "dev".to_owned()));
        assert_eq!(Options::parse(&[]).err().unwrap(), "install: --prefix DIR says where to");
        assert_eq!(Options::parse(&["--prefix"]).err().unwrap(), "install: --prefix needs a value");
    }

    /// Without it, the loader finds another `librdkafka.so.1` at the start, or none.
    #[test]
    fn programs_record_the_directory_of_the_shared_libraries() {
        for (name, text) in pkg_config_files("libdir=/opt/ottla/lib\n") {
            let has_run_path = text.contains("\nLibs: -L${libdir} -Wl,-rpath,${libdir} -lrdkafka");
            assert_eq!(has_run_path, !name.contains("static"), "{name}:\n{text}");
        }
    }

    #[test]
    fn needed_libraries_are_read() {
        let dynamic = "\
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libssl.so.3]
 0x000000000000000e (SONAME)             Library soname: [librdkafka.so.1]";
        assert_eq!(needed(dynamic), ["libgcc_s.so.1", "libssl.so.3"]);
    }
}
