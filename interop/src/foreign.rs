//! Programs on Kafka clients without librdkafka: franz-go and Sarama for Go, kafka-python and aiokafka for Python, KafkaJS
//! for Node. Also the members of a group on different clients, of which one is librdkafka's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::applications::java_application;
use crate::failure::Failure;
use crate::librdkafka::wheel;
use crate::peer::locked;
use crate::process::run;
use crate::workspace::{cache_dir, workspace_root};

/// A build without a cache, including downloads.
const BUILT_WITHIN: Duration = Duration::from_secs(600);

const NODE_PACKAGE: &str = "kafkajs@2.2.4";

const PYTHON_PACKAGES: [&str; 2] = ["kafka-python==3.0.12", "aiokafka==0.14.0"];

/// The program of the folder `interop/foreign/go`, which has stories for franz-go and Sarama.
pub fn foreign_go() -> Result<Command, Failure> {
    static PROGRAM: OnceLock<Result<PathBuf, Failure>> = OnceLock::new();
    let build = || {
        let program = cache_dir().join("foreign-go");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&program).arg(".");
        go.current_dir(workspace_root().join("interop/foreign/go"));
        go.env("GOFLAGS", "-mod=readonly").env("CGO_ENABLED", "0");
        locked("foreign-go", || run("go", &mut go, b"", BUILT_WITHIN)?.succeeded())?;
        Ok(program)
    };
    PROGRAM.get_or_init(build).clone().map(Command::new)
}

/// Builds a Go program of one file, whose imports are modules of `interop/foreign/go`.
pub fn build_foreign_go(source: &Path, program: &Path) -> Result<(), Failure> {
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(program).arg(source);
    go.current_dir(workspace_root().join("interop/foreign/go"));
    go.env("GOFLAGS", "-mod=readonly").env("CGO_ENABLED", "0");
    run("go", &mut go, b"", BUILT_WITHIN)?.succeeded().map(drop)
}

/// The directory of Node's packages: KafkaJS.
pub fn foreign_node() -> Result<PathBuf, Failure> {
    let dir = cache_dir().join("foreign-node");
    let complete = dir.join("complete");
    locked("foreign-node", || {
        if fs::read_to_string(&complete).is_ok_and(|made_from| made_from == NODE_PACKAGE) {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&dir);
        let failed = |error| Failure::new(format!("{}: {error}", dir.display()));
        fs::create_dir_all(&dir).map_err(failed)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&dir);
        run("npm", npm.arg(NODE_PACKAGE), b"", BUILT_WITHIN)?.succeeded()?;
        fs::write(&complete, NODE_PACKAGE).map_err(failed)
    })?;
    Ok(dir.join("node_modules"))
}

/// The program of the folder `interop/foreign/python`, which has stories for kafka-python and aiokafka.
pub fn foreign_python() -> Result<Command, Failure> {
    let mut python = Command::new("python3");
    python.arg(workspace_root().join("interop/foreign/python/transactions.py"));
    python.env("PYTHONPATH", foreign_python_packages()?).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(python)
}

/// The directory of kafka-python and aiokafka.
pub fn foreign_python_packages() -> Result<PathBuf, Failure> {
    let packages = cache_dir().join("foreign-python");
    // Written last, with the versions: a partial copy or other versions are fetched again.
    let complete = packages.join("complete");
    let wanted = PYTHON_PACKAGES.join(" ");
    locked("foreign-python", || {
        if fs::read_to_string(&complete).is_ok_and(|made_from| made_from == wanted) {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&packages);
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-cache-dir", "--target"]).arg(&packages);
        run("pip", pip.args(PYTHON_PACKAGES), b"", BUILT_WITHIN)?.succeeded()?;
        fs::write(&complete, &wanted)
            .map_err(|error| Failure::new(format!("{}: {error}", complete.display())))
    })?;
    Ok(packages)
}

/// The programs that are a member of a group. Their arguments follow: bootstrap servers, topic, group and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMember {
    /// Java's client 4.3.
    Java,
    /// The original librdkafka, with confluent-kafka for Python.
    Librdkafka,
    /// franz-go.
    FranzGo,
}

impl GroupMember {
    /// The command.
    pub fn command(self) -> Result<Command, Failure> {
        match self {
            Self::Java => java_application("GroupMember.java"),
            Self::Librdkafka => {
                let mut python = Command::new("python3");
                python.arg(workspace_root().join("interop/foreign/python/member.py"));
                python.env("PYTHONPATH", wheel()?).env("PYTHONDONTWRITEBYTECODE", "1");
                Ok(python)
            }
            Self::FranzGo => {
                let mut go = foreign_go()?;
                go.arg("member");
                Ok(go)
            }
        }
    }
}
