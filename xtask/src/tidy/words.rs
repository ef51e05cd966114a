//! Plain English: rules for the sentences of documents, comments and messages.
//!
//! The rules find definitions without a noun, filler words, and sentences that are repeated all over the workspace.
//! They are approximations; [`super::baseline`] has the hits that remain, per crate and class.

mod patterns;
mod sentences;

use std::collections::BTreeMap;

use super::baseline::Debt;
use super::rust::{Comment, Kind, Source};
use super::{Finding, Sources, Tree, crate_of};
use patterns::{FILLERS, HEADLESS};
use sentences::{Sentence, of_markdown, of_text};

/// A sentence that occurs more often says nothing about the code beside it.
const REPEATED_MAX: usize = 5;
/// Shorter sentences are headings and labels.
const REPEATED_WORDS_MIN: usize = 3;
/// Shorter literals are keys and names.
const MESSAGE_WORDS_MIN: usize = 3;

/// Files that are not checked, each with its reason.
const UNCHECKED: &[(&str, &str)] = &[
    ("COMPAT.md", "generated: its sentences are checked in the sources"),
    ("docs/CONFIGURATION.md", "generated: its sentences are checked in the sources"),
    ("docs/STATISTICS.md", "generated: its sentences are checked in the sources"),
    ("xtask/src/tidy/words/patterns.rs", "lists the rejected words"),
    ("xtask/src/tidy/words.rs", "its tests contain the rejected words"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Documents, rustdoc of public items, messages.
    Public,
    /// All other comments.
    Internal,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
        }
    }
}

/// A sentence that breaks a rule.
pub(super) struct Hit {
    path: String,
    line: usize,
    class: Class,
    pattern: String,
    text: String,
}

pub(super) fn debts(tree: &Tree, sources: &Sources) -> Vec<Debt> {
    let mut counts: BTreeMap<(String, Class), usize> = BTreeMap::new();
    for hit in hits(tree, sources) {
        *counts.entry((crate_of(&hit.path).to_owned(), hit.class)).or_default() += 1;
    }
    let debt = |((room, class), count): ((String, Class), usize)| Debt {
        key: format!("words {} {room}", class.name()),
        count,
        finding: Finding::new(
            &room,
            0,
            format!("{} sentences: `cargo xtask tidy --words {room}` lists them", class.name()),
        ),
    };
    counts.into_iter().map(debt).collect()
}

/// The lines of `cargo xtask tidy --words [CRATE]`.
pub(super) fn list(tree: &Tree, sources: &Sources, room: Option<&str>) -> Vec<String> {
    let wanted = |hit: &Hit| {
        room.is_none_or(|room| {
            let own = crate_of(&hit.path);
            own == room || own.strip_prefix("crates/") == Some(room) || hit.path.starts_with(room)
        })
    };
    let mut hits = hits(tree, sources);
    hits.retain(wanted);
    hits.sort_by(|a, b| (a.class, &a.path, a.line).cmp(&(b.class, &b.path, b.line)));
    let line =
        |hit: &Hit| format!("{}:{}: {}: {}: {}", hit.path, hit.line, hit.class.name(), hit.pattern, hit.text);
    hits.iter().map(line).collect()
}

fn hits(tree: &Tree, sources: &Sources) -> Vec<Hit> {
    let mut hits = Vec::new();
    let mut comments: Vec<(String, Class, Sentence)> = Vec::new();
    let is_checked = |path: &str| !UNCHECKED.iter().any(|(own, _)| *own == path);
    for (path, text) in tree.with_extension(&["md"]).filter(|(path, _)| is_checked(path)) {
        for sentence in of_markdown(text) {
            judge(path, Class::Public, &sentence, &mut hits);
        }
    }
    for (path, source) in sources.iter().filter(|(path, _)| is_checked(path)) {
        for (class, sentence) in comment_sentences(path, source) {
            judge(path, class, &sentence, &mut hits);
            comments.push((path.to_owned(), class, sentence));
        }
        for sentence in messages(path, source) {
            judge(path, Class::Public, &sentence, &mut hits);
        }
    }
    hits.extend(repeated(&comments));
    hits
}

/// Adds a hit for each rule that the sentence breaks.
fn judge(path: &str, class: Class, sentence: &Sentence, hits: &mut Vec<Hit>) {
    let mut hit = |pattern: String| {
        hits.push(Hit {
            path: path.to_owned(),
            line: sentence.line,
            class,
            pattern,
            text: sentence.text.clone(),
        });
    };
    if let Some(word) = headless(sentence) {
        hit(format!("`{word}` without a noun"));
    }
    if sentence.words.first().is_some_and(|word| word == "not")
        && sentence.text.starts_with("Not ")
        && sentence.words.iter().any(|word| word == "but")
    {
        hit("`Not .. but` (subject first)".to_owned());
    }
    for filler in FILLERS {
        for _ in 0..filler.occurs(&sentence.words) {
            hit(format!("`{}` ({})", filler.words.join(" "), filler.instead));
        }
    }
}

/// The word that starts a definition without a noun.
fn headless(sentence: &Sentence) -> Option<&'static str> {
    let first = sentence.text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    let word = HEADLESS.iter().find(|word| **word == first)?;
    let is_instruction = sentence.words.get(1).is_some_and(|second| second == "to");
    // "Where it is unset, the default applies": the main clause follows the comma.
    let has_main_clause = matches!(first, "Where" | "How") && sentence.text.contains(',');
    let is_heading = first == "How" && sentence.is_heading;
    (!sentence.text.ends_with('?') && !is_instruction && !has_main_clause && !is_heading).then_some(word)
}

/// Comment sentences that occur more than [`REPEATED_MAX`] times, other than clauses of SAFETY.
fn repeated(comments: &[(String, Class, Sentence)]) -> Vec<Hit> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    let counted = |sentence: &Sentence| sentence.words.len() >= REPEATED_WORDS_MIN && !sentence.in_safety;
    for (_, _, sentence) in comments.iter().filter(|(_, _, sentence)| counted(sentence)) {
        *times.entry(&sentence.text).or_default() += 1;
    }
    let hit = |(path, class, sentence): &(String, Class, Sentence)| {
        let count = times.get(sentence.text.as_str()).copied().filter(|&count| count > REPEATED_MAX)?;
        Some(Hit {
            path: path.clone(),
            line: sentence.line,
            class: *class,
            pattern: format!("repeated {count} times"),
            text: sentence.text.clone(),
        })
    };
    comments.iter().filter(|(_, _, sentence)| counted(sentence)).filter_map(hit).collect()
}

fn comment_sentences(path: &str, source: &Source) -> Vec<(Class, Sentence)> {
    let public = PublicItems::of(path, source);
    let mut sentences = Vec::new();
    for block in blocks(&source.comments) {
        let (Some(first), Some(last)) = (block.first(), block.last()) else { continue };
        let class = match first.kind {
            Kind::Outer if public.is_before(last.line) => Class::Public,
            Kind::Inner if path.ends_with("/lib.rs") => Class::Public,
            _ => Class::Internal,
        };
        let lines = block.iter().map(|comment| (comment.line, comment.text.as_str()));
        sentences.extend(of_text(lines).into_iter().map(|sentence| (class, sentence)));
    }
    sentences
}

/// Comments of one kind on lines that follow each other.
fn blocks(comments: &[Comment]) -> Vec<&[Comment]> {
    comments
        .chunk_by(|one, next| {
            one.line + 1 == next.line && one.kind == next.kind && one.owns_line && next.owns_line
        })
        .collect()
}

/// The literals of a source that are sentences for users; tests have none.
fn messages(path: &str, source: &Source) -> Vec<Sentence> {
    let is_test = ["/tests/", "/examples/", "/benches/", "interop/", "sim/"];
    if is_test.iter().any(|place| path.contains(place)) {
        return Vec::new();
    }
    let tests = source.test_lines();
    let in_tests = |line: usize| tests.iter().any(|&(from, to)| (from..=to).contains(&line));
    let literals = source.strings.iter().filter(|literal| !in_tests(literal.line));
    literals
        .flat_map(|literal| of_text([(literal.line, literal.text.replace("\\n", "\n").as_str())].into_iter()))
        .filter(|sentence| sentence.words.len() >= MESSAGE_WORDS_MIN)
        .collect()
}

/// The lines of code on which items that rustdoc or `--help` shows begin.
struct PublicItems<'a> {
    lines: Vec<&'a str>,
    /// Per line, from 0: it is inside of a public enum or trait.
    inside: Vec<bool>,
}

impl<'a> PublicItems<'a> {
    fn of(path: &str, source: &'a Source) -> Self {
        // clap shows the fields of all structures.
        let containers: &[&str] = if path.starts_with("crates/cli/") {
            &[
                "pub enum ",
                "pub trait ",
                "enum ",
                "struct ",
                "pub struct ",
                "pub(crate) struct ",
                "pub(crate) enum ",
            ]
        } else {
            &["pub enum ", "pub trait "]
        };
        let lines: Vec<&str> = source.code.lines().map(str::trim).collect();
        let mut inside = Vec::with_capacity(lines.len());
        let (mut depth, mut container) = (0_i32, None::<i32>);
        for line in &lines {
            inside.push(container.is_some_and(|own| depth > own));
            if container.is_none()
                && containers.iter().any(|start| line.starts_with(start))
                && line.ends_with('{')
            {
                container = Some(depth);
            }
            depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
            if container.is_some_and(|own| depth <= own) {
                container = None;
            }
        }
        Self { lines, inside }
    }

    /// `true` if the item after the comment that ends at `line` is public.
    fn is_before(&self, line: usize) -> bool {
        let mut brackets = 0_i32;
        for (text, inside) in self.lines.iter().zip(&self.inside).skip(line) {
            let is_attribute = brackets > 0 || text.starts_with("#[");
            if is_attribute {
                brackets += text.matches('[').count() as i32 - text.matches(']').count() as i32;
            } else if !text.is_empty() {
                return *inside || text.starts_with("pub ");
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn listed(files: &[(&str, &str)]) -> Vec<String> {
        let tree = tree(files);
        list(&tree, &Sources::parse(&tree), None)
    }

    fn patterns(text: &str) -> Vec<String> {
        let tree = tree(&[("crates/a/src/a.rs", text)]);
        hits(&tree, &Sources::parse(&tree)).into_iter().map(|hit| hit.pattern).collect()
    }

    #[test]
    fn definitions_without_a_noun_are_found() {
        assert_eq!(patterns("/// Whether the group exists.\nfn f() {}\n"), ["`Whether` without a noun"]);
        assert_eq!(patterns("// It is sent. What remains\n// is kept.\n"), ["`What` without a noun"]);
        assert_eq!(patterns("/// - Where the log ends.\nfn f() {}\n"), ["`Where` without a noun"]);
    }

    #[test]
    fn questions_instructions_and_clauses_are_not_found() {
        let none: [&str; 0] = [];
        assert_eq!(patterns("// What is sent here? The rest.\n"), none);
        assert_eq!(patterns("// How to add a request.\n"), none);
        assert_eq!(patterns("// Where it is unset, the default applies.\n"), none);
        assert_eq!(patterns("// The record that tells them apart. It stands for `told()`.\n"), none);
    }

    #[test]
    fn fillers_are_found_over_the_ends_of_lines() {
        assert_eq!(patterns("// The lease is handed\n// out to nobody.\n").len(), 2);
        assert_eq!(patterns("fn f() { eprintln!(\"the broker was told to stop\"); }\n").len(), 1);
        assert_eq!(patterns("// Not requests are sent but batches.\n"), ["`Not .. but` (subject first)"]);
    }

    #[test]
    fn a_sentence_that_is_repeated_is_found_except_in_safety_clauses() {
        let text = "// Returns the error code.\nfn f() {}\n".repeat(6);
        assert_eq!(patterns(&text).len(), 6);
        assert!(
            patterns(&"// SAFETY: `rk` is a handle. See the C contract.\nfn f() {}\n".repeat(6)).is_empty()
        );
        assert!(patterns(&"// Returns the error code.\nfn f() {}\n".repeat(5)).is_empty());
    }

    #[test]
    fn hits_are_listed_with_their_class() {
        let text = "/// Who waits.\npub fn f() {}\n/// Who waits.\nfn g() {}\npub enum E {\n    /// Who waits.\n    A,\n}\n";
        let found = listed(&[("crates/a/src/a.rs", text), ("docs/A.md", "| `x` | What it is |\n")]);
        let classes: Vec<&str> = found.iter().filter_map(|line| line.split(": ").nth(1)).collect();
        assert_eq!(classes, ["public", "public", "public", "internal"], "{found:?}");
        assert!(
            found[0].starts_with("crates/a/src/a.rs:1: public: `Who` without a noun: Who waits."),
            "{found:?}"
        );
    }
}
