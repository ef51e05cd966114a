//! The crates as `cargo package` makes them for a registry.

use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run};
use serde_json::Value;

use crate::shell::{self, cargo};

const LISTED_WITHIN: Duration = Duration::from_secs(120);
const BUILT_WITHIN: Duration = Duration::from_secs(60 * 60);

/// Packs all crates that are not private. With `verify`, each is also built from its package. The number of crates.
pub(crate) fn package(verify: bool) -> Result<usize, Failure> {
    let names = publishable()?;
    let mut package = cargo(&["package", "--locked", "--allow-dirty"]);
    package.args(names.iter().flat_map(|name| ["--package", name]));
    if !verify {
        package.arg("--no-verify");
    }
    let done = shell::run(&mut package, BUILT_WITHIN).map_err(Failure::new)?;
    if done.status.success() {
        Ok(names.len())
    } else {
        Err(Failure::new(format!("cargo package ({})", done.status)))
    }
}

fn publishable() -> Result<Vec<String>, Failure> {
    let mut metadata: Command = cargo(&["metadata", "--format-version", "1", "--locked", "--no-deps"]);
    let output = run("cargo metadata", &mut metadata, b"", LISTED_WITHIN)?.succeeded()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new(format!("cargo metadata: {error}")))?;
    Ok(names(&metadata))
}

/// A crate with `publish = false` has an empty list of registries.
fn names(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages = packages.filter(|package| package["publish"].is_null());
    packages.filter_map(|package| package["name"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn private_crates_are_left_out() {
        let metadata = json!({ "packages": [
            { "name": "ottla", "publish": null },
            { "name": "xtask", "publish": [] },
        ]});
        assert_eq!(names(&metadata), ["ottla"]);
    }
}
