//! The demo's input: a file, standard input, the source tree, or generated lines.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::lines::{LineLimit, Lines};

/// The longest line: it must fit into one request. Longer ones of a source tree are split.
const LINE_LIMIT: LineLimit = LineLimit { bytes_max: 900_000, remedy: "give the demo another input" };
/// Maximum number of bytes to read from a source tree.
const TREE_BYTES_MAX: u64 = 256 << 20;
/// Maximum directory depth: symbolic links may form a cycle.
const DEPTH_MAX: usize = 24;
/// Number of generated lines if there is nothing to read.
const GENERATED: u64 = 100_000;

/// File extensions of source code.
const EXTENSIONS: [&str; 16] =
    ["c", "cc", "cpp", "go", "h", "hpp", "java", "js", "md", "py", "rs", "sh", "toml", "ts", "txt", "yml"];
/// Directories of build outputs.
const SKIPPED: [&str; 4] = ["target", "node_modules", "build", "dist"];

/// The lines to send.
pub(super) enum Input {
    Lines { lines: Lines, name: String },
    Tree { files: std::vec::IntoIter<PathBuf>, open: Option<Lines>, count: usize, bytes: u64 },
    Generated { next: u64, line: String },
}

impl Input {
    pub(super) fn open(file: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = file {
            let name =
                if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
            return Ok(Self::Lines { lines: Lines::of_file(path, LINE_LIMIT)?, name });
        }
        let mut files = Vec::new();
        let mut bytes = 0;
        collect(Path::new("."), 0, &mut files, &mut bytes);
        if files.is_empty() {
            return Ok(Self::Generated { next: 0, line: String::new() });
        }
        files.sort();
        let count = files.len();
        Ok(Self::Tree { files: files.into_iter(), open: None, count, bytes })
    }

    pub(super) fn description(&self) -> String {
        match self {
            Self::Lines { name, .. } => name.clone(),
            Self::Tree { count, bytes, .. } => {
                format!("the {count} source files under the current directory, {bytes} bytes")
            }
            Self::Generated { .. } => {
                format!("{GENERATED} generated lines, because the current directory has no source files")
            }
        }
    }

    /// The number of lines, if it is known in advance.
    pub(super) fn lines_known(&self) -> Option<u64> {
        match self {
            Self::Generated { .. } => Some(GENERATED),
            Self::Lines { .. } | Self::Tree { .. } => None,
        }
    }

    /// The next line, without its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        match self {
            Self::Lines { lines, .. } => lines.next(),
            Self::Generated { next, line } => {
                if *next == GENERATED {
                    return Ok(None);
                }
                *next += 1;
                *line = format!(
                    "line {next} of {GENERATED}, generated for the demo: {:016x}",
                    next.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                );
                Ok(Some(line.as_bytes()))
            }
            Self::Tree { files, open, .. } => {
                // Look ahead to find the end of this file, so that the returned line is the only borrow.
                while !open.as_mut().map_or(Ok(false), Lines::has_next)? {
                    let Some(path) = files.next() else { return Ok(None) };
                    *open = Some(Lines::of_file(&path, LINE_LIMIT)?);
                }
                // The user chose none of these files: a long line in one of them must not end the demo.
                open.as_mut().map_or(Ok(None), Lines::next_part)
            }
        }
    }
}

/// Adds the source files under `dir`; unreadable directories are skipped.
fn collect(dir: &Path, depth: usize, files: &mut Vec<PathBuf>, bytes: &mut u64) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let Ok(kind) = entry.file_type() else { continue };
        if name.starts_with('.') || kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            if depth < DEPTH_MAX && !SKIPPED.contains(&&*name) {
                collect(&path, depth + 1, files, bytes);
            }
            continue;
        }
        let source =
            path.extension().is_some_and(|extension| EXTENSIONS.contains(&&*extension.to_string_lossy()));
        let size = entry.metadata().map_or(0, |meta| meta.len());
        if source && kind.is_file() && *bytes + size <= TREE_BYTES_MAX {
            *bytes += size;
            files.push(path);
        }
    }
}
