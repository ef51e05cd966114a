//! confluent-kafka-javascript and its packages from npm. Its addon for Node is built on our library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::librdkafka::{Librdkafka, our_prefix};
use crate::peer::locked;
use crate::process::run;
use crate::workspace::workspace_root;

/// Downloads of a few megabytes.
const FETCHED_WITHIN: Duration = Duration::from_secs(300);
/// One minute on an idle machine.
const BUILT_WITHIN: Duration = Duration::from_secs(600);
/// Node starts in a fraction of a second.
const STARTED_WITHIN: Duration = Duration::from_secs(30);

/// The files of `interop/node` that name the packages and their versions.
const LISTS: [&str; 2] = ["package.json", "package-lock.json"];

/// The `NODE_PATH` of confluent-kafka-javascript, built against our headers and rebuilt when they or its version change.
///
/// `LD_LIBRARY_PATH` selects the C library at its start. The addon finds our C++ classes in our prefix if that path has none.
pub fn javascript_package() -> Result<PathBuf, Failure> {
    let library = Librdkafka::ours()?;
    let dir = our_prefix().join("node");
    locked("confluent-kafka-javascript", || {
        let lists = LISTS.map(|list| workspace_root().join("interop/node").join(list));
        let headers =
            ["rdkafka.h", "rdkafkacpp.h"].map(|name| library.include().join("librdkafka").join(name));
        let mut wanted = Vec::new();
        for file in lists.iter().chain(&headers) {
            wanted.extend(fs::read(file).map_err(|error| failed(file, &error))?);
        }
        // Written last, with the lists and headers that were used.
        let complete = dir.join("complete");
        if fs::read(&complete).is_ok_and(|made_from| made_from == wanted) {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(|error| failed(&dir, &error))?;
        for (list, from) in LISTS.iter().zip(&lists) {
            fs::copy(from, dir.join(list)).map_err(|error| failed(from, &error))?;
        }
        let mut npm = Command::new("npm");
        // Its scripts would download an addon with a library of its own.
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&dir);
        run("npm", &mut npm, b"", FETCHED_WITHIN)?.succeeded()?;
        build(&library, &dir.join("node_modules"))?;
        fs::write(&complete, &wanted).map_err(|error| failed(&complete, &error))
    })?;
    Ok(dir.join("node_modules"))
}

/// The directory that has Node's headers in `include/node`. Nothing has to be downloaded for an addon then.
pub(crate) fn node_prefix() -> Result<PathBuf, Failure> {
    let mut node = Command::new("node");
    node.args(["-p", "require('path').resolve(process.execPath, '../..')"]);
    let printed = run("node", &mut node, b"", STARTED_WITHIN)?.succeeded()?;
    Ok(PathBuf::from(printed.lines().concat()))
}

/// Builds the addon with the method of `docs/ABI.md`.
fn build(library: &Librdkafka, packages: &Path) -> Result<(), Failure> {
    let mut gyp = Command::new("node");
    gyp.arg(packages.join("node-gyp/bin/node-gyp.js")).args(["rebuild", "--jobs", "max", "--nodedir"]);
    gyp.arg(node_prefix()?).current_dir(packages.join("@confluentinc/kafka-javascript"));
    gyp.env("BUILD_LIBRDKAFKA", "0").env("CPLUS_INCLUDE_PATH", library.include().join("librdkafka"));
    let lib = library.lib().display();
    // As a run path, which comes after `LD_LIBRARY_PATH`.
    gyp.env("LDFLAGS", format!("-L{lib} -Wl,--enable-new-dtags,-rpath,{lib}"));
    run("node-gyp", &mut gyp, b"", BUILT_WITHIN)?.succeeded().map(|_| ())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
