//! Functions have at most [`LINES_MAX`] lines.

use super::allowed::LONG_FUNCTIONS;
use super::baseline::Debt;
use super::rust::{Source, closing_brace};
use super::{Finding, Sources, crate_of};

/// A longer function does more than one thing.
const LINES_MAX: usize = 80;

pub(super) fn debts(sources: &Sources) -> Vec<Debt> {
    let tables: Vec<(&str, &str)> = LONG_FUNCTIONS.iter().map(|&(path, name, _)| (path, name)).collect();
    debts_except(sources, &tables)
}

/// Exceptions that are tables and are no longer long, or no longer there.
pub(super) fn stale_exceptions(sources: &Sources) -> Vec<Finding> {
    let is_long = |path: &str, name: &str| {
        sources.iter().any(|(own, source)| {
            own == path
                && functions(source).iter().any(|function| function.name == name && function.is_long())
        })
    };
    LONG_FUNCTIONS
        .iter()
        .filter(|(path, name, _)| !is_long(path, name))
        .map(|(path, name, _)| Finding::new(path, 0, format!("`{name}`: needs no exception any more")))
        .collect()
}

fn debts_except(sources: &Sources, tables: &[(&str, &str)]) -> Vec<Debt> {
    let mut debts = Vec::new();
    for (path, source) in sources.iter() {
        for function in functions(source).into_iter().filter(Function::is_long) {
            if tables.contains(&(path, function.name)) {
                continue;
            }
            debts.push(Debt {
                key: format!("function {} {}", crate_of(path), function.name),
                count: function.lines,
                finding: Finding::new(
                    path,
                    function.line,
                    format!(
                        "`{}` has {} lines, more than {LINES_MAX}: split it",
                        function.name, function.lines
                    ),
                ),
            });
        }
    }
    debts
}

struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
}

impl Function<'_> {
    fn is_long(&self) -> bool {
        self.lines > LINES_MAX
    }
}

/// The functions with a body, with their lines from `fn` to the closing brace.
fn functions(source: &Source) -> Vec<Function<'_>> {
    let code = source.code.as_str();
    let mut functions = Vec::new();
    for (at, keyword) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + keyword.len()..];
        let name =
            rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).next().unwrap_or_default();
        if let Some(open) = body(rest)
            && !name.is_empty()
        {
            let close = closing_brace(code, at + keyword.len() + open);
            let lines = code[at..close].matches('\n').count() + 1;
            if lines > LINES_MAX {
                functions.push(Function { name, line: source.line_at(at), lines });
            }
        }
    }
    functions
}

/// The offset of the brace that opens the body; none for a declaration or for the type of a function pointer.
fn body(rest: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn text_of(lines: usize) -> String {
        format!(
            "trait T {{ fn declared(&self); }}\nfn long<F: Fn()>() -> [u8; 4] {{\n{}}}\n",
            "    x();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn a_function_of_more_than_80_lines_is_found() {
        let at_limit = text_of(LINES_MAX);
        let above = text_of(LINES_MAX + 1);
        let sources =
            Sources::parse(&tree(&[("crates/a/src/one.rs", &at_limit), ("crates/a/src/two.rs", &above)]));
        let debts = debts_except(&sources, &[]);
        assert_eq!(debts.len(), 1, "{debts:?}");
        assert_eq!((debts[0].key.as_str(), debts[0].count), ("function crates/a long", 81));
        assert_eq!(debts[0].finding.line, 2);
        assert_eq!(debts_except(&sources, &[("crates/a/src/two.rs", "long")]), []);
    }
}
