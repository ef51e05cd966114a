//! The layers inside a crate, which ARCHITECTURE.md lists: a module imports nothing from a layer above its own, and
//! the modules of a layer have no cycle.
//!
//! The list is read from the chapter [`CHAPTER`]: a heading per crate, then one numbered item per layer, bottom up, with
//! its modules in backticks before the colon.

use std::collections::{BTreeMap, BTreeSet};

use super::baseline::Debt;
use super::rust::{Source, closing_brace};
use super::{Finding, Sources, Tree};

const DOCUMENT: &str = "ARCHITECTURE.md";
const CHAPTER: &str = "## The layers of each crate";

/// Files at the root of a crate, which may import everything.
const ROOTS: &[&str] = &["lib.rs", "main.rs"];

/// A crate's layers: for each module its height, from 0.
struct Layers<'a> {
    room: &'a str,
    line: usize,
    heights: BTreeMap<&'a str, usize>,
}

/// An import from one top-level module to another, at its first occurrence.
type Edges<'a> = BTreeMap<(&'a str, &'a str), (&'a str, usize)>;

/// Modules without a layer, and layers without a module.
pub(super) fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for layers in listed(tree) {
        let modules = modules(sources, layers.room);
        if modules.is_empty() {
            findings.push(Finding::new(DOCUMENT, layers.line, format!("{} has no modules", layers.room)));
        }
        for module in modules.iter().filter(|module| !layers.heights.contains_key(**module)) {
            let what = format!("module `{module}` of {} has no layer: list it", layers.room);
            findings.push(Finding::new(DOCUMENT, layers.line, what));
        }
        for module in layers.heights.keys().filter(|module| !modules.contains(**module)) {
            let what = format!("{} has no module `{module}`", layers.room);
            findings.push(Finding::new(DOCUMENT, layers.line, what));
        }
    }
    findings
}

/// Imports against the layers.
pub(super) fn debts(tree: &Tree, sources: &Sources) -> Vec<Debt> {
    let mut debts = Vec::new();
    for layers in listed(tree) {
        let edges = edges(sources, layers.room);
        for (&(from, to), &(path, line)) in &edges {
            let (Some(low), Some(high)) = (layers.heights.get(from), layers.heights.get(to)) else {
                continue;
            };
            let why = if high > low {
                format!("`{from}` imports `{to}`, which is in a layer above it ({DOCUMENT}, {CHAPTER})")
            } else if high == low && reaches(&edges, &layers, to, from) {
                format!("`{from}` imports `{to}`, which imports it: a cycle")
            } else {
                continue;
            };
            debts.push(Debt {
                key: format!("layer {} {from} -> {to}", layers.room),
                count: 1,
                finding: Finding::new(path, line, why),
            });
        }
    }
    debts
}

fn listed(tree: &Tree) -> Vec<Layers<'_>> {
    let mut crates: Vec<Layers<'_>> = Vec::new();
    let lines = tree.get(DOCUMENT).unwrap_or_default().lines().zip(1..);
    let chapter = lines.skip_while(|(line, _)| *line != CHAPTER).skip(1);
    for (line, number) in chapter.take_while(|(line, _)| !line.starts_with("## ")) {
        if let Some(heading) = line.strip_prefix("### ") {
            let room = heading.trim_matches('`');
            crates.push(Layers { room, line: number, heights: BTreeMap::new() });
        } else if let Some(layers) = crates.last_mut()
            && let Some((height, rest)) = line.split_once(". ")
            && let Ok(height) = height.parse()
        {
            let names = rest.split(':').next().unwrap_or_default();
            layers.heights.extend(names.split('`').skip(1).step_by(2).map(|name| (name, height)));
        }
    }
    crates
}

/// The modules below a crate's root, without those that only tests compile.
fn modules<'a>(sources: &'a Sources, room: &str) -> BTreeSet<&'a str> {
    let files = sources.iter().filter_map(|(path, _)| module_of(path, room));
    let only_tests = tests_only(sources, room);
    files.filter(|module| !only_tests.contains(module)).collect()
}

/// Modules that the root declares under `#[cfg(test)]`.
fn tests_only<'a>(sources: &'a Sources, room: &str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (_, source) in sources.iter().filter(|(path, _)| is_root(path, room)) {
        for (at, marker) in source.code.match_indices("#[cfg(test)]") {
            let item = source.code[at + marker.len()..].split(';').next().unwrap_or_default();
            names.extend(item.trim().strip_prefix("mod "));
        }
    }
    names
}

fn is_root(path: &str, room: &str) -> bool {
    in_source(path, room).is_some_and(|own| ROOTS.contains(&own))
}

/// The path below the crate's `src`.
fn in_source<'a>(path: &'a str, room: &str) -> Option<&'a str> {
    path.strip_prefix(room)?.strip_prefix("/src/")
}

fn module_of<'a>(path: &'a str, room: &str) -> Option<&'a str> {
    let own = in_source(path, room).filter(|own| !ROOTS.contains(own))?;
    Some(own.split('/').next().unwrap_or_default().trim_end_matches(".rs"))
}

/// The number of modules above the items of a file: 1 for `src/a.rs` and `src/a/mod.rs`.
fn depth_of(path: &str, room: &str) -> usize {
    let own = in_source(path, room).unwrap_or_default();
    own.split('/').count() - usize::from(own.ends_with("/mod.rs"))
}

fn edges<'a>(sources: &'a Sources, room: &str) -> Edges<'a> {
    let modules = modules(sources, room);
    let exported = exported(sources, room);
    let mut edges = Edges::new();
    for (path, source) in sources.iter() {
        let Some(from) = module_of(path, room).filter(|module| modules.contains(module)) else { continue };
        let tests = source.test_lines();
        for (at, name) in names_at_root(source, depth_of(path, room)) {
            let module = modules.get(name).or_else(|| exported.get(name));
            let line = source.line_at(at);
            if let Some(&to) = module
                && to != from
                && !tests.iter().any(|&(first, last)| (first..=last).contains(&line))
            {
                edges.entry((from, to)).or_insert((path, line));
            }
        }
    }
    edges
}

/// The items that the root exports, with their modules.
fn exported<'a>(sources: &'a Sources, room: &str) -> BTreeMap<&'a str, &'a str> {
    let mut items = BTreeMap::new();
    for (_, source) in sources.iter().filter(|(path, _)| is_root(path, room)) {
        for statement in source.code.split("pub use ").skip(1) {
            let statement = statement.split(';').next().unwrap_or_default();
            let module = statement.trim_start_matches("crate::").split("::").next().unwrap_or_default();
            let names = statement.split(['{', '}', ',', ' ', '\n']).map(|path| path.rsplit("::").next());
            items.extend(names.flatten().filter(|name| !name.is_empty()).map(|name| (name, module)));
        }
    }
    items
}

/// Every name that the code takes from the root of its crate, with its offset: after `crate::` and after as many
/// `super::` as there are modules above.
fn names_at_root(source: &Source, depth: usize) -> Vec<(usize, &str)> {
    let code = source.code.as_str();
    let inline = inline_modules(code);
    let mut names = Vec::new();
    for (at, word) in code.match_indices("crate::") {
        let before = &code[..at];
        // `pub(in crate::a)` limits visibility; `mycrate::` is another name.
        if !before.ends_with("in ") && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            take_names(code, at + word.len(), &mut names);
        }
    }
    let mut next = 0;
    for (at, word) in code.match_indices("super::") {
        if at < next {
            continue;
        }
        let mut end = at;
        while code[end..].starts_with(word) {
            end += word.len();
        }
        next = end;
        let nested = inline.iter().filter(|(from, to)| (*from..*to).contains(&at)).count();
        if (end - at) / word.len() == depth + nested {
            take_names(code, end, &mut names);
        }
    }
    names
}

/// The name at `start`, or the first names inside of its braces.
fn take_names<'a>(code: &'a str, start: usize, names: &mut Vec<(usize, &'a str)>) {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut take = |at: usize| {
        let name = code[at..].split(|c| !is_name(c)).next().unwrap_or_default();
        if !name.is_empty() {
            names.push((at, name));
        }
    };
    if !code[start..].starts_with('{') {
        return take(start);
    }
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().take(closing_brace(code, start)).skip(start) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 1 && matches!(byte, b'{' | b',') {
            let rest = &code[at + 1..];
            take(at + 1 + rest.len() - rest.trim_start().len());
        }
    }
}

/// The ranges of `mod name { .. }`.
fn inline_modules(code: &str) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    for (at, word) in code.match_indices("mod ") {
        let rest = &code[at + word.len()..];
        let opens = rest.find(['{', ';']).filter(|&end| rest.as_bytes()[end] == b'{');
        if let Some(open) = opens
            && !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            let open = at + word.len() + open;
            ranges.push((open, closing_brace(code, open)));
        }
    }
    ranges
}

/// `true` if imports within the layer lead from one module to the other.
fn reaches(edges: &Edges<'_>, layers: &Layers<'_>, from: &str, to: &str) -> bool {
    let height = layers.heights.get(from);
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        if module == to {
            return true;
        }
        for (_, next) in edges.keys().filter(|(own, _)| *own == module) {
            if layers.heights.get(next) == height && seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const LAYERS: &str = "## The layers of each crate\n\nBottom up.\n\n### `crates/a`\n\n\
                          1. `low`, `beside`: data.\n2. `high`: more, see `nothing`.\n\n## Next\n\n1. `other`\n";

    fn keys(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![(DOCUMENT, LAYERS)];
        all.extend_from_slice(files);
        let tree = tree(&all);
        debts(&tree, &Sources::parse(&tree)).into_iter().map(|debt| debt.key).collect()
    }

    #[test]
    fn an_import_from_a_higher_layer_is_found() {
        for import in [
            "use crate::high::X;",
            "use crate::{beside::Y, high::X};",
            "fn f() { crate::high::x() }",
            "use super::super::high;",
            "mod inner { use super::super::super::high; }",
            "use crate::{X};",
        ] {
            let files = [
                ("crates/a/src/low/deep.rs", import),
                ("crates/a/src/high.rs", "use crate::low;"),
                ("crates/a/src/lib.rs", "mod low;\npub use high::X;\n"),
            ];
            assert_eq!(keys(&files), ["layer crates/a low -> high"], "{import}");
        }
    }

    #[test]
    fn tests_and_the_root_may_import_everything() {
        let files = [
            (
                "crates/a/src/low/mod.rs",
                "#[cfg(test)]\nmod tests {\n    use crate::high;\n}\nuse super::beside;\n",
            ),
            ("crates/a/src/main.rs", "use crate::high;\n"),
            ("crates/a/src/beside.rs", "pub(in crate::high) struct S;\n"),
        ];
        assert_eq!(keys(&files), [""; 0]);
    }

    #[test]
    fn a_cycle_within_a_layer_is_found() {
        let files =
            [("crates/a/src/low.rs", "use crate::beside;"), ("crates/a/src/beside.rs", "use super::low::X;")];
        assert_eq!(keys(&files), ["layer crates/a beside -> low", "layer crates/a low -> beside"]);
    }

    #[test]
    fn modules_and_the_list_agree() {
        let tree = tree(&[
            (DOCUMENT, LAYERS),
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod check;\n"),
            ("crates/a/src/check.rs", ""),
            ("crates/a/src/low.rs", ""),
            ("crates/a/src/high/mod.rs", ""),
            ("crates/a/src/new.rs", ""),
        ]);
        let found: Vec<String> =
            check(&tree, &Sources::parse(&tree)).into_iter().map(|finding| finding.what).collect();
        assert_eq!(
            found,
            ["module `new` of crates/a has no layer: list it", "crates/a has no module `beside`"]
        );
    }
}
