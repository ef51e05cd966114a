//! The package `ottla`: the command, its service, its manual pages and completions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ottla_interop::{Failure, run};

use super::root::{Root, copy};
use super::{Broker, COMMAND_WITHIN, package, require};
use crate::dist::tools::create_dir;
use crate::dist::tree::{read, write};

/// The exposure that `systemd-analyze security` may report, in tenths of a point of 10.
const EXPOSURE_MAX: u32 = 15;

const UNIT: &str = "usr/lib/systemd/system/ottla.service";

pub(super) fn broker_and_commands(results: &Path) -> Result<(), Failure> {
    let root = Root::with_debian(&["libc6", "libgcc-s1"])?;
    root.dpkg(&["--force-depends", "--install"], &[package(results, "ottla")?])?;
    root.dpkg(&["--verify"], &[PathBuf::from("ottla")])?;
    create_dir(&root.path("var/lib/private"))?;
    let ottla = || root.command("/usr/bin/ottla");
    let options =
        ["--data", "/var/lib/private/ottla", "--config", "/etc/ottla/server.properties", "--topic", "orders"];
    let broker = Broker::start(ottla(), &options)?;
    broker.roundtrip(&ottla, "orders")?;
    drop(broker);
    root.dpkg(&["--remove"], &[PathBuf::from("ottla")])?;
    require(!root.path("usr/bin/ottla").exists(), "the command is still there after its removal")?;
    require(root.path("etc/ottla/server.properties").exists(), "the administrator's file was removed")?;
    require(root.path("var/lib/private/ottla").exists(), "the data was removed")
}

pub(super) fn manual_and_completions(results: &Path) -> Result<(), Failure> {
    let root = unpacked(results)?;
    let mut man = Command::new("man");
    man.args(["--warnings", "--local-file"]).arg(root.path("usr/share/man/man1/ottla-broker.1.gz"));
    man.env("MANPAGER", "cat").env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100");
    let page = run("man", &mut man, b"", COMMAND_WITHIN)?.succeeded()?;
    require(page.stdout_text().contains("--durability"), "the page of `ottla broker` has no --durability")?;
    require(page.stderr_text().is_empty(), &format!("warnings: {}", page.stderr_text()))?;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", "source \"$0\" && complete -p ottla"]);
    bash.arg(root.path("usr/share/bash-completion/completions/ottla"));
    let completion = run("bash", &mut bash, b"", COMMAND_WITHIN)?.succeeded()?;
    require(completion.stdout_text().contains("ottla"), "bash has no completion of ottla")
}

pub(super) fn unit(results: &Path) -> Result<(), Failure> {
    let root = unpacked(results)?;
    // The units of systemd itself, on which ours depends.
    let systemd = ["/usr/lib/systemd/system", "/lib/systemd/system"].map(PathBuf::from);
    let systemd = systemd.iter().find(|dir| dir.join("sysinit.target").is_file());
    let systemd =
        systemd.ok_or_else(|| Failure::new("systemd's units are missing: apt-get install systemd"))?;
    for unit in fs::read_dir(systemd).into_iter().flatten().flatten() {
        if unit.path().is_file() {
            copy(&unit.path(), &root.path("lib/systemd/system").join(unit.file_name()))?;
        }
    }
    let analyze = |args: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        run("systemd-analyze", command.args(args), b"", COMMAND_WITHIN)?.succeeded()
    };
    let verified =
        analyze(&[&format!("--root={}", root.path("").display()), "--man=no", "verify", "ottla.service"])?;
    let complaints = verified.stdout_text() + &verified.stderr_text();
    require(complaints.is_empty(), &complaints)?;
    let unit = root.path(UNIT);
    // The limit of systemd, 90 s, killed the broker during a long recovery, and began it again and again.
    let text = String::from_utf8_lossy(&read(&unit)?).into_owned();
    let is_unlimited = text.lines().any(|line| line == "TimeoutStartSec=infinity");
    require(is_unlimited, "the unit limits the time of a start")?;
    // A stop during the recovery left the unit failed.
    let has_ends = text.lines().any(|line| line == "SuccessExitStatus=129 130 143");
    require(has_ends, "an end by a signal fails the unit")?;
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    analyze(&["security", "--offline=true", &threshold, &unit.to_string_lossy()]).map(|_| ())
}

/// The lines of the shipped file that are commented out.
pub(super) fn properties(results: &Path) -> Result<(), Failure> {
    let root = unpacked(results)?;
    let shipped = String::from_utf8_lossy(&read(&root.path("etc/ottla/server.properties"))?).into_owned();
    let examples: Vec<&str> =
        shipped.lines().filter_map(|line| line.strip_prefix('#')).filter(|line| line.contains('=')).collect();
    require(!examples.is_empty(), "the shipped file has no examples")?;
    write(&root.path("tmp/server.properties"), examples.join("\n"))?;
    let ottla = || Command::new(root.path("usr/bin/ottla"));
    let file = root.path("tmp/server.properties").display().to_string();
    let broker =
        Broker::start(ottla(), &["--durability", "memory", "--config", &file, "--topic", "orders:1"])?;
    broker.roundtrip(&ottla, "orders")
}

fn unpacked(results: &Path) -> Result<Root, Failure> {
    let root = Root::empty()?;
    root.dpkg(&["--force-depends", "--install"], &[package(results, "ottla")?])?;
    Ok(root)
}
