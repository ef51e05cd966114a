//! Doc comments come directly before their item, above its attributes.

use super::baseline::Debt;
use super::rust::{Kind, Source};
use super::{Finding, Sources, crate_of};

pub(super) fn debts(sources: &Sources) -> Vec<Debt> {
    let mut debts: Vec<Debt> = Vec::new();
    for (path, source) in sources.iter() {
        for (line, text) in misplaced(source) {
            let key = format!("doc-comments {}", crate_of(path));
            let finding = Finding::new(path, line, text);
            match debts.iter_mut().find(|debt| debt.key == key) {
                Some(debt) => {
                    debt.count += 1;
                    debt.finding.what.extend(["; ", path, ":", &line.to_string()]);
                }
                None => debts.push(Debt { key, count: 1, finding }),
            }
        }
    }
    debts
}

/// Every misplaced doc comment: its first line and the reason.
pub(super) fn misplaced(source: &Source) -> Vec<(usize, &'static str)> {
    let lines: Vec<&str> = source.code.lines().map(str::trim).collect();
    let line = |number: usize| lines.get(number.wrapping_sub(1)).copied().unwrap_or_default();
    let mut found = Vec::new();
    for (first, last) in blocks(source) {
        let mut above = first - 1;
        while above > 0 && line(above).is_empty() && is_comment(source, above) {
            above -= 1;
        }
        let mut next = last + 1;
        while next <= lines.len() && line(next).is_empty() && is_plain_comment(source, next) {
            next += 1;
        }
        let item = line(next);
        if line(above).starts_with("#[") && line(above).ends_with(']') {
            found.push((first, "a doc comment below an attribute: write it above the item's attributes"));
        } else if item.is_empty() {
            found.push((first, "a doc comment before an empty line: it documents a later item, or nothing"));
        } else if item.starts_with("use ") || is_macro_call(item) {
            found.push((first, "a doc comment before `use` or the call of a macro documents nothing"));
        }
    }
    found
}

/// The first and last lines of the `///` comments that belong together.
fn blocks(source: &Source) -> Vec<(usize, usize)> {
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for comment in source.comments.iter().filter(|own| own.kind == Kind::Outer && own.owns_line) {
        match blocks.last_mut() {
            Some((_, last)) if *last + 1 == comment.line => *last = comment.line,
            _ => blocks.push((comment.line, comment.line)),
        }
    }
    blocks
}

fn is_comment(source: &Source, line: usize) -> bool {
    source.comments.binary_search_by_key(&line, |own| own.line).is_ok()
}

fn is_plain_comment(source: &Source, line: usize) -> bool {
    let at = source.comments.binary_search_by_key(&line, |own| own.line);
    at.is_ok_and(|at| source.comments[at].kind == Kind::Plain)
}

/// `name! {`, but not the definition of a macro.
fn is_macro_call(item: &str) -> bool {
    let name =
        item.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next().unwrap_or_default();
    name != "macro_rules" && !name.is_empty() && item[name.len()..].starts_with('!')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        misplaced(&Source::parse(text)).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn a_doc_comment_above_attributes_is_in_its_place() {
        let text = "/// Doc,\n/// of two lines.\n// Why the lint.\n#[inline]\nfn f() {}\n\n    /// Of a field.\n    a: u8,\n";
        assert_eq!(lines(text), [0_usize; 0]);
    }

    #[test]
    fn a_doc_comment_below_an_attribute_is_found() {
        assert_eq!(lines("#[inline]\n/// Doc.\nfn f() {}\n"), [2]);
        assert_eq!(lines("#[inline] // Why.\n// More.\n/// Doc.\nfn f() {}\n"), [3]);
    }

    #[test]
    fn a_doc_comment_of_nothing_is_found() {
        assert_eq!(lines("/// Doc.\n\nfn f() {}\n"), [1]);
        assert_eq!(lines("/// Doc.\nuse a::b;\n/// Doc.\nthread_local! {\n}\n"), [1, 3]);
        assert_eq!(lines("/// Doc.\nmacro_rules! m {\n}\n/// Doc.\npub use a::b;\n"), [0_usize; 0]);
    }
}
