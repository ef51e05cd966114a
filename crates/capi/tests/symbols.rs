//! The library exports every function of librdkafka 2.16 and of ottla.h, and no others.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn the_library_exports_every_function_of_librdkafka_and_of_ottla_h_and_nothing_else() {
    let lists = [include_str!("../abi/symbols.txt"), include_str!("../abi/ottla.txt")];
    let wanted: BTreeSet<String> = lists.iter().flat_map(|list| list.lines()).map(str::to_owned).collect();
    let exported = exported();
    let missing: Vec<_> = wanted.difference(&exported).collect();
    let surplus: Vec<_> = exported.difference(&wanted).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    assert!(surplus.is_empty(), "exported, and neither a function of librdkafka nor of ottla.h: {surplus:?}");
}

fn exported() -> BTreeSet<String> {
    let library = library();
    let nm =
        Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm of binutils");
    assert!(nm.status.success(), "nm {}: {}", library.display(), String::from_utf8_lossy(&nm.stderr));
    String::from_utf8(nm.stdout)
        .expect("symbols are ASCII")
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned))
        .collect()
}

/// The shared library that cargo built next to this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("in deps").join("librdkafka.so")
}
