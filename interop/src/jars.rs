//! Apache Kafka's jars, fetched once through Maven and kept under the target directory.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::failure::Failure;
use crate::peer::locked;
use crate::process::run;
use crate::workspace::{interop_dir, workspace_root};

/// About 90 jars, 120 MB: minutes on a slow line.
const FETCH_WITHIN: Duration = Duration::from_secs(600);

/// The version in interop/java/pom.xml.
const VERSION: &str = "4.1.0";

/// A directory with the jars of Apache Kafka 4.1, its tools, its clients and a quiet logger.
#[derive(Clone, Debug)]
pub struct KafkaJars {
    dir: PathBuf,
}

/// The jars, fetched by whichever test process asks first; the others wait for it.
pub fn jars() -> Result<KafkaJars, Failure> {
    static JARS: OnceLock<Result<KafkaJars, Failure>> = OnceLock::new();
    JARS.get_or_init(KafkaJars::fetch).clone()
}

impl KafkaJars {
    /// Copies the jars into the cache unless a complete copy of the same pom lies there.
    pub fn fetch() -> Result<Self, Failure> {
        let pom = workspace_root().join("interop/java/pom.xml");
        let wanted = fs::read(&pom).map_err(|error| Failure::new(format!("{}: {error}", pom.display())))?;
        let dir = interop_dir().join(format!("kafka-{VERSION}"));
        // Written last, with the pom it was made from: a half copy or another list of jars is fetched anew.
        let complete = dir.join("complete");
        let is_complete = || fs::read(&complete).is_ok_and(|made_from| made_from == wanted);
        if is_complete() {
            return Ok(Self { dir });
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
        Ok(Self { dir })
    }

    /// The directory that holds the jars.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What `java -cp` takes.
    pub fn class_path(&self) -> OsString {
        self.dir.join("*").into_os_string()
    }

    /// The `kafka-clients` jar, which carries the message schemas as `common/message/*.json`.
    pub fn kafka_clients(&self) -> PathBuf {
        self.dir.join(format!("kafka-clients-{VERSION}.jar"))
    }

    /// A `java` command with the class path, quick start-up and the quiet logger; the class and its arguments follow.
    pub fn java(&self, heap_mb_max: u32) -> Command {
        // These processes live for seconds: the first compiler tier and the serial collector start soonest.
        self.java_with(&["-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"], heap_mb_max)
    }

    /// The same with the JVM's own choice of compiler and collector, for measurements.
    pub fn warm_java(&self, heap_mb_max: u32) -> Command {
        self.java_with(&[], heap_mb_max)
    }

    fn java_with(&self, flags: &[&str], heap_mb_max: u32) -> Command {
        let mut java = Command::new("java");
        java.args(flags).arg(format!("-Xmx{heap_mb_max}m"));
        let mut logger = OsString::from("-Dlog4j2.configurationFile=");
        logger.push(workspace_root().join("interop/java/log4j2.properties"));
        java.arg(logger).arg("-cp").arg(self.class_path());
        java
    }
}
