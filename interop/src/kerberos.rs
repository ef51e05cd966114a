//! MIT's Kerberos server with its database in a temporary directory, on a loopback port.

use std::env;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::failure::{Failure, wait_until};
use crate::probe::{free_ports, with_free_ports};
use crate::process::{Process, run};

const REALM: &str = "OTTLA.TEST";
/// Each command takes some 20 ms.
const COMMAND_WITHIN: Duration = Duration::from_secs(30);

/// A Kerberos server with the realm `OTTLA.TEST`. Dropping it stops it by its own process id.
pub struct Kdc {
    _process: Process,
    // After the process, which writes to them.
    files: Files,
}

/// The configurations, the database and the keytabs.
struct Files {
    dir: TempDir,
}

impl Kdc {
    /// Creates the database and starts the server.
    pub fn start() -> Result<Self, Failure> {
        with_free_ports(Self::try_start)
    }

    fn try_start() -> Result<Self, Failure> {
        let port = free_ports(1).map_err(failed)?[0];
        let files = Files::create(port)?;
        let mut process = Process::spawn("krb5kdc", files.command("krb5kdc").arg("-n"))?;
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let outcome = wait_until("the Kerberos server", COMMAND_WITHIN, || {
            if process.try_exit().is_some() {
                return Some(Err(Failure::new("krb5kdc: exited at its start")));
            }
            answers().then_some(Ok(()))
        });
        outcome.flatten().map_err(|failure| process.quoted(&failure))?;
        Ok(Self { _process: process, files })
    }

    /// The `krb5.conf` for clients of this server.
    pub fn config(&self) -> PathBuf {
        self.files.config()
    }

    /// The principal `name` of the server's realm.
    pub fn principal(&self, name: &str) -> String {
        format!("{name}@{REALM}")
    }

    /// Creates a principal with a random key.
    pub fn add(&self, name: &str) -> Result<(), Failure> {
        self.files.admin(&format!("addprinc -randkey +requires_preauth {name}"))
    }

    /// Gives a principal a new key and writes it to the keytab `file`. Earlier keytabs of the principal are stale then.
    pub fn keytab(&self, name: &str, file: &str) -> Result<PathBuf, Failure> {
        let path = self.files.path(file);
        self.files.admin(&format!("ktadd -k {} {name}", path.display()))?;
        if path.is_file() { Ok(path) } else { Err(Failure::new(format!("no keytab for {name}"))) }
    }

    /// Makes `command` use this server, with the tickets in the cache `name`.
    pub fn enter<'a>(&self, command: &'a mut Command, cache: &str) -> &'a mut Command {
        command.env("KRB5_CONFIG", self.config()).env("KRB5CCNAME", self.files.path(cache))
    }
}

impl Files {
    fn create(port: u16) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("ottla-kdc-").tempdir().map_err(failed)?;
        let files = Self { dir };
        fs::write(files.config(), client_config(port)).map_err(failed)?;
        fs::write(files.path("kdc.conf"), server_config(port, files.dir.path())).map_err(failed)?;
        let mut create = files.command("kdb5_util");
        create.args(["create", "-s", "-P", "master"]);
        run("kdb5_util", &mut create, b"", COMMAND_WITHIN)?.succeeded()?;
        Ok(files)
    }

    fn config(&self) -> PathBuf {
        self.path("krb5.conf")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn admin(&self, query: &str) -> Result<(), Failure> {
        let mut admin = self.command("kadmin.local");
        run("kadmin.local", admin.args(["-q", query]), b"", COMMAND_WITHIN)?.succeeded().map(|_| ())
    }

    /// A command of the server, which Debian installs in a directory for administrators.
    fn command(&self, program: &str) -> Command {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut dirs = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
        let found = dirs.find_map(|dir| Some(dir.join(program)).filter(|file| file.is_file()));
        let mut command = Command::new(found.unwrap_or_else(|| program.into()));
        command.env("KRB5_CONFIG", self.config()).env("KRB5_KDC_PROFILE", self.path("kdc.conf"));
        command
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::new(format!("a Kerberos server: {error}"))
}

fn client_config(port: u16) -> String {
    format!(
        "[libdefaults]\n\
         default_realm = {REALM}\n\
         dns_lookup_kdc = false\n\
         dns_lookup_realm = false\n\
         dns_canonicalize_hostname = false\n\
         rdns = false\n\
         udp_preference_limit = 1\n\
         [realms]\n\
         {REALM} = {{\n    kdc = 127.0.0.1:{port}\n}}\n"
    )
}

fn server_config(port: u16, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "[kdcdefaults]\n\
         kdc_listen = 127.0.0.1:{port}\n\
         kdc_tcp_listen = 127.0.0.1:{port}\n\
         [realms]\n\
         {REALM} = {{\n    database_name = {dir}/principals\n    key_stash_file = {dir}/stash\n    \
         acl_file = {dir}/acl\n}}\n\
         [logging]\n\
         kdc = FILE:{dir}/kdc.log\n"
    )
}
