//! The container image, unpacked and run from its own root file system.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ottla_interop::Failure;
use serde_json::Value;

use super::root::Root;
use super::{Broker, named, require};
use crate::dist::oci::{DATA, SECURE, unpack};
use crate::dist::tree::write;

/// The command of the image, with a free port of loopback in the place of its address.
pub(super) fn broker(results: &Path) -> Result<(), Failure> {
    let root = Root::empty()?;
    let config = unpack(&named(results, "-oci.tar")?, &root.path(""))?;
    // Docker gives a new volume the owner and the mode of the image's directory. There was none: the broker could not write there.
    let owner = |dir: &str| {
        let found = fs::metadata(root.path(dir)).map_err(|error| Failure::new(format!("/{dir}: {error}")))?;
        Ok::<_, Failure>((found.uid(), found.gid(), found.mode()))
    };
    require(
        owner(SECURE)? == owner(DATA)?,
        "the directory of --secure has another owner or mode than the data",
    )?;
    // Container engines add this file.
    write(&root.path("etc/hosts"), "127.0.0.1 localhost\n")?;
    let config = &config["config"];
    let user = config["User"].as_str().unwrap_or_default();
    let words = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
    };
    let (entrypoint, mut command) = (words(&config["Entrypoint"]), words(&config["Cmd"]));
    let program = entrypoint.first().ok_or_else(|| Failure::new("the image has no entry point"))?;
    let listen = command.iter().position(|word| word == "--listen").map(|at| at + 1);
    if let Some(address) = listen.and_then(|at| command.get_mut(at)) {
        "127.0.0.1:0".clone_into(address);
    }
    let mut start = root.command_as(program, Some(user));
    for variable in words(&config["Env"]) {
        let (name, value) = variable.split_once('=').unwrap_or_default();
        // The image's own search path would hide `chroot`.
        if name != "PATH" {
            start.env(name, value);
        }
    }
    let broker = Broker::spawn(start.args(&command))?;
    broker.roundtrip(&|| root.command_as(program, Some(user)), "orders")?;
    require(root.path(DATA).join("orders-0").is_dir(), "the volume has no directory of the partition")
}
