//! Directories: the workspace, its target directory, and the cache in it.

use std::path::{Path, PathBuf};

/// The directory of the workspace's root `Cargo.toml`.
pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("interop lies in the workspace root")
}

/// Cargo's target directory: `CARGO_TARGET_DIR`, or `target` in the workspace root.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace_root().join(dir),
        None => workspace_root().join("target"),
    }
}

/// The cache that is kept between test runs: downloaded jars and the list of skipped tests.
pub fn cache_dir() -> PathBuf {
    target_dir().join("interop")
}
