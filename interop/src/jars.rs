//! Apache Kafka's jars, downloaded once through Maven and kept in the target directory.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::failure::Failure;
use crate::peer::locked;
use crate::process::run;
use crate::workspace::{cache_dir, workspace_root};

/// About 90 jars, 120 MB: minutes on a slow connection.
const FETCH_WITHIN: Duration = Duration::from_secs(600);

/// A release of Apache Kafka that tests start, or of software on its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// 4.3: the newest.
    V4_3,
    /// 4.3 with its own tests of clusters, and JUnit.
    ClusterTests,
    /// The programs of 4.3 around the broker: Streams, Connect and MirrorMaker.
    Applications,
    /// Spring for Apache Kafka.
    Spring,
    /// Apache Flink and its Kafka connector.
    Flink,
    /// 4.1: whose tools most tests use.
    V4_1,
    /// 0.11: the oldest that our client supports.
    V0_11,
}

/// A directory with the jars of a release of Apache Kafka and a logger configuration with few messages.
#[derive(Clone, Debug)]
pub struct KafkaJars {
    release: Release,
    dir: PathBuf,
}

/// The jars of Apache Kafka 4.1, its tools and its clients.
pub fn jars() -> Result<KafkaJars, Failure> {
    static JARS: OnceLock<Result<KafkaJars, Failure>> = OnceLock::new();
    JARS.get_or_init(|| KafkaJars::fetch(Release::V4_1)).clone()
}

/// The jars of Apache Kafka 4.3, its tools and its clients.
pub fn newest_jars() -> Result<KafkaJars, Failure> {
    static JARS: OnceLock<Result<KafkaJars, Failure>> = OnceLock::new();
    JARS.get_or_init(|| KafkaJars::fetch(Release::V4_3)).clone()
}

/// The jars of Apache Kafka 4.3, its own tests of clusters, and JUnit's launcher.
pub fn cluster_test_jars() -> Result<KafkaJars, Failure> {
    static JARS: OnceLock<Result<KafkaJars, Failure>> = OnceLock::new();
    JARS.get_or_init(|| KafkaJars::fetch(Release::ClusterTests)).clone()
}

/// The jars of Kafka Streams, Kafka Connect and MirrorMaker 4.3, without the broker.
pub fn application_jars() -> Result<KafkaJars, Failure> {
    static JARS: OnceLock<Result<KafkaJars, Failure>> = OnceLock::new();
    JARS.get_or_init(|| KafkaJars::fetch(Release::Applications)).clone()
}

/// The jars of Spring for Apache Kafka.
pub fn spring_jars() -> Result<KafkaJars, Failure> {
    static JARS: OnceLock<Result<KafkaJars, Failure>> = OnceLock::new();
    JARS.get_or_init(|| KafkaJars::fetch(Release::Spring)).clone()
}

/// The jars of Apache Flink and its Kafka connector.
pub fn flink_jars() -> Result<KafkaJars, Failure> {
    static JARS: OnceLock<Result<KafkaJars, Failure>> = OnceLock::new();
    JARS.get_or_init(|| KafkaJars::fetch(Release::Flink)).clone()
}

/// The jars of Apache Kafka 0.11 and its ZooKeeper.
pub fn old_jars() -> Result<KafkaJars, Failure> {
    static JARS: OnceLock<Result<KafkaJars, Failure>> = OnceLock::new();
    JARS.get_or_init(|| KafkaJars::fetch(Release::V0_11)).clone()
}

/// The class path of another version of Java's client: it has neither the broker nor the tools.
pub fn java_client(version: &str) -> Result<OsString, Failure> {
    let dir = cache_dir().join(format!("kafka-clients-{version}"));
    let complete = dir.join("complete");
    locked("jars", || {
        if complete.exists() {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&dir);
        let mut mvn = Command::new("mvn");
        mvn.args(["-q", "-B", "-f"]).arg(workspace_root().join("interop/java/pom-clients.xml"));
        mvn.arg("dependency:copy-dependencies").arg(format!("-Dclients.version={version}"));
        let mut target = OsString::from("-DoutputDirectory=");
        target.push(&dir);
        run("mvn", mvn.arg(target), b"", FETCH_WITHIN)?.succeeded()?;
        fs::write(&complete, b"").map_err(|error| Failure::new(format!("{}: {error}", complete.display())))
    })?;
    Ok(dir.join("*").into_os_string())
}

impl Release {
    /// The version of `kafka-clients` that its pom brings.
    const fn version(self) -> &'static str {
        match self {
            Self::V4_3 | Self::ClusterTests | Self::Applications => "4.3.1",
            Self::Spring => "4.1.2",
            Self::Flink => "3.9.1",
            Self::V4_1 => "4.1.0",
            Self::V0_11 => "0.11.0.3",
        }
    }

    const fn dir_name(self) -> &'static str {
        match self {
            Self::V4_3 => "kafka-4.3.1",
            Self::ClusterTests => "kafka-4.3.1-cluster-tests",
            Self::Applications => "kafka-4.3.1-applications",
            Self::Spring => "spring-kafka-4.0.8",
            Self::Flink => "flink-connector-kafka-4.0.1",
            Self::V4_1 => "kafka-4.1.0",
            Self::V0_11 => "kafka-0.11.0.3",
        }
    }

    const fn pom(self) -> &'static str {
        match self {
            Self::V4_3 => "interop/java/pom-4.3.xml",
            Self::ClusterTests => "interop/java/pom-cluster-tests.xml",
            Self::Applications => "interop/java/pom-applications.xml",
            Self::Spring => "interop/java/pom-spring.xml",
            Self::Flink => "interop/java/pom-flink.xml",
            Self::V4_1 => "interop/java/pom.xml",
            Self::V0_11 => "interop/java/pom-0.11.xml",
        }
    }

    /// The logger's configuration file: 0.11 logs through log4j 1.
    const fn logger(self) -> (&'static str, &'static str) {
        match self {
            Self::V4_3
            | Self::ClusterTests
            | Self::Applications
            | Self::Spring
            | Self::Flink
            | Self::V4_1 => ("-Dlog4j2.configurationFile=", "interop/java/log4j2.properties"),
            Self::V0_11 => ("-Dlog4j.configuration=file:", "interop/java/log4j.properties"),
        }
    }
}

impl KafkaJars {
    /// Copies the jars into the cache unless it has a complete copy of the same pom. The first test process fetches
    /// them; the others wait.
    fn fetch(release: Release) -> Result<Self, Failure> {
        let pom = workspace_root().join(release.pom());
        let wanted = fs::read(&pom).map_err(|error| Failure::new(format!("{}: {error}", pom.display())))?;
        let dir = cache_dir().join(release.dir_name());
        // Written last, with its pom: a partial copy or another list of jars is fetched again.
        let complete = dir.join("complete");
        let is_complete = || fs::read(&complete).is_ok_and(|made_from| made_from == wanted);
        if is_complete() {
            return Ok(Self { release, dir });
        }
        locked("jars", || {
            if is_complete() {
                return Ok(());
            }
            let _ = fs::remove_dir_all(&dir);
            let mut mvn = Command::new("mvn");
            mvn.args(["-q", "-B", "-f"]).arg(&pom).arg("dependency:copy-dependencies");
            let mut target = OsString::from("-DoutputDirectory=");
            target.push(&dir);
            run("mvn", mvn.arg(target), b"", FETCH_WITHIN)?.succeeded()?;
            fs::write(&complete, &wanted)
                .map_err(|error| Failure::new(format!("{}: {error}", complete.display())))
        })?;
        Ok(Self { release, dir })
    }

    /// The directory of the jars.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The argument of `java -cp`.
    pub fn class_path(&self) -> OsString {
        self.dir.join("*").into_os_string()
    }

    /// The `kafka-clients` jar, which contains the message schemas as `common/message/*.json`.
    pub fn kafka_clients(&self) -> PathBuf {
        self.dir.join(format!("kafka-clients-{}.jar", self.release.version()))
    }

    /// A `java` command with the class path, fast start-up and few log messages. Class and arguments follow.
    pub fn java(&self, heap_mb_max: u32) -> Command {
        // These processes run for seconds: the first compiler tier and the serial collector start fastest.
        self.java_with(&["-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"], heap_mb_max)
    }

    /// Like [`KafkaJars::java`], with the JVM's default compiler and collector, for measurements.
    pub fn warm_java(&self, heap_mb_max: u32) -> Command {
        self.java_with(&[], heap_mb_max)
    }

    /// Like [`KafkaJars::java`], with a directory of classes in front of the jars.
    pub fn java_with_classes(&self, classes: &Path, heap_mb_max: u32) -> Command {
        let mut java = self.java(heap_mb_max);
        let mut path = classes.as_os_str().to_owned();
        path.push(":");
        path.push(self.class_path());
        java.arg("-cp").arg(path);
        java
    }

    fn java_with(&self, flags: &[&str], heap_mb_max: u32) -> Command {
        let mut java = Command::new("java");
        java.args(flags).arg(format!("-Xmx{heap_mb_max}m"));
        let (option, file) = self.release.logger();
        let mut logger = OsString::from(option);
        logger.push(workspace_root().join(file));
        java.arg(logger).arg("-cp").arg(self.class_path());
        java
    }
}
