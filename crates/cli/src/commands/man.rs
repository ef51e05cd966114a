//! `ottla man`.

use std::path::PathBuf;

use crate::failure::Failure;

/// Writes the manual pages of all commands to a directory
///
/// For the user's own: ottla man ~/.local/share/man/man1, then man ottla-broker
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory; created if it is missing
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let write = || {
        std::fs::create_dir_all(&args.dir)?;
        clap_mangen::generate_to(crate::command(), &args.dir)
    };
    write().map_err(|error| Failure::failed(format!("{}: {error}", args.dir.display())))
}
