//! A small lexer for Rust: it separates code, comments and string literals, which is enough for the rules of tidy.

/// A source file whose comments and literals are separated from its code.
pub(super) struct Source {
    /// The code with the text of comments, strings and characters replaced by spaces; lines keep their numbers.
    pub(super) code: String,
    pub(super) comments: Vec<Comment>,
    pub(super) strings: Vec<Literal>,
}

/// One comment, which is a single line unless it is a block comment.
pub(super) struct Comment {
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// `true` if nothing else precedes the comment on its line.
    pub(super) owns_line: bool,
    /// The text after the comment marker.
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `//`
    Plain,
    /// `///`
    Outer,
    /// `//!`
    Inner,
}

/// A string literal without its quotes; escapes are kept, except those of a line end.
pub(super) struct Literal {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Source {
    pub(super) fn parse(text: &str) -> Self {
        Lexer {
            text,
            at: 0,
            line: 1,
            code: Vec::with_capacity(text.len()),
            source: Vec::new(),
            strings: Vec::new(),
        }
        .run()
    }

    /// The line of a byte offset in `code`, from 1.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        self.code[..offset].matches('\n').count() + 1
    }

    /// The lines (from, to) of modules that only tests compile.
    pub(super) fn test_lines(&self) -> Vec<(usize, usize)> {
        let mut ranges = Vec::new();
        for (at, marker) in self.code.match_indices("#[cfg(test)]") {
            let rest = &self.code[at + marker.len()..];
            let Some(item) = rest.find(['{', ';']) else { continue };
            if rest.as_bytes()[item] == b'{' {
                let open = at + marker.len() + item;
                let close = closing_brace(&self.code, open);
                ranges.push((self.line_at(at), self.line_at(close)));
            }
        }
        ranges
    }
}

/// The offset of the brace that closes the one at `open`, or of the end of the text.
pub(super) fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    code.len().saturating_sub(1)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    code: Vec<u8>,
    source: Vec<Comment>,
    strings: Vec<Literal>,
}

impl Lexer<'_> {
    fn run(mut self) -> Source {
        while let Some(byte) = self.byte(0) {
            match byte {
                b'/' if self.byte(1) == Some(b'/') => self.line_comment(),
                b'/' if self.byte(1) == Some(b'*') => self.block_comment(),
                b'"' => self.string(),
                b'r' if !self.in_word() && self.raw_hashes(1).is_some() => self.raw_string(1),
                b'b' if !self.in_word() && self.byte(1) == Some(b'r') && self.raw_hashes(2).is_some() => {
                    self.raw_string(2);
                }
                b'\'' => self.character(),
                _ => self.keep(),
            }
        }
        // Only whole characters were replaced, so this is the text's own encoding.
        let code = String::from_utf8_lossy(&self.code).into_owned();
        Source { code, comments: self.source, strings: self.strings }
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    /// `true` if the byte at hand continues an identifier.
    fn in_word(&self) -> bool {
        self.code.last().is_some_and(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    fn keep(&mut self) {
        if let Some(byte) = self.byte(0) {
            self.line += usize::from(byte == b'\n');
            self.code.push(byte);
            self.at += 1;
        }
    }

    /// Replaces one byte by a space; line ends stay.
    fn blank(&mut self) {
        if let Some(byte) = self.byte(0) {
            self.line += usize::from(byte == b'\n');
            self.code.push(if byte == b'\n' { b'\n' } else { b' ' });
            self.at += 1;
        }
    }

    fn blank_to(&mut self, end: usize) {
        while self.at < end.min(self.text.len()) {
            self.blank();
        }
    }

    fn owns_line(&self) -> bool {
        let before = self.text[..self.at].rsplit('\n').next().unwrap_or_default();
        before.trim().is_empty()
    }

    fn line_comment(&mut self) {
        let rest = &self.text[self.at..];
        let length = rest.find('\n').unwrap_or(rest.len());
        let comment = &rest[..length];
        let (kind, text) = if comment.starts_with("////") {
            (Kind::Plain, comment.trim_start_matches('/'))
        } else if let Some(text) = comment.strip_prefix("///") {
            (Kind::Outer, text)
        } else if let Some(text) = comment.strip_prefix("//!") {
            (Kind::Inner, text)
        } else {
            (Kind::Plain, &comment[2..])
        };
        let text = text.to_owned();
        self.source.push(Comment { line: self.line, kind, owns_line: self.owns_line(), text });
        self.blank_to(self.at + length);
    }

    fn block_comment(&mut self) {
        let rest = &self.text[self.at..];
        let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
        let text = rest[..length].trim_matches(['/', '*']).to_owned();
        self.source.push(Comment { line: self.line, kind: Kind::Plain, owns_line: self.owns_line(), text });
        self.blank_to(self.at + length);
    }

    fn string(&mut self) {
        let line = self.line;
        self.keep();
        let start = self.at;
        while let Some(byte) = self.byte(0) {
            match byte {
                b'\\' => {
                    self.blank();
                    self.blank();
                }
                b'"' => break,
                _ => self.blank(),
            }
        }
        let text = joined(&self.text[start..self.at.min(self.text.len())]);
        self.strings.push(Literal { line, text });
        self.keep();
    }

    /// The number of `#` between `r` and the quote, if a raw string starts here.
    fn raw_hashes(&self, prefix: usize) -> Option<usize> {
        let rest = self.text.as_bytes().get(self.at + prefix..)?;
        let hashes = rest.iter().take_while(|&&byte| byte == b'#').count();
        (rest.get(hashes) == Some(&b'"')).then_some(hashes)
    }

    fn raw_string(&mut self, prefix: usize) {
        let line = self.line;
        let hashes = self.raw_hashes(prefix).unwrap_or_default();
        let start = self.at + prefix + hashes + 1;
        let end_marker = format!("\"{}", "#".repeat(hashes));
        let length = self.text[start..].find(&end_marker).unwrap_or(self.text.len() - start);
        self.strings.push(Literal { line, text: self.text[start..start + length].to_owned() });
        self.blank_to(start + length + end_marker.len());
    }

    /// A character literal; a lifetime has no closing quote and stays code.
    fn character(&mut self) {
        let rest = &self.text[self.at + 1..];
        let length = match rest.chars().next() {
            Some('\\') => rest.get(2..).and_then(|rest| rest.find('\'')).map(|end| end + 4),
            Some(first) if rest[first.len_utf8()..].starts_with('\'') => Some(first.len_utf8() + 2),
            _ => None,
        };
        match length {
            Some(length) => self.blank_to(self.at + length),
            None => self.keep(),
        }
    }
}

/// Removes the line ends that a backslash hides from the program.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let mut joined = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        joined.push_str(part.trim_start());
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_strings_are_separated() {
        let text = "let a = \"// no \\\" comment\"; // yes\n/// Doc.\nfn f<'a>(c: char) -> &'a str { r#\"x\"y\"# }\n";
        let source = Source::parse(text);
        let comments: Vec<(usize, Kind, &str)> =
            source.comments.iter().map(|own| (own.line, own.kind, own.text.as_str())).collect();
        assert_eq!(comments, [(1, Kind::Plain, " yes"), (2, Kind::Outer, " Doc.")]);
        let strings: Vec<&str> = source.strings.iter().map(|own| own.text.as_str()).collect();
        assert_eq!(strings, ["// no \\\" comment", "x\"y"]);
        assert!(!source.code.contains("comment") && source.code.contains("fn f<'a>(c: char)"));
        assert_eq!(source.code.lines().count(), text.lines().count());
    }

    #[test]
    fn characters_hide_their_quotes_and_braces() {
        let source = Source::parse("match c { '\"' => '{', '\\'' => '}', '\\u{7f}' => 'ä', _ => 'x' }\n");
        assert_eq!(source.code.matches('{').count(), 1, "{}", source.code);
        assert_eq!(source.code.matches('}').count(), 1, "{}", source.code);
        assert!(source.strings.is_empty());
    }

    #[test]
    fn a_string_over_two_lines_is_one_text() {
        let source = Source::parse("let a = \"one \\\n         two\";\n// after\n");
        assert_eq!(source.strings[0].text, "one two");
        assert_eq!(source.comments[0].line, 3);
    }

    #[test]
    fn modules_of_tests_are_ranges_of_lines() {
        let source =
            Source::parse("fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() { {} }\n}\nfn h() {}\n");
        assert_eq!(source.test_lines(), [(3, 6)]);
    }
}
