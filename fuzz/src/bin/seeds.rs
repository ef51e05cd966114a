//! Writes the seeds of every target to its corpus. Other files of the corpus stay.

#![allow(clippy::print_stdout, reason = "a command")]

use std::path::Path;
use std::{fs, io};

use ottla_fuzz::TARGETS;

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let dir = corpus.join(target.name);
        fs::create_dir_all(&dir)?;
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seed-")) {
                fs::remove_file(path)?;
            }
        }
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(dir.join(format!("seed-{number:02}")), seed)?;
        }
        println!(
            "{:24} {:2} seeds, {:6} bytes",
            target.name,
            seeds.len(),
            seeds.iter().map(Vec::len).sum::<usize>()
        );
    }
    Ok(())
}
