//! A root file system in a scratch directory: Debian's libraries, and the files under test. Programs run inside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, Output, run};
use tempfile::TempDir;

use crate::dist::tools::{create_dir, debian_packages};
use crate::dist::tree::write;

const COMMAND_WITHIN: Duration = Duration::from_secs(120);

/// The directory, removed when it is dropped.
pub(super) struct Root {
    dir: TempDir,
}

impl Root {
    /// Only with an empty database of packages.
    pub(super) fn empty() -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("ottla-root-").tempdir();
        let root = Self { dir: dir.map_err(|error| Failure::new(format!("a directory: {error}")))? };
        for dir in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "tmp"] {
            create_dir(&root.path(dir))?;
        }
        write(&root.path("var/lib/dpkg/status"), "")?;
        Ok(root)
    }

    /// With the files of Debian's packages.
    pub(super) fn with_debian(packages: &[&str]) -> Result<Self, Failure> {
        let root = Self::empty()?;
        let debian = debian_packages(packages)?;
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(debian.join(".")).arg(root.dir.path());
        run("cp", &mut copy, b"", COMMAND_WITHIN)?.succeeded()?;
        Ok(root)
    }

    /// A path inside as the machine sees it.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join(inside.trim_start_matches('/'))
    }

    /// A program inside, with paths as it sees them.
    pub(super) fn command(&self, program: &str) -> Command {
        self.command_as(program, None)
    }

    /// The same as another user, which only root can do.
    pub(super) fn command_as(&self, program: &str, user: Option<&str>) -> Command {
        let mut command = as_root("chroot");
        if let Some(user) = user.filter(|_| is_root()) {
            command.arg(format!("--userspec={user}"));
        }
        command.arg(self.dir.path()).arg(program);
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    /// Runs a program inside until it exits with 0.
    pub(super) fn run(&self, program: &str, args: &[&str], input: &[u8]) -> Result<Output, Failure> {
        run(program, self.command(program).args(args), input, COMMAND_WITHIN)?.succeeded()
    }

    /// Installs packages with dpkg, whose dependencies must be installed unless `options` allow it.
    pub(super) fn dpkg(&self, options: &[&str], packages: &[PathBuf]) -> Result<Output, Failure> {
        let mut dpkg = as_root("dpkg");
        dpkg.arg(format!("--root={}", self.dir.path().display()));
        // The root has no shell: scripts run outside, and leave the machine alone because of `DPKG_ROOT`.
        dpkg.arg("--force-script-chrootless").args(options).args(packages);
        run("dpkg", &mut dpkg, b"", COMMAND_WITHIN)?.succeeded()
    }

    /// Writes the cache of the loader, as the trigger of Debian's libc does.
    pub(super) fn ldconfig(&self) -> Result<(), Failure> {
        let conf = self.path("etc/ld.so.conf");
        create_dir(&self.path("etc/ld.so.conf.d"))?;
        write(&conf, "include /etc/ld.so.conf.d/*.conf\n")?;
        let debian = "/usr/local/lib/x86_64-linux-gnu\n/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n";
        write(&self.path("etc/ld.so.conf.d/x86_64-linux-gnu.conf"), debian)?;
        let mut ldconfig = as_root("ldconfig");
        ldconfig.arg("-r").arg(self.dir.path());
        run("ldconfig", &mut ldconfig, b"", COMMAND_WITHIN)?.succeeded().map(|_| ())
    }
}

/// As root, or as one in a user namespace of its own.
fn as_root(program: &str) -> Command {
    let mut command = if is_root() {
        Command::new(program)
    } else {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", program]);
        command
    };
    // `chroot` and `ldconfig` are where users do not look.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    if let Ok(path) = std::env::join_paths(dirs) {
        command.env("PATH", path);
    }
    command
}

pub(super) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Copies one file into the root.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    create_dir(to.parent().unwrap_or(to))?;
    fs::copy(from, to)
        .map(|_| ())
        .map_err(|error| Failure::new(format!("{} to {}: {error}", from.display(), to.display())))
}
