//! The two libraries under test: the original librdkafka, and ours.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::peer::locked;
use crate::process::run;
use crate::workspace::{cache_dir, target_dir};

/// The release of confluent-kafka whose wheel contains the original, and whose sources are built against ours.
pub const CONFLUENT_KAFKA: &str = "2.16.0";

/// Downloads of a few megabytes, and compilations of a few files.
const FETCHED_WITHIN: Duration = Duration::from_secs(300);
const COMPILED_WITHIN: Duration = Duration::from_secs(300);

/// A `librdkafka.so.1` and its headers.
#[derive(Clone, Debug)]
pub struct Librdkafka {
    lib: PathBuf,
    include: PathBuf,
}

/// The directory to which `cargo xtask test` installs our library: `OTTLA_LIBRDKAFKA`, or one in the target
/// directory.
pub fn our_prefix() -> PathBuf {
    std::env::var_os("OTTLA_LIBRDKAFKA").map_or_else(|| target_dir().join("librdkafka"), PathBuf::from)
}

impl Librdkafka {
    /// Our library, as installed by `cargo xtask install`.
    pub fn ours() -> Result<Self, Failure> {
        let prefix = our_prefix();
        let library = Self { lib: prefix.join("lib"), include: prefix.join("include") };
        if library.file().is_file() {
            return Ok(library);
        }
        let what = library.file();
        Err(Failure::new(format!(
            "{} does not exist: run cargo xtask install --profile dev --prefix {}",
            what.display(),
            prefix.display()
        )))
    }

    /// The original from confluent-kafka's wheel, with Debian's headers of an older release of the same ABI.
    pub fn reference() -> Result<Self, Failure> {
        let wheel = wheel()?;
        let lib = cache_dir().join("reference-lib");
        let original = named(&wheel.join("confluent_kafka.libs"), "librdkafka")?;
        locked("reference-lib", || {
            point(&lib, "librdkafka.so.1", &original)?;
            point(&lib, "librdkafka.so", Path::new("librdkafka.so.1"))?;
            // The wheel's file name, which programs linked with this directory record.
            point(&lib, &original.file_name().unwrap_or_default().to_string_lossy(), &original)
        })?;
        Ok(Self { lib, include: Debian::unpacked()?.include() })
    }

    /// The name of the library in messages.
    pub fn name(&self) -> &'static str {
        if self.is_ours() { "ours" } else { "reference" }
    }

    fn is_ours(&self) -> bool {
        self.lib == our_prefix().join("lib")
    }

    /// The directory for `LD_LIBRARY_PATH` and `-L`.
    pub fn lib(&self) -> &Path {
        &self.lib
    }

    /// The library itself.
    pub fn file(&self) -> PathBuf {
        self.lib.join("librdkafka.so.1")
    }

    /// The directory for `-I`: the headers are in its `librdkafka`.
    pub fn include(&self) -> &Path {
        &self.include
    }

    /// Makes `command` load this library.
    pub fn load<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_LIBRARY_PATH", &self.lib)
    }

    /// Makes `command` load this library and the C++ library in `classes`.
    pub fn load_with<'a>(&self, classes: &Path, command: &'a mut Command) -> &'a mut Command {
        let mut path = OsString::from(&self.lib);
        path.push(":");
        path.push(classes);
        command.env("LD_LIBRARY_PATH", path)
    }

    /// The `PKG_CONFIG_PATH` of a `rdkafka.pc` for this library.
    pub fn pkg_config(&self, include: &Path) -> Result<PathBuf, Failure> {
        let dir = self.lib.join("pkgconfig");
        if dir.join("rdkafka.pc").is_file() {
            return Ok(dir);
        }
        let text = format!(
            "Name: librdkafka\nDescription: the original\nVersion: {CONFLUENT_KAFKA}\nCflags: -I{}\nLibs: -L{} -lrdkafka\n",
            include.display(),
            self.lib.display()
        );
        let write = fs::create_dir_all(&dir).and_then(|()| fs::write(dir.join("rdkafka.pc"), text));
        write.map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
        Ok(dir)
    }
}

/// Debian's packages of librdkafka, unpacked in the target directory: nothing is installed.
#[derive(Clone, Debug)]
pub struct Debian {
    root: PathBuf,
}

impl Debian {
    /// Downloads and unpacks them once.
    pub fn unpacked() -> Result<Self, Failure> {
        let root = cache_dir().join("debian-librdkafka");
        locked("debian-librdkafka", || {
            if root.join("usr/include/librdkafka/rdkafkacpp.h").is_file() {
                return Ok(Self { root: root.clone() });
            }
            fs::create_dir_all(&root)
                .map_err(|error| Failure::new(format!("{}: {error}", root.display())))?;
            let mut download = Command::new("apt-get");
            download.args(["download", "librdkafka-dev", "librdkafka1", "librdkafka++1"]).current_dir(&root);
            run("apt-get", &mut download, b"", FETCHED_WITHIN)?.succeeded()?;
            for package in ["librdkafka1_", "librdkafka++1_", "librdkafka-dev_"] {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("-x").arg(named(&root, package)?).arg(&root);
                run("dpkg-deb", &mut unpack, b"", FETCHED_WITHIN)?.succeeded()?;
            }
            Ok(Self { root: root.clone() })
        })
    }

    /// The directory for `-I`.
    pub fn include(&self) -> PathBuf {
        self.root.join("usr/include")
    }

    /// The directory of its libraries, including `librdkafka.so` and `librdkafka++.so`.
    pub fn lib(&self) -> Result<PathBuf, Failure> {
        let lib = self.root.join("usr/lib");
        let entries =
            fs::read_dir(&lib).map_err(|error| Failure::new(format!("{}: {error}", lib.display())))?;
        let mut dirs = entries.flatten().map(|entry| entry.path());
        dirs.find(|dir| dir.join("librdkafka++.so.1").is_file())
            .ok_or_else(|| Failure::new(format!("{} has no librdkafka++.so.1", lib.display())))
    }
}

/// confluent-kafka's wheel, unpacked: `confluent_kafka`, and the library in `confluent_kafka.libs`.
pub fn wheel() -> Result<PathBuf, Failure> {
    let unpacked = cache_dir().join(format!("confluent-kafka-{CONFLUENT_KAFKA}"));
    locked("confluent-kafka-wheel", || {
        if unpacked.join("confluent_kafka").is_dir() {
            return Ok(unpacked.clone());
        }
        let wheels = cache_dir().join("wheel");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"]);
        pip.arg(&wheels).arg(format!("confluent-kafka=={CONFLUENT_KAFKA}"));
        run("pip", &mut pip, b"", FETCHED_WITHIN)?.succeeded()?;
        let wheel = named(&wheels, &format!("confluent_kafka-{CONFLUENT_KAFKA}"))?;
        let mut unpack = Command::new("python3");
        unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked);
        run("unpack", &mut unpack, b"", FETCHED_WITHIN)?.succeeded()?;
        Ok(unpacked.clone())
    })
}

/// The `PYTHONPATH` of a `confluent_kafka` on `library`. For the original it is the wheel. For ours it is the same
/// release, built against our headers and rebuilt when they change.
pub fn python_package(library: &Librdkafka) -> Result<PathBuf, Failure> {
    if !library.is_ours() {
        return wheel();
    }
    let prefix = our_prefix();
    let package = prefix.join("python");
    let header = prefix.join("include/librdkafka/rdkafka.h");
    locked("confluent-kafka-sources", || {
        let unreadable = |error| Failure::new(format!("{}: {error}", header.display()));
        let wanted = fs::read(&header).map_err(unreadable)?;
        // Written last, with the header that was used.
        let built_against = package.join("rdkafka.h");
        if fs::read(&built_against).is_ok_and(|header| header == wanted) {
            return Ok(package.clone());
        }
        let _ = fs::remove_dir_all(&package);
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir"]);
        pip.args(["--no-binary", "confluent-kafka"]);
        pip.arg("--target").arg(&package).arg(format!("confluent-kafka=={CONFLUENT_KAFKA}"));
        pip.env("C_INCLUDE_PATH", library.include()).env("LIBRARY_PATH", library.lib());
        run("pip", &mut pip, b"", FETCHED_WITHIN)?.succeeded()?;
        fs::write(&built_against, &wanted)
            .map_err(|error| Failure::new(format!("{}: {error}", built_against.display())))?;
        Ok(package.clone())
    })
}

/// Compiles one C or C++ file against `include` and the library in `lib`, to `program`.
///
/// The program does not record the directories: `LD_LIBRARY_PATH` selects the library at its start.
pub fn compile(
    source: &Path,
    include: &Path,
    libraries: &[&Path],
    program: &Path,
    flags: &[&str],
) -> Result<(), Failure> {
    let is_cxx = source.extension().is_some_and(|extension| extension == "cpp");
    let (variable, usual, linked): (_, _, &[&str]) =
        if is_cxx { ("CXX", "c++", &["-lrdkafka++", "-lrdkafka"]) } else { ("CC", "cc", &["-lrdkafka"]) };
    let mut compile = Command::new(std::env::var_os(variable).unwrap_or_else(|| usual.into()));
    compile.args(["-O1", "-g", "-Wall", "-Wextra", "-pthread"]).args(flags);
    compile.arg("-I").arg(include).arg(source).arg("-o").arg(program);
    for directory in libraries {
        compile.arg("-L").arg(directory).arg(format!("-Wl,-rpath-link,{}", directory.display()));
    }
    compile.args(linked).args(["-ldl", "-Wl,--allow-shlib-undefined"]);
    run(usual, &mut compile, b"", COMPILED_WITHIN)?.succeeded().map(|_| ())
}

/// The first file in `dir` whose name begins with `prefix`.
fn named(dir: &Path, prefix: &str) -> Result<PathBuf, Failure> {
    let found = fs::read_dir(dir).ok().and_then(|entries| {
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.into_iter().find(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
        })
    });
    found.ok_or_else(|| Failure::new(format!("{} has no {prefix}*", dir.display())))
}

/// Makes `dir/name` a symbolic link to `target`.
fn point(dir: &Path, name: &str, target: &Path) -> Result<(), Failure> {
    let path = dir.join(name);
    if fs::read_link(&path).is_ok_and(|existing| existing == target) {
        return Ok(());
    }
    let _ = fs::remove_file(&path);
    let made = fs::create_dir_all(dir).and_then(|()| symlink(target, &path));
    made.map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
