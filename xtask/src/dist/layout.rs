//! The place of each file in the tarball and in the Debian packages.

use std::fs;

use ottla_interop::{Failure, workspace_root};

use super::archive::gzip;
use super::build::Artefacts;
use super::deb::Package;
use super::tree::{Tree, read};
use crate::install::{files, pkg_config_files};

/// The version of everything that is shipped.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The directory of our library, next to Debian's own. No other package has a file there.
pub(crate) const DEB_LIB: &str = "usr/lib/x86_64-linux-gnu/ottla";
const DEB_INCLUDE: &str = "usr/include/ottla";

/// The documents of the tarball beside those in `docs`. Links of one lead to others.
const DOCUMENTS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "COMPAT.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
];

/// The files of the tarball. Its `rdkafka.pc` work wherever it is unpacked.
pub(crate) fn tarball(artefacts: &Artefacts) -> Result<Tree, Failure> {
    let mut tree = Tree::default();
    for program in ["ottla", "rdkafka_performance"] {
        tree.program(&format!("bin/{program}"), artefacts.bytes(program)?);
    }
    runtime(&mut tree, "lib", artefacts)?;
    let dirs = "prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\nincludedir=${prefix}/include\n";
    development(&mut tree, "lib", "include", dirs, artefacts)?;
    for (page, contents) in artefacts.files("share/man")?.files() {
        tree.file(&format!("share/man/man1/{page}"), contents);
    }
    completions(&mut tree, "share", ["zsh/site-functions", "fish/vendor_completions.d"], artefacts)?;
    tree.file("share/doc/ottla/ottla.service", packaging("ottla.service")?);
    for document in tarball_documents()? {
        tree.file(&format!("share/doc/ottla/{document}"), read(&workspace_root().join(&document))?);
    }
    tree.file("share/doc/ottla/THIRD-PARTY.txt", artefacts.bytes("THIRD-PARTY.txt")?);
    Ok(tree)
}

/// The documents of the tarball: their paths in the workspace, which are those below `share/doc/ottla`.
fn tarball_documents() -> Result<Vec<String>, Failure> {
    let mut documents: Vec<String> = DOCUMENTS.iter().map(|&document| document.to_owned()).collect();
    for extension in ["md", "json"] {
        let names = fs_names("docs", extension)?;
        documents.extend(names.iter().map(|name| format!("docs/{name}")));
    }
    Ok(documents)
}

/// The debug information of the programs and libraries, for `/usr/lib/debug`.
pub(crate) fn debug(artefacts: &Artefacts) -> Result<Tree, Failure> {
    artefacts.files("debug")
}

/// All Debian packages.
pub(crate) fn packages(artefacts: &Artefacts) -> Result<Vec<Package>, Failure> {
    Ok(vec![command(artefacts)?, library(artefacts)?, library_dev(artefacts)?, library_default()])
}

fn command(artefacts: &Artefacts) -> Result<Package, Failure> {
    let mut files = Tree::default();
    files.program("usr/bin/ottla", artefacts.bytes("ottla")?);
    files.file("usr/lib/systemd/system/ottla.service", packaging("ottla.service")?);
    files.file("etc/default/ottla", packaging("default")?);
    files.file("etc/ottla/server.properties", packaging("server.properties")?);
    for (page, contents) in artefacts.files("share/man")?.files() {
        files.file(&format!("usr/share/man/man1/{page}.gz"), gzip(contents)?);
    }
    completions(&mut files, "usr/share", ["zsh/vendor-completions", "fish/vendor_completions.d"], artefacts)?;
    documents(&mut files, "ottla", artefacts)?;
    Ok(Package {
        name: "ottla",
        version: VERSION.to_owned(),
        section: "net",
        summary: "broker and command-line tools for the Kafka protocol",
        description: &[
            "One binary with a durable broker on one machine, and commands that produce,\n \
             consume, administrate and measure. Any Kafka client can use the broker.",
            "The package has a systemd service that is not started: systemctl enable\n \
             --now ottla. Its data is in /var/lib/ottla, and stays when the package is purged.",
        ],
        relations: vec![
            ("Depends", "libc6 (>= 2.28)".to_owned()),
            ("Suggests", "libgssapi-krb5-2".to_owned()),
        ],
        conffiles: &["/etc/default/ottla", "/etc/ottla/server.properties"],
        scripts: &[
            ("postinst", include_str!("../../dist/postinst")),
            ("prerm", include_str!("../../dist/prerm")),
            ("postrm", include_str!("../../dist/postrm")),
        ],
        files,
    })
}

fn library(artefacts: &Artefacts) -> Result<Package, Failure> {
    let mut files = Tree::default();
    runtime(&mut files, DEB_LIB, artefacts)?;
    documents(&mut files, "libottla-rdkafka", artefacts)?;
    Ok(Package {
        name: "libottla-rdkafka",
        version: VERSION.to_owned(),
        section: "libs",
        summary: "librdkafka's C and C++ interfaces on the Ottla client",
        description: &[
            "The libraries are in a directory of their own, next to Debian's librdkafka1.\n \
             Programs find them if they were built with libottla-rdkafka-dev or if\n \
             LD_LIBRARY_PATH names the directory, /usr/lib/x86_64-linux-gnu/ottla.",
            "The package libottla-rdkafka-default makes all programs use them.",
        ],
        relations: vec![
            ("Depends", "libc6 (>= 2.28), libgcc-s1 | libgcc1, libstdc++6 (>= 8)".to_owned()),
            ("Suggests", "libottla-rdkafka-default, libgssapi-krb5-2".to_owned()),
        ],
        conffiles: &[],
        scripts: &[],
        files,
    })
}

fn library_dev(artefacts: &Artefacts) -> Result<Package, Failure> {
    let mut files = Tree::default();
    let dirs = format!("libdir=/{DEB_LIB}\nincludedir=/{DEB_INCLUDE}\n");
    development(&mut files, DEB_LIB, DEB_INCLUDE, &dirs, artefacts)?;
    // Where pkg-config looks by itself, under names of our own.
    for (name, text) in pkg_config_files(&dirs) {
        let text = text.replace("Requires: rdkafka", "Requires: ottla-rdkafka");
        files.file(&format!("usr/lib/x86_64-linux-gnu/pkgconfig/ottla-{name}"), text);
    }
    documents(&mut files, "libottla-rdkafka-dev", artefacts)?;
    Ok(Package {
        name: "libottla-rdkafka-dev",
        version: VERSION.to_owned(),
        section: "libdevel",
        summary: "librdkafka's interfaces on the Ottla client: development files",
        description: &["Headers, static libraries and pkg-config files. The name for pkg-config is\n \
             ottla-rdkafka. For builds that ask for rdkafka, set PKG_CONFIG_PATH to\n \
             /usr/lib/x86_64-linux-gnu/ottla/pkgconfig. Programs record the directory of the library."],
        relations: vec![
            ("Depends", format!("libottla-rdkafka (= {VERSION}), libc6-dev")),
            ("Suggests", "pkg-config, libstdc++-dev".to_owned()),
        ],
        conffiles: &[],
        scripts: &[],
        files,
    })
}

/// Only a line for the loader. So Debian's librdkafka1 can stay, and comes back when this package is removed.
fn library_default() -> Package {
    let mut files = Tree::default();
    files.file("etc/ld.so.conf.d/00-ottla-rdkafka.conf", format!("/{DEB_LIB}\n"));
    files.file("usr/share/doc/libottla-rdkafka-default/copyright", copyright());
    Package {
        name: "libottla-rdkafka-default",
        version: VERSION.to_owned(),
        section: "libs",
        summary: "Ottla's librdkafka in the place of Debian's",
        description: &["Makes the loader find the library of libottla-rdkafka first, for all programs\n \
             of the machine. Debian's librdkafka1 can be installed at the same time, or be\n \
             removed. Without this package the loader finds Debian's library again."],
        relations: vec![
            ("Depends", format!("libottla-rdkafka (= {VERSION})")),
            ("Provides", LIBRDKAFKA_NAMES.map(|name| format!("{name} (= {LIBRDKAFKA})")).join(", ")),
        ],
        conffiles: &["/etc/ld.so.conf.d/00-ottla-rdkafka.conf"],
        scripts: &[("triggers", "activate-noawait ldconfig\n")],
        files,
    }
}

/// The packages of Debian in whose place ours can be, and the release whose interface it has.
const LIBRDKAFKA_NAMES: [&str; 2] = ["librdkafka1", "librdkafka++1"];
const LIBRDKAFKA: &str = crate::install::VERSION;

fn runtime(tree: &mut Tree, lib: &str, artefacts: &Artefacts) -> Result<(), Failure> {
    for library in ["librdkafka.so.1", "librdkafka++.so.1"] {
        tree.file(&format!("{lib}/{library}"), artefacts.bytes(library)?);
    }
    Ok(())
}

/// Headers, links, static libraries and pkg-config files. `dirs` is as in [`pkg_config_files`].
fn development(
    tree: &mut Tree,
    lib: &str,
    include: &str,
    dirs: &str,
    artefacts: &Artefacts,
) -> Result<(), Failure> {
    tree.link(&format!("{lib}/librdkafka.so"), "librdkafka.so.1");
    tree.link(&format!("{lib}/librdkafka++.so"), "librdkafka++.so.1");
    for archive in ["librdkafka.a", "librdkafka++.a"] {
        tree.file(&format!("{lib}/{archive}"), artefacts.bytes(archive)?);
    }
    for (name, text) in pkg_config_files(dirs) {
        tree.file(&format!("{lib}/pkgconfig/{name}"), text);
    }
    for header in fs_names("crates/capi/include", "h")? {
        let contents = read(&workspace_root().join("crates/capi/include").join(&header))?;
        tree.file(&format!("{include}/librdkafka/{header}"), contents);
    }
    Ok(())
}

fn completions(tree: &mut Tree, share: &str, dirs: [&str; 2], artefacts: &Artefacts) -> Result<(), Failure> {
    let [zsh, fish] = dirs;
    let script = |shell: &str| artefacts.bytes(&format!("share/completions/{shell}"));
    tree.file(&format!("{share}/bash-completion/completions/ottla"), script("bash")?);
    tree.file(&format!("{share}/{zsh}/_ottla"), script("zsh")?);
    tree.file(&format!("{share}/{fish}/ottla.fish"), script("fish")?);
    Ok(())
}

fn documents(tree: &mut Tree, package: &str, artefacts: &Artefacts) -> Result<(), Failure> {
    let doc = format!("usr/share/doc/{package}");
    tree.file(&format!("{doc}/copyright"), copyright());
    tree.file(&format!("{doc}/changelog.gz"), gzip(&read(&workspace_root().join("CHANGELOG.md"))?)?);
    tree.file(&format!("{doc}/THIRD-PARTY.txt.gz"), gzip(&artefacts.bytes("THIRD-PARTY.txt")?)?);
    Ok(())
}

fn copyright() -> String {
    let licence = include_str!("../../../LICENSE-MIT");
    let text =
        licence.lines().map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") });
    let text: String = text.collect();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: Ottla\n\n\
         Files: *\nCopyright: the Ottla maintainers\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{text}\n\
         License: Apache-2.0\n The text is in /usr/share/common-licenses/Apache-2.0.\n\
         Comment: THIRD-PARTY.txt.gz has the licences of the crates that the binaries contain.\n"
    )
}

fn packaging(file: &str) -> Result<Vec<u8>, Failure> {
    read(&workspace_root().join("xtask/dist").join(file))
}

/// The names of the files in a directory of the workspace.
fn fs_names(dir: &str, extension: &str) -> Result<Vec<String>, Failure> {
    let files = files(&workspace_root().join(dir), extension)?;
    let names = files.iter().filter(|file| fs::metadata(file).is_ok_and(|meta| meta.is_file()));
    Ok(names.filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned())).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn links_in_the_documents_of_the_tarball_lead_to_its_files() {
        let documents = tarball_documents().unwrap();
        for document in
            documents.iter().filter(|document| Path::new(document).extension().is_some_and(|it| it == "md"))
        {
            let text = fs::read_to_string(workspace_root().join(document)).unwrap();
            let in_docs = document.starts_with("docs/");
            let mut is_code = false;
            for line in text.lines() {
                is_code ^= line.starts_with("```");
                for (at, _) in line.match_indices("](").filter(|_| !is_code) {
                    let target = line[at + 2..].split([')', '#']).next().unwrap_or_default();
                    if target.is_empty() || target.contains("://") {
                        continue;
                    }
                    let path = match target.strip_prefix("../") {
                        Some(up) if in_docs => up.to_owned(),
                        None if in_docs => format!("docs/{target}"),
                        _ => target.to_owned(),
                    };
                    assert!(documents.contains(&path), "{document}: the tarball has no {path}");
                }
            }
        }
    }
}
