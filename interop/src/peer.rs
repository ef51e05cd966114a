//! The peers of this machine: their detection, installation in CI, and skipped tests.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::javascript::node_prefix;
use crate::librdkafka::Librdkafka;
use crate::process::run;
use crate::workspace::cache_dir;

/// The file in [`cache_dir`] with one line per skipped test.
pub const SKIPPED_FILE: &str = "skipped";

/// Set by `cargo xtask test --quick`: peers that start a JVM are skipped.
pub const QUICK: &str = "OTTLA_QUICK";

/// Debian packages are downloaded: this takes minutes.
const INSTALL_WITHIN: Duration = Duration::from_secs(600);

/// A peer of the interoperability tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Apache Kafka 4.1, broker and tools: a JVM, and jars from Maven.
    Java,
    /// Apache Kafka 4.3: a JVM, and other jars.
    NewestJava,
    /// Kafka Streams, Kafka Connect and MirrorMaker 4.3: a JVM, and other jars.
    Applications,
    /// Spring for Apache Kafka: a JVM, and other jars.
    Spring,
    /// Apache Flink and its Kafka connector: a JVM, and other jars.
    Flink,
    /// Apache Kafka 0.11 with its ZooKeeper: a JVM, and other jars.
    OldJava,
    /// kcat, on librdkafka.
    Kcat,
    /// librdkafka itself, for comparison: a Python wheel, Debian packages, and compilers for programs.
    Librdkafka,
    /// confluent-kafka for Python, built on our library.
    Python,
    /// confluent-kafka-go, built on our library.
    Go,
    /// rust-rdkafka, built on our library.
    Rust,
    /// Node and its packages.
    Node,
    /// confluent-kafka-javascript, built on our library.
    Javascript,
    /// The build of librdkafka's own tests: npm for their sources, make, compilers, OpenSSL's headers; and Java.
    NumberedTests,
    /// MIT's Kerberos server and `kinit`.
    Kerberos,
    /// valgrind.
    Valgrind,
    /// The address `::1`: containers may not have it.
    Ipv6,
}

/// A peer that is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    peer: Peer,
    why: String,
}

impl Peer {
    /// All peers, in the order of lists.
    pub const ALL: [Self; 17] = [
        Self::Java,
        Self::NewestJava,
        Self::Applications,
        Self::Spring,
        Self::Flink,
        Self::OldJava,
        Self::Kcat,
        Self::Librdkafka,
        Self::Python,
        Self::Go,
        Self::Rust,
        Self::Node,
        Self::Javascript,
        Self::NumberedTests,
        Self::Kerberos,
        Self::Valgrind,
        Self::Ipv6,
    ];

    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Java => "Apache Kafka 4.1",
            Self::NewestJava => "Apache Kafka 4.3",
            Self::Applications => "Kafka Streams and Connect",
            Self::Spring => "Spring for Apache Kafka",
            Self::Flink => "Apache Flink",
            Self::OldJava => "Apache Kafka 0.11",
            Self::Kcat => "kcat",
            Self::Librdkafka => "librdkafka",
            Self::Python => "confluent-kafka for Python",
            Self::Go => "confluent-kafka-go",
            Self::Rust => "rust-rdkafka",
            Self::Node => "Node",
            Self::Javascript => "confluent-kafka-javascript",
            Self::NumberedTests => "librdkafka's numbered tests",
            Self::Kerberos => "Kerberos",
            Self::Valgrind => "valgrind",
            Self::Ipv6 => "IPv6",
        }
    }

    /// `Ok` if the peer is available. With `CI=true` a missing one is installed first.
    ///
    /// # Panics
    /// With `CI=true`, if it cannot be installed: CI never skips a peer.
    pub fn require(self) -> Result<(), Missing> {
        let starts_jvm = matches!(
            self,
            Self::Java
                | Self::NewestJava
                | Self::Applications
                | Self::Spring
                | Self::Flink
                | Self::OldJava
                | Self::NumberedTests
        );
        if starts_jvm && std::env::var_os(QUICK).is_some() {
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
            Self::NewestJava => crate::newest_jars(),
            Self::Applications => crate::application_jars(),
            Self::Spring => crate::spring_jars(),
            Self::Flink => crate::flink_jars(),
            Self::OldJava => crate::old_jars(),
            Self::NumberedTests => {
                // Without them the original is built without TLS, and its tests of TLS are left out.
                self.header(Path::new("/usr/include/openssl/ssl.h"), &["libssl-dev", "zlib1g-dev"])?;
                crate::jars()
            }
            Self::Javascript => {
                let node = node_prefix().map_err(|failure| self.missing(failure.to_string()))?;
                return self.header(&node.join("include/node/node.h"), &["libnode-dev"]);
            }
            Self::Kcat
            | Self::Python
            | Self::Go
            | Self::Rust
            | Self::Node
            | Self::Kerberos
            | Self::Valgrind => {
                return Ok(());
            }
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

    /// `Ok` if the file exists, or can be installed with these Debian packages.
    fn header(self, header: &Path, packages: &[&str]) -> Result<(), Missing> {
        if header.is_file() {
            return Ok(());
        }
        let why = format!("{} is missing (apt-get install {})", header.display(), packages.join(" "));
        if !in_ci() {
            return Err(self.missing(why));
        }
        apt_install(packages).map_err(|failure| self.missing(format!("{why}: {failure}")))
    }

    /// The required programs, with their Debian packages.
    fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Java
            | Self::NewestJava
            | Self::Applications
            | Self::Spring
            | Self::Flink
            | Self::OldJava => &[("java", "openjdk-17-jre-headless"), ("mvn", "maven")],
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
            Self::Node => &[("node", "nodejs"), ("npm", "npm")],
            Self::Javascript => &[
                ("node", "nodejs"),
                ("npm", "npm"),
                ("python3", "python3"),
                ("make", "make"),
                ("c++", "g++"),
            ],
            Self::Go => &[("go", "golang-go"), ("cc", "gcc"), ("pkg-config", "pkg-config")],
            Self::Rust => &[("cc", "gcc"), ("pkg-config", "pkg-config")],
            Self::NumberedTests => &[
                ("npm", "npm"),
                ("make", "make"),
                ("cc", "gcc"),
                ("c++", "g++"),
                ("apt-get", "apt"),
                ("dpkg-deb", "dpkg"),
                ("java", "openjdk-17-jre-headless"),
                ("mvn", "maven"),
            ],
            Self::Kerberos => {
                &[("krb5kdc", "krb5-kdc"), ("kadmin.local", "krb5-admin-server"), ("kinit", "krb5-user")]
            }
            Self::Valgrind => &[("valgrind", "valgrind"), ("cc", "gcc")],
            Self::Ipv6 => &[],
        }
    }

    fn missing(self, why: String) -> Missing {
        Missing { peer: self, why }
    }
}

impl Missing {
    /// The missing peer.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Prints on the terminal that the running test is skipped, bypassing the test runner's capture. Appends it to
    /// the skipped file, which `cargo xtask test` lists at its end.
    pub fn skip(&self) {
        let _ = writeln!(io::stderr(), "{self}");
        let test = std::thread::current().name().unwrap_or("main").to_owned();
        let note = || {
            fs::create_dir_all(cache_dir())?;
            let mut file =
                OpenOptions::new().create(true).append(true).open(cache_dir().join(SKIPPED_FILE))?;
            file.write_all(format!("{test}\t{}\t{}\n", self.peer.name(), self.why).as_bytes())
        };
        if let Err(error) = note() {
            let _ = writeln!(io::stderr(), "cannot record the skipped test {test}: {error}");
        }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "skipped: {}", self.why)
    }
}

/// The return value of a skipped test; see [`require!`](crate::require).
pub trait Skipped {
    /// The value of a passing test.
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

/// `true` if `CI=true` is set: missing peers are installed, and no test is skipped.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Runs `work` while this process holds the lock `name`, which all test processes of this workspace share.
pub(crate) fn locked<T>(name: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let open = || {
        fs::create_dir_all(cache_dir())?;
        let file = File::create(cache_dir().join(format!("{name}.lock")))?;
        file.lock()?;
        Ok(file)
    };
    let lock = open().map_err(|error: io::Error| Failure::new(format!("the lock {name}: {error}")))?;
    let outcome = work();
    drop(lock);
    outcome
}

/// `true` if `program` is in a directory of `PATH`, or in the one of servers, which users may not have in theirs.
fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let servers = PathBuf::from("/usr/sbin");
    std::env::split_paths(&path).chain([servers]).any(|dir| is_executable(&dir.join(program)))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Installs Debian packages, as root or with sudo.
pub fn apt_install(packages: &[&str]) -> Result<(), Failure> {
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
