//! Which peers this machine has; what a test does without one; what CI installs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::librdkafka::Librdkafka;
use crate::process::run;
use crate::workspace::interop_dir;

/// The file in [`interop_dir`] that names what was skipped: one line per skipped test.
pub const SKIPPED_FILE: &str = "skipped";

/// Set for `cargo xtask test --quick`: whatever starts a JVM is left out, and counts as skipped.
pub const QUICK: &str = "OTTLA_QUICK";

/// Debian packages come over the network: minutes, not seconds.
const INSTALL_WITHIN: Duration = Duration::from_secs(600);

/// A program that is not ours and that the interoperability tests talk to, or a way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Apache Kafka 4.1, broker and tools: a JVM, and the jars through Maven.
    Java,
    /// Apache Kafka 0.11 with its ZooKeeper: the same, with jars of its own.
    OldJava,
    /// kcat, on librdkafka.
    Kcat,
    /// librdkafka itself, to compare ours with: a wheel of Python's and packages of Debian's, and compilers for programs.
    Librdkafka,
    /// confluent-kafka for Python, built on our library.
    Python,
    /// confluent-kafka-go, built on our library.
    Go,
    /// rust-rdkafka, built on our library.
    Rust,
    /// valgrind.
    Valgrind,
    /// The address `::1`, to listen on: containers may be without.
    Ipv6,
}

/// A peer that cannot be had here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    peer: Peer,
    why: String,
}

impl Peer {
    /// All peers, in the order in which they are listed.
    pub const ALL: [Self; 9] = [
        Self::Java,
        Self::OldJava,
        Self::Kcat,
        Self::Librdkafka,
        Self::Python,
        Self::Go,
        Self::Rust,
        Self::Valgrind,
        Self::Ipv6,
    ];

    /// How people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Java => "Apache Kafka 4.1",
            Self::OldJava => "Apache Kafka 0.11",
            Self::Kcat => "kcat",
            Self::Librdkafka => "librdkafka",
            Self::Python => "confluent-kafka for Python",
            Self::Go => "confluent-kafka-go",
            Self::Rust => "rust-rdkafka",
            Self::Valgrind => "valgrind",
            Self::Ipv6 => "IPv6",
        }
    }

    /// `Ok` when the peer can be used. With `CI=true` a missing one is installed first.
    ///
    /// # Panics
    /// With `CI=true`, when it cannot be installed: CI never skips what it can have.
    pub fn require(self) -> Result<(), Missing> {
        if matches!(self, Self::Java | Self::OldJava) && std::env::var_os(QUICK).is_some() {
            return Err(self.missing("left out by --quick".to_owned()));
        }
        match self.ready() {
            Ok(()) => Ok(()),
            Err(missing) if in_ci() && self != Self::Ipv6 => panic!("{missing}"),
            Err(missing) => Err(missing),
        }
    }

    fn ready(self) -> Result<(), Missing> {
        self.programs()?;
        let jars = match self {
            Self::Java => crate::jars(),
            Self::OldJava => crate::old_jars(),
            Self::Kcat | Self::Python | Self::Go | Self::Rust | Self::Valgrind => return Ok(()),
            Self::Librdkafka => {
                let fetched = Librdkafka::reference().map(drop);
                return fetched.map_err(|failure| self.missing(failure.to_string()));
            }
            Self::Ipv6 => {
                let listened = std::net::TcpListener::bind("[::1]:0").map(drop);
                return listened
                    .map_err(|error| self.missing(format!("[::1] cannot be listened on: {error}")));
            }
        };
        jars.map(|_| ()).map_err(|failure| self.missing(failure.to_string()))
    }

    fn programs(self) -> Result<(), Missing> {
        let absent: Vec<&str> =
            self.needs().iter().map(|&(program, _)| program).filter(|p| !on_path(p)).collect();
        if absent.is_empty() {
            return Ok(());
        }
        let packages: Vec<&str> = self.needs().iter().map(|&(_, package)| package).collect();
        let verb = if absent.len() == 1 { "is" } else { "are" };
        let why =
            format!("{} {verb} not installed (apt-get install {})", absent.join(", "), packages.join(" "));
        if !in_ci() {
            return Err(self.missing(why));
        }
        apt_install(&packages).map_err(|failure| self.missing(format!("{why}: {failure}")))?;
        match absent.iter().find(|program| !on_path(program)) {
            Some(program) => Err(self.missing(format!("{program} is missing after its installation"))),
            None => Ok(()),
        }
    }

    /// Programs with the Debian packages that bring them.
    fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Java | Self::OldJava => &[("java", "openjdk-17-jre-headless"), ("mvn", "maven")],
            Self::Kcat => &[("kcat", "kcat")],
            Self::Librdkafka => &[
                ("python3", "python3"),
                ("pip3", "python3-pip"),
                ("cc", "gcc"),
                ("c++", "g++"),
                ("apt-get", "apt"),
                ("dpkg-deb", "dpkg"),
            ],
            Self::Python => &[
                ("python3", "python3"),
                ("pip3", "python3-pip"),
                ("python3-config", "python3-dev"),
                ("cc", "gcc"),
            ],
            Self::Go => &[("go", "golang-go"), ("cc", "gcc"), ("pkg-config", "pkg-config")],
            Self::Rust => &[("cc", "gcc"), ("pkg-config", "pkg-config")],
            Self::Valgrind => &[("valgrind", "valgrind"), ("cc", "gcc")],
            Self::Ipv6 => &[],
        }
    }

    fn missing(self, why: String) -> Missing {
        Missing { peer: self, why }
    }
}

impl Missing {
    /// The peer that is missing.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Says on the terminal that the running test is skipped, past the test runner's capture, and notes it in the
    /// skipped file, which `cargo xtask test` lists at its end.
    pub fn skip(&self) {
        let _ = writeln!(io::stderr(), "{self}");
        let test = std::thread::current().name().unwrap_or("main").to_owned();
        let note = || {
            fs::create_dir_all(interop_dir())?;
            let mut file =
                OpenOptions::new().create(true).append(true).open(interop_dir().join(SKIPPED_FILE))?;
            file.write_all(format!("{test}\t{}\t{}\n", self.peer.name(), self.why).as_bytes())
        };
        if let Err(error) = note() {
            let _ = writeln!(io::stderr(), "the skipped test {test} could not be noted: {error}");
        }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "skipped: {}", self.why)
    }
}

/// What a test function returns when it is skipped; see [`require!`](crate::require).
pub trait Skipped {
    /// The value that lets the test pass.
    fn skipped() -> Self;
}

impl Skipped for () {
    fn skipped() -> Self {}
}

impl<E> Skipped for Result<(), E> {
    fn skipped() -> Self {
        Ok(())
    }
}

/// Whether `CI=true`: then what is missing is installed, and nothing is skipped.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Runs `work` while no other test process of this workspace holds the lock `name`.
pub(crate) fn locked<T>(name: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let open = || {
        fs::create_dir_all(interop_dir())?;
        let file = File::create(interop_dir().join(format!("{name}.lock")))?;
        file.lock()?;
        Ok(file)
    };
    let lock = open().map_err(|error: io::Error| Failure::new(format!("the lock {name}: {error}")))?;
    let outcome = work();
    drop(lock);
    outcome
}

/// Whether `program` lies in one of the directories of `PATH`.
fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| is_executable(&dir.join(program)))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn apt_install(packages: &[&str]) -> Result<(), Failure> {
    locked("apt", || {
        let apt = |args: &[&str]| {
            let mut command = Command::new(if is_root() { "apt-get" } else { "sudo" });
            if !is_root() {
                command.args(["-n", "apt-get"]);
            }
            command.env("DEBIAN_FRONTEND", "noninteractive").args(args);
            run("apt-get", &mut command, b"", INSTALL_WITHIN)?.succeeded()
        };
        apt(&["update"])?;
        apt(&[&["install", "-y", "--no-install-recommends"], packages].concat()).map(|_| ())
    })
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}
