//! RE2's syntax, as far as `regex-lite` does not have it: `\Q..\E`, `\p{Name}`, `\P{Name}` and `\pN`.
//!
//! Names of topics have letters, digits, `.`, `_` and `-` of ASCII only. Of each class of Unicode, its characters of ASCII are enough.

use std::fmt::Write as _;

/// The characters of ASCII in the general categories of Unicode that have some, as ranges.
const CATEGORIES: [(&str, &[(char, char)]); 20] = [
    ("Any", &[('\0', '\u{7f}')]),
    ("C", CONTROLS),
    ("Cc", CONTROLS),
    ("L", LETTERS),
    ("Ll", &[('a', 'z')]),
    ("Lu", &[('A', 'Z')]),
    ("N", DIGITS),
    ("Nd", DIGITS),
    (
        "P",
        &[
            ('!', '#'),
            ('%', '*'),
            (',', '/'),
            (':', ';'),
            ('?', '@'),
            ('[', ']'),
            ('_', '_'),
            ('{', '{'),
            ('}', '}'),
        ],
    ),
    ("Pc", &[('_', '_')]),
    ("Pd", &[('-', '-')]),
    ("Pe", &[(')', ')'), (']', ']'), ('}', '}')]),
    (
        "Po",
        &[('!', '#'), ('%', '\''), ('*', '*'), (',', ','), ('.', '/'), (':', ';'), ('?', '@'), ('\\', '\\')],
    ),
    ("Ps", &[('(', '('), ('[', '['), ('{', '{')]),
    ("S", &[('$', '$'), ('+', '+'), ('<', '>'), ('^', '^'), ('`', '`'), ('|', '|'), ('~', '~')]),
    ("Sc", &[('$', '$')]),
    ("Sk", &[('^', '^'), ('`', '`')]),
    ("Sm", &[('+', '+'), ('<', '>'), ('|', '|'), ('~', '~')]),
    ("Z", &[(' ', ' ')]),
    ("Zs", &[(' ', ' ')]),
];
const CONTROLS: &[(char, char)] = &[('\0', '\u{1f}'), ('\u{7f}', '\u{7f}')];
const LETTERS: &[(char, char)] = &[('A', 'Z'), ('a', 'z')];
const DIGITS: &[(char, char)] = &[('0', '9')];
/// The script `Common`: all that is no letter.
const COMMON: &[(char, char)] = &[('\0', '@'), ('[', '`'), ('{', '\u{7f}')];

/// The general categories and scripts of RE2 (re2j 1.8) without a character of ASCII.
const WITHOUT_ASCII: &str = "Cf Co Cs Lm Lo Lt M Mc Me Mn Nl No Pf Pi So Zl Zp \
    Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Chakma \
    Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic \
    Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi \
    Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Lepcha Limbu Linear_B Lisu Lycian Lydian \
    Malayalam Mandaic Meetei_Mayek Meroitic_Cursive Meroitic_Hieroglyphs Miao Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki \
    Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Sharada \
    Shavian Sinhala Sora_Sompeng Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Telugu Thaana \
    Thai Tibetan Tifinagh Ugaritic Vai Yi";

/// Writes a pattern of RE2 in the syntax of `regex-lite`.
///
/// # Errors
/// A sentence that says why.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut output = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut is_in_class = false;
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        if let Some(quoted) = rest.strip_prefix(r"\Q").filter(|_| !is_in_class) {
            let end = quoted.find(r"\E");
            output.push_str(&regex_lite::escape(&quoted[..end.unwrap_or(quoted.len())]));
            taken = end.map_or(rest.len(), |end| end + 4);
        } else if let Some(class) = rest.strip_prefix(r"\p").or_else(|| rest.strip_prefix(r"\P")) {
            let (name, name_bytes) = class_name(class)?;
            let name_negated = name.strip_prefix('^');
            let is_negated = rest.starts_with(r"\P") != name_negated.is_some();
            push_class(&mut output, characters(name_negated.unwrap_or(name))?, is_negated, is_in_class);
            taken = 2 + name_bytes;
        } else if first == '\\' {
            taken += rest[1..].chars().next().map_or(0, char::len_utf8);
            output.push_str(&rest[..taken]);
        } else if is_in_class && rest.starts_with("[:") {
            // A named class, such as `[:alpha:]`.
            taken = rest.find(":]").map_or(taken, |end| end + 2);
            output.push_str(&rest[..taken]);
        } else if first == '[' && !is_in_class {
            is_in_class = true;
            // A bracket at the beginning is a character.
            taken += rest[taken..].bytes().take_while(|byte| *byte == b'^').take(1).count();
            taken += usize::from(rest[taken..].starts_with(']'));
            output.push_str(&rest[..taken]);
        } else {
            is_in_class &= first != ']';
            output.push(first);
        }
        rest = &rest[taken..];
    }
    Ok(output)
}

/// Returns the name at the beginning, and the bytes of it with its braces.
fn class_name(text: &str) -> Result<(&str, usize), String> {
    let name = match text.strip_prefix('{') {
        Some(named) => named.split_once('}').map(|(name, _)| (name, name.len() + 2)),
        None => text.chars().next().map(|letter| (&text[..letter.len_utf8()], letter.len_utf8())),
    };
    name.ok_or_else(|| r"`\p` has no name".to_owned())
}

fn characters(name: &str) -> Result<&'static [(char, char)], String> {
    let found = CATEGORIES.iter().find(|(category, _)| *category == name).map(|(_, characters)| *characters);
    match (found, name) {
        (Some(characters), _) => Ok(characters),
        (None, "Latin") => Ok(LETTERS),
        (None, "Common") => Ok(COMMON),
        (None, name) if WITHOUT_ASCII.split_ascii_whitespace().any(|known| known == name) => Ok(&[]),
        (None, name) => Err(format!("`{name}` is no class of characters")),
    }
}

fn push_class(output: &mut String, characters: &[(char, char)], is_negated: bool, is_in_class: bool) {
    let mut ranges = characters.to_vec();
    if is_negated {
        ranges.clear();
        let mut next = 0;
        for (first, last) in characters {
            ranges.extend(between(next, *first as u32));
            next = *last as u32 + 1;
        }
        ranges.extend(between(next, char::MAX as u32 + 1));
    }
    if !is_in_class {
        // Without a character, it matches nothing.
        output.push_str(if ranges.is_empty() { r"[^\x00-\x{10ffff}" } else { "[" });
    }
    for (first, last) in ranges {
        push_character(output, first);
        output.push('-');
        push_character(output, last);
    }
    if !is_in_class {
        output.push(']');
    }
}

/// Letters as they are: with `(?i)`, `regex-lite` refuses a range with an escaped one.
fn push_character(output: &mut String, character: char) {
    if character.is_ascii_alphanumeric() {
        output.push(character);
    } else {
        let _ = write!(output, r"\x{{{:x}}}", character as u32);
    }
}

/// The range of characters from one up to another.
fn between(first: u32, end: u32) -> Option<(char, char)> {
    Some((char::from_u32(first)?, char::from_u32(end.checked_sub(1)?)?)).filter(|(first, last)| first <= last)
}

#[cfg(test)]
mod tests {
    use super::super::compile;

    #[test]
    fn quoted_text_and_classes_of_unicode_match_as_in_re2() {
        for (pattern, matching, others) in [
            (r"\Qa.b-(\E.*", &["a.b-(", "a.b-(x"][..], &["aXb-("][..]),
            (r"\Qa.b", &["a.b"], &["aXb"]),
            (r"\p{Lu}\p{L}+-\pN", &["Orders-1"], &["orders-1", "Orders-x"]),
            (r"[\p{L}.]+", &["a.b"], &["a-b", "1"]),
            (r"[^\p{L}]+", &["1-2"], &["a"]),
            (r"[\P{L}x]+", &["1x-"], &["ax"]),
            (r"\P{^Lu}", &["A"], &["a"]),
            (r"\p{P}", &[".", "-", "_"], &["a", "+"]),
            (r"\p{Greek}|\p{Latin}{2}", &["ab"], &["a", "1"]),
            (r"\p{Common}+", &["1.2"], &["a"]),
            (r"(?i)\p{Lu}", &["a", "A"], &["1"]),
            (r"[]\\[:digit:]]+", &["]1\\"], &["a"]),
            (r"\\p{1}", &["\\p"], &["p"]),
        ] {
            let compiled = compile(pattern).unwrap_or_else(|error| panic!("{error}"));
            assert!(matching.iter().all(|text| compiled.is_match(text)), "{pattern} matches {matching:?}");
            assert!(
                !others.iter().any(|text| compiled.is_match(text)),
                "{pattern} matches none of {others:?}"
            );
        }
        for bad in [r"\p{Klingon}", r"\p", r"\p{L", r"[\Qa\E]", r"\E", r"\"] {
            assert!(compile(bad).is_err(), "{bad}");
        }
    }
}
