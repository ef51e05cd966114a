//! The checks on every program and library that is shipped: versions of symbols, needed libraries, paths, sizes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run};

/// The newest version of each name that a shipped file may need: glibc 2.28 with GCC 8, as in Debian 10 and
/// Enterprise Linux 8.
const FLOOR: &[(&str, &[u32])] =
    &[("GLIBC", &[2, 28]), ("GCC", &[7, 0, 0]), ("GLIBCXX", &[3, 4, 25]), ("CXXABI", &[1, 3, 11])];

const OBJDUMP_WITHIN: Duration = Duration::from_secs(60);

/// The dynamic section of a file, as `objdump -p` prints it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dynamic {
    /// Libraries that the loader loads with the file.
    pub(crate) needed: Vec<String>,
    /// The versions of symbols that the file needs from them, such as `GLIBC_2.14`.
    pub(crate) versions: Vec<String>,
}

impl Dynamic {
    pub(crate) fn of(file: &Path) -> Result<Self, Failure> {
        let mut objdump = Command::new("objdump");
        let output = run("objdump", objdump.arg("-p").arg(file), b"", OBJDUMP_WITHIN)?.succeeded()?;
        Ok(Self::parse(&output.stdout_text()))
    }

    fn parse(text: &str) -> Self {
        let mut dynamic = Self::default();
        let mut references = false;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["NEEDED", library] => dynamic.needed.push((*library).to_owned()),
                ["Version", "References:"] => references = true,
                ["Version", "definitions:"] => references = false,
                [hash, _, _, version] if references && hash.starts_with("0x") => {
                    dynamic.versions.push((*version).to_owned());
                }
                _ => {}
            }
        }
        dynamic.versions.sort_by_key(|version| (prefix(version).to_owned(), numbers(version)));
        dynamic
    }

    /// The newest version of glibc that the file needs.
    pub(crate) fn glibc(&self) -> Option<&str> {
        self.versions.iter().rfind(|version| prefix(version) == "GLIBC").map(String::as_str)
    }

    /// Versions that machines at the floor do not have.
    pub(crate) fn above_floor(&self) -> Vec<&str> {
        let is_above = |version: &&str| match FLOOR.iter().find(|(name, _)| *name == prefix(version)) {
            // `GLIBC_PRIVATE` and names without a floor.
            _ if numbers(version).is_empty() => true,
            Some((_, floor)) => numbers(version).as_slice() > *floor,
            None => true,
        };
        self.versions.iter().map(String::as_str).filter(is_above).collect()
    }
}

fn prefix(version: &str) -> &str {
    version.split_once('_').map_or(version, |(name, _)| name)
}

fn numbers(version: &str) -> Vec<u32> {
    let numbers = version.split_once('_').map_or("", |(_, numbers)| numbers);
    numbers.split('.').map(str::parse).collect::<Result<_, _>>().unwrap_or_default()
}

/// Fails when the file needs a newer glibc, libgcc or libstdc++ than the floor, or a library that is not `allowed`.
pub(crate) fn check(file: &Path, allowed: &[&str]) -> Result<Dynamic, Failure> {
    let dynamic = Dynamic::of(file)?;
    let above = dynamic.above_floor();
    if !above.is_empty() {
        let what = format!("{} needs {}, above the floor {FLOOR:?}", file.display(), above.join(", "));
        return Err(Failure::new(what));
    }
    let is_strange = |name: &&String| !allowed.iter().any(|prefix| name.starts_with(prefix));
    let strange: Vec<&str> = dynamic.needed.iter().filter(is_strange).map(String::as_str).collect();
    if strange.is_empty() {
        return Ok(dynamic);
    }
    Err(Failure::new(format!("{} needs {} at run time", file.display(), strange.join(", "))))
}

/// The first of `paths` that occurs in the bytes.
pub(crate) fn contains_path<'a>(bytes: &[u8], paths: &'a [String]) -> Option<&'a str> {
    let found = paths.iter().find(|path| places(bytes, path.as_bytes()).next().is_some());
    found.map(String::as_str)
}

/// Every place of `wanted` in the bytes.
pub(crate) fn places<'a>(bytes: &'a [u8], wanted: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = wanted.first().copied().unwrap_or_default();
    let starts = bytes.iter().enumerate().filter(move |(_, byte)| **byte == first).map(|(at, _)| at);
    starts.filter(|at| bytes[*at..].starts_with(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
Dynamic Section:
  NEEDED               libgcc_s.so.1
  NEEDED               libc.so.6
  SONAME               librdkafka.so.1

Version definitions:
1 0x01 0x0e5a1b2c librdkafka.so.1

Version References:
  required from libgcc_s.so.1:
    0x0b792650 0x00 04 GCC_3.0
  required from libc.so.6:
    0x06969189 0x00 03 GLIBC_2.29
    0x09691a75 0x00 02 GLIBC_2.2.5
";

    #[test]
    fn needed_libraries_and_versions_are_read() {
        let dynamic = Dynamic::parse(DUMP);
        assert_eq!(dynamic.needed, ["libgcc_s.so.1", "libc.so.6"]);
        assert_eq!(dynamic.versions, ["GCC_3.0", "GLIBC_2.2.5", "GLIBC_2.29"]);
        assert_eq!(dynamic.glibc(), Some("GLIBC_2.29"));
    }

    #[test]
    fn versions_above_the_floor_are_named() {
        assert_eq!(Dynamic::parse(DUMP).above_floor(), ["GLIBC_2.29"]);
        let versions = |list: &[&str]| Dynamic {
            needed: Vec::new(),
            versions: list.iter().map(|&version| version.to_owned()).collect(),
        };
        assert_eq!(versions(&["GLIBC_2.28", "GCC_4.2.0", "CXXABI_1.3.11"]).above_floor(), [""; 0]);
        assert_eq!(versions(&["GLIBC_PRIVATE", "OPENSSL_3.0.0"]).above_floor().len(), 2);
    }

    #[test]
    fn a_path_is_found_anywhere_in_the_bytes() {
        let places = ["/home/me".to_owned()];
        assert_eq!(contains_path(b"a//home/me/x", &places), Some("/home/me"));
        assert_eq!(contains_path(b"/home/you", &places), None);
    }
}
