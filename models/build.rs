//! Copies the modelled files, with the types of loom or shuttle in place of those of the standard library.
//!
//! [`MODELS`] lists the files. Each model gets one module with the code as it is shipped, and one for each of its weakened
//! variants: the same code with one defect, which the model must find. An edit whose text is no longer in the file fails
//! the build, so a variant stays the shipped code with exactly one difference.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

#[path = "table.rs"]
mod table;

use table::{MODELS, Model, Tool};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=table.rs");
    let mut generated = String::new();
    for model in MODELS {
        let files: Vec<(&str, String)> =
            model.files.iter().map(|file| (stem(file), converted(&root, model, file))).collect();
        let _ =
            writeln!(generated, "/// Variants of `{}`.\npub mod {} {{", model.files.join("`, `"), model.name);
        variant(&mut generated, "shipped", &files);
        for weakened in model.weakened {
            variant(&mut generated, weakened.name, &weaken(&files, weakened));
        }
        generated.push_str("}\n");
    }
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("copies.rs"), generated).expect("the build directory is writable");
}

fn stem(file: &str) -> &str {
    Path::new(file).file_stem().and_then(|stem| stem.to_str()).expect("the table has names of files")
}

/// The text of a shipped file, without its tests, for the model's tool.
fn converted(root: &Path, model: &Model, file: &str) -> String {
    println!("cargo::rerun-if-changed={}", root.join(file).display());
    let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    // A doc comment for a file is not allowed in a module with braces.
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("//!"))
        .fold(String::new(), |text, line| text + line + "\n");
    let tool = match model.tool {
        Tool::Loom => "crate::under_loom",
        Tool::Shuttle => "crate::under_shuttle",
    };
    let mut text = text
        .replace("std::sync::", &format!("{tool}::sync::"))
        .replace("std::thread::current", &format!("{tool}::thread::current"))
        .replace("std::thread::park", &format!("{tool}::thread::park"))
        .replace("std::thread::Thread", &format!("{tool}::thread::Thread"))
        .replace("tokio::sync::", &format!("{tool}::tokio_sync::"))
        .replace("tokio::task::", &format!("{tool}::tokio_task::"))
        .replace("tokio::time::Instant", "std::time::Instant")
        .replace("pub(crate) ", "pub ")
        .replace("pub(super) ", "pub ");
    for (edited, from, to) in model.edits {
        if *edited == stem(file) {
            assert_eq!(text.matches(from).count(), 1, "{file}: the edit of its model applies once: {from}");
            text = text.replacen(from, to, 1);
        }
    }
    text
}

fn weaken(files: &[(&'static str, String)], weakened: &table::Weakened) -> Vec<(&'static str, String)> {
    let found: usize = files.iter().map(|(_, text)| text.matches(weakened.from).count()).sum();
    assert_eq!(found, 1, "the text of {} is in the files once: {}", weakened.name, weakened.from);
    files.iter().map(|(name, text)| (*name, text.replacen(weakened.from, weakened.to, 1))).collect()
}

fn variant(generated: &mut String, name: &str, files: &[(&str, String)]) {
    let _ = writeln!(
        generated,
        "#[allow(warnings, missing_docs, unsafe_code, non_camel_case_types, clippy::all, clippy::pedantic)]"
    );
    let _ = writeln!(generated, "pub mod {name} {{");
    for (file, text) in files {
        let _ = writeln!(generated, "pub mod {file} {{\n{text}}}");
    }
    generated.push_str("}\n");
}
