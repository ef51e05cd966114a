//! Splits prose into sentences.

/// A sentence, a cell of a table or an item of a list.
#[derive(Debug, Clone)]
pub(super) struct Sentence {
    /// The line on which it begins.
    pub(super) line: usize,
    /// With single spaces.
    pub(super) text: String,
    /// Its words in lower case, without those in backticks.
    pub(super) words: Vec<String>,
    pub(super) is_heading: bool,
    /// Part of a comment that begins with `SAFETY:`.
    pub(super) in_safety: bool,
}

/// The sentences of a Markdown document.
pub(super) fn of_markdown(text: &str) -> Vec<Sentence> {
    of_text(text.lines().zip(1..).map(|(text, line)| (line, text)))
}

/// The sentences of lines that belong together; empty lines, items, headings, tables and code separate them.
pub(super) fn of_text<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut paragraph = Paragraph::default();
    let mut in_code = false;
    let pieces = lines.flat_map(|(line, text)| text.split('\n').map(move |text| (line, text)));
    for (line, text) in pieces {
        let text = text.trim();
        if text.starts_with("```") {
            in_code = !in_code;
            paragraph.end(&mut sentences);
        } else if in_code || text.is_empty() {
            paragraph.end(&mut sentences);
        } else if text.starts_with('#') && text.trim_start_matches('#').starts_with(' ') {
            paragraph.end(&mut sentences);
            paragraph.is_heading = true;
            paragraph.add(line, text.trim_start_matches('#').trim());
            paragraph.end(&mut sentences);
        } else if text.starts_with('|') {
            for cell in text.trim_matches('|').split(" | ") {
                paragraph.end(&mut sentences);
                paragraph.add(line, cell.trim());
            }
            paragraph.end(&mut sentences);
        } else if let Some(item) = list_item(text) {
            paragraph.end(&mut sentences);
            paragraph.add(line, item);
        } else {
            paragraph.add(line, text);
        }
    }
    paragraph.end(&mut sentences);
    sentences
}

/// The text of `- item`, `* item` and `1. item`.
fn list_item(text: &str) -> Option<&str> {
    let numbered = || {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        (rest.len() < text.len()).then(|| rest.strip_prefix(". ")).flatten()
    };
    text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")).or_else(numbered).map(str::trim_start)
}

#[derive(Default)]
struct Paragraph {
    text: String,
    /// The beginnings of lines: the offset in `text` and the number.
    lines: Vec<(usize, usize)>,
    is_heading: bool,
    in_safety: bool,
}

impl Paragraph {
    fn add(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.in_safety |= self.text.is_empty() && text.starts_with("SAFETY:");
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
    }

    fn end(&mut self, sentences: &mut Vec<Sentence>) {
        let masked = without_code(&self.text);
        let mut start = 0;
        for end in ends(&masked) {
            self.take(start, end, &masked, sentences);
            start = end;
        }
        self.take(start, self.text.len(), &masked, sentences);
        *self = Self::default();
    }

    fn take(&self, start: usize, end: usize, masked: &str, sentences: &mut Vec<Sentence>) {
        let marks: &[char] = &[' ', '*', '_', '(', '"'];
        let own = &self.text[start..end];
        let skipped = own.len() - own.trim_start_matches(marks).len();
        let text = own.trim().trim_start_matches(marks);
        if text.is_empty() {
            return;
        }
        let at = start + skipped;
        let line = self.lines.iter().rev().find(|(offset, _)| *offset <= at).map_or(0, |&(_, line)| line);
        let words = masked[start..end]
            .split(|c: char| !(c.is_alphanumeric() || c == '\''))
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        sentences.push(Sentence {
            line,
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            words,
            is_heading: self.is_heading,
            in_safety: self.in_safety,
        });
    }
}

/// The text with everything in backticks replaced, at the same length.
fn without_code(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut parts = text.split('`').peekable();
    let mut is_code = false;
    while let Some(part) = parts.next() {
        // The last backtick of an odd number opens nothing.
        if is_code && parts.peek().is_some() {
            masked.push_str(&"-".repeat(part.len()));
        } else {
            masked.push_str(part);
        }
        if parts.peek().is_some() {
            masked.push('`');
        }
        is_code = !is_code;
    }
    masked
}

/// The offsets behind the marks that end a sentence.
fn ends(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let is_end = |at: usize| {
        let next = bytes[at + 2..].iter().find(|byte| !b"*_(\"".contains(byte));
        bytes[at + 1] == b' ' && next.is_some_and(|next| next.is_ascii_uppercase() || *next == b'`')
    };
    (0..bytes.len().saturating_sub(2))
        .filter(|&at| matches!(bytes[at], b'.' | b'!' | b'?') && is_end(at))
        .map(|at| at + 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(usize, String)> {
        of_markdown(text).into_iter().map(|sentence| (sentence.line, sentence.text)).collect()
    }

    #[test]
    fn sentences_are_split_at_marks_items_cells_and_headings() {
        let text = "# Title\nOne goes\nover lines. `Two` follows.\n- Three\n| a | b |\n```\nCode. No.\n```\n1. Four\n";
        let expected = ["Title", "One goes over lines.", "`Two` follows.", "Three", "a", "b", "Four"];
        let found = texts(text);
        assert_eq!(found.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), expected);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 5, 9]);
    }

    #[test]
    fn words_in_backticks_are_no_words() {
        let sentences = of_markdown("Calls `told()` of it.\n");
        assert_eq!(sentences[0].words, ["calls", "of", "it"]);
    }
}
