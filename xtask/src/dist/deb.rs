//! Debian packages: an `ar` of two archives, one with the description and one with the files.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run};

use super::archive::{ar, gzip, tar};
use super::tree::{Kind, Tree};

const SUMMED_WITHIN: Duration = Duration::from_secs(60);

/// One package.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) section: &'static str,
    pub(crate) summary: &'static str,
    /// Paragraphs of the description.
    pub(crate) description: &'static [&'static str],
    /// Further fields of the control file, such as `Depends`.
    pub(crate) relations: Vec<(&'static str, String)>,
    /// Files that the administrator may change; an upgrade keeps the changes.
    pub(crate) conffiles: &'static [&'static str],
    /// Files of the control archive: the scripts and triggers.
    pub(crate) scripts: &'static [(&'static str, &'static str)],
    pub(crate) files: Tree,
}

/// Debian requires an address, and this project has none.
const MAINTAINER: &str = "Ottla maintainers <maintainers@ottla.invalid>";

const ARCHITECTURE: &str = "amd64";

impl Package {
    /// The name of its file.
    pub(crate) fn file_name(&self) -> String {
        format!("{}_{}_{ARCHITECTURE}.deb", self.name, self.version)
    }

    /// The bytes of its file.
    pub(crate) fn build(&self, epoch_s: u64) -> Result<Vec<u8>, Failure> {
        let control = gzip(&tar(&self.control()?, "", epoch_s)?)?;
        let data = gzip(&tar(&self.files, "", epoch_s)?)?;
        let members: [(&str, &[u8]); 3] =
            [("debian-binary", b"2.0\n"), ("control.tar.gz", &control), ("data.tar.gz", &data)];
        Ok(ar(&members, epoch_s))
    }

    fn control(&self) -> Result<Tree, Failure> {
        let mut tree = Tree::default();
        tree.file("control", self.control_file());
        tree.file("md5sums", self.md5sums()?);
        if !self.conffiles.is_empty() {
            tree.file("conffiles", self.conffiles.iter().fold(String::new(), |all, path| all + path + "\n"));
        }
        for (name, contents) in self.scripts {
            if *name == "triggers" {
                tree.file(name, *contents);
            } else {
                tree.program(name, *contents);
            }
        }
        Ok(tree)
    }

    fn control_file(&self) -> String {
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {ARCHITECTURE}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {}\nSection: {}\nPriority: optional\n",
            self.name,
            self.version,
            self.installed_kib(),
            self.section
        );
        for (name, value) in &self.relations {
            let _ = writeln!(text, "{name}: {value}");
        }
        let _ = writeln!(text, "Description: {}", self.summary);
        let paragraphs: Vec<String> = self.description.iter().map(|lines| format!(" {lines}\n")).collect();
        text + &paragraphs.join(" .\n")
    }

    /// KiB, as dpkg-gencontrol counts them: each file is rounded up, each other entry is one.
    fn installed_kib(&self) -> usize {
        let size = |kind: &Kind| match kind {
            Kind::File(contents) => contents.len().div_ceil(1024),
            Kind::Dir | Kind::Link(_) => 1,
        };
        self.files.entries().map(|(_, entry)| size(&entry.kind)).sum()
    }

    /// For `dpkg --verify`.
    fn md5sums(&self) -> Result<String, Failure> {
        let mut sums = String::new();
        for (path, contents) in self.files.files() {
            let conffile = self.conffiles.iter().any(|conffile| conffile.trim_start_matches('/') == path);
            if conffile {
                continue;
            }
            let output = run("md5sum", &mut Command::new("md5sum"), contents, SUMMED_WITHIN)?.succeeded()?;
            let text = output.stdout_text();
            let sum = text.split_whitespace().next().unwrap_or_default();
            let _ = writeln!(sums, "{sum}  {path}");
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn package() -> Package {
        let mut files = Tree::default();
        files.program("usr/bin/hello", "#!/bin/sh\necho hello\n");
        files.file("etc/hello", "");
        Package {
            name: "hello",
            version: "1.0".to_owned(),
            section: "misc",
            summary: "says hello",
            description: &["It says hello.", "It does nothing else."],
            relations: vec![("Depends", "libc6 (>= 2.28)".to_owned())],
            conffiles: &["/etc/hello"],
            scripts: &[("postinst", "#!/bin/sh\n")],
            files,
        }
    }

    #[test]
    fn dpkg_reads_the_fields_and_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(package().file_name());
        fs::write(&file, package().build(17).unwrap()).unwrap();
        let dpkg_deb = |arg: &str, field: &str| {
            let mut command = Command::new("dpkg-deb");
            command.arg(arg).arg(&file);
            if !field.is_empty() {
                command.arg(field);
            }
            run("dpkg-deb", &mut command, b"", SUMMED_WITHIN).unwrap().succeeded().unwrap().stdout_text()
        };
        assert_eq!(dpkg_deb("--field", "Depends"), "libc6 (>= 2.28)\n");
        assert_eq!(
            dpkg_deb("--field", "Description"),
            "says hello\n It says hello.\n .\n It does nothing else.\n"
        );
        let contents = dpkg_deb("--contents", "");
        assert!(contents.contains("-rwxr-xr-x 0/0"), "{contents}");
        assert!(contents.contains(" usr/bin/hello"), "{contents}");
    }

    #[test]
    fn two_builds_give_the_same_bytes() {
        assert_eq!(package().build(17).unwrap(), package().build(17).unwrap());
        assert_ne!(package().build(17).unwrap(), package().build(18).unwrap());
    }

    #[test]
    fn sums_are_of_all_files_but_the_administrator_s() {
        let sums = package().md5sums().unwrap();
        let names: Vec<&str> =
            sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name).collect();
        assert_eq!(names, ["usr/bin/hello"]);
    }
}
