//! The licences of the crates that the shipped binaries contain, in one text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ottla_interop::{Failure, run, workspace_root};
use serde_json::Value;

use super::tree::read;
use crate::shell::cargo;

const SHIPPED: &[&str] = &["ottla", "ottla-capi"];

const LISTED_WITHIN: Duration = Duration::from_secs(120);

/// Beginnings of the names of files with a licence.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The text: each crate with its licence and the numbers of its texts, then each text once.
pub(crate) fn text() -> Result<String, Failure> {
    let metadata = metadata()?;
    let mut texts: Vec<String> = Vec::new();
    let mut list = String::new();
    for (name, package) in third_parties(&metadata) {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let mut numbers = BTreeSet::new();
        let dir = Path::new(field("manifest_path")).parent().unwrap_or(workspace_root());
        for text in licence_texts(dir)? {
            let known = texts.iter().position(|known| *known == text);
            numbers.insert(known.unwrap_or_else(|| {
                texts.push(text);
                texts.len() - 1
            }));
        }
        let numbers: Vec<String> = numbers.iter().map(|number| (number + 1).to_string()).collect();
        let _ = writeln!(list, "{name} {}: {} [{}]", field("version"), field("license"), numbers.join(", "));
    }
    let mut all = format!(
        "The binaries of Ottla contain these crates. The numbers are those of the texts below. They also contain Rust's\n\
         standard library, under MIT OR Apache-2.0.\n\n{list}"
    );
    for (text, number) in texts.iter().zip(1..) {
        let _ = write!(all, "\n{:=<20} [{number}]\n\n{text}", "");
    }
    Ok(all)
}

fn metadata() -> Result<Value, Failure> {
    let args =
        ["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = run("cargo metadata", &mut cargo(&args), b"", LISTED_WITHIN)?.succeeded()?;
    serde_json::from_slice(&output.stdout).map_err(|error| Failure::new(format!("cargo metadata: {error}")))
}

/// The packages below the shipped ones that are not ours, by name and version.
fn third_parties(metadata: &Value) -> BTreeMap<String, &Value> {
    let array = |value: &'static str| metadata[value].as_array().into_iter().flatten();
    let packages: BTreeMap<&str, &Value> =
        array("packages").filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let nodes: BTreeMap<&str, &Value> = nodes.filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let is_shipped = |id: &&str| packages[id]["name"].as_str().is_some_and(|name| SHIPPED.contains(&name));
    let mut wanted: Vec<&str> = packages.keys().copied().filter(is_shipped).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        if seen.insert(id) {
            let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
            wanted.extend(dependencies.filter(|dep| is_linked(dep)).filter_map(|dep| dep["pkg"].as_str()));
        }
    }
    // A package of a registry has a source.
    let packages =
        seen.iter().filter_map(|id| packages.get(id)).filter(|package| package["source"].is_string());
    packages.map(|package| (package["name"].as_str().unwrap_or_default().to_owned(), *package)).fold(
        BTreeMap::new(),
        |mut all, (name, package)| {
            let version = package["version"].as_str().unwrap_or_default();
            let key = if all.contains_key(&name) { format!("{name} ({version})") } else { name };
            all.insert(key, package);
            all
        },
    )
}

/// Not only in tests and build scripts.
fn is_linked(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
}

/// The files of a package with a licence, also of sources that it contains.
fn licence_texts(dir: &Path) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for entry in sorted(dir)? {
        let files = if entry.is_dir() { sorted(&entry)? } else { vec![entry] };
        for file in files.iter().filter(|file| is_licence(file)) {
            texts.push(String::from_utf8_lossy(&read(file)?).into_owned());
        }
    }
    Ok(texts)
}

fn is_licence(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    let is_code = file.extension().is_some_and(|extension| extension == "rs");
    file.is_file() && !is_code && NAMES.iter().any(|prefix| name.starts_with(prefix))
}

fn sorted(dir: &Path) -> Result<Vec<std::path::PathBuf>, Failure> {
    let entries = fs::read_dir(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn crates_of_tests_and_build_scripts_are_not_listed() {
        let linked = json!([{ "kind": null }]);
        let dev = json!([{ "kind": "dev" }]);
        let metadata = json!({
            "packages": [
                { "id": "1", "name": "ottla", "version": "1", "source": null },
                { "id": "2", "name": "bytes", "version": "1", "source": "registry" },
                { "id": "3", "name": "rcgen", "version": "1", "source": "registry" },
            ],
            "resolve": { "nodes": [
                { "id": "1", "deps": [{ "pkg": "2", "dep_kinds": linked }, { "pkg": "3", "dep_kinds": dev }] },
            ]},
        });
        let names: Vec<String> = third_parties(&metadata).into_keys().collect();
        assert_eq!(names, ["bytes"]);
    }

    #[test]
    fn the_texts_of_a_package_are_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("zstd")).unwrap();
        fs::write(dir.path().join("LICENSE-MIT"), "a").unwrap();
        fs::write(dir.path().join("zstd/COPYING"), "b").unwrap();
        fs::write(dir.path().join("README.md"), "c").unwrap();
        assert_eq!(licence_texts(dir.path()).unwrap(), ["a", "b"]);
    }
}
