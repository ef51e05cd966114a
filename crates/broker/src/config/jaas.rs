//! `sasl.jaas.config`: the name of a login module and its options. Kafka reads it by Java's rules for texts in quotes and comments.

use std::iter::Peekable;
use std::str::Chars;

use super::Password;

/// The control flags of a login module. They make no difference for the only module of a listener.
const FLAGS: [&str; 4] = ["required", "requisite", "sufficient", "optional"];

/// The options of `MODULE FLAG NAME="VALUE" ...;`, for a module whose name ends with `module`. None for an empty text.
pub(super) fn options(property: &str, text: &str, module: &str) -> Result<Vec<(String, Password)>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    options_of(text, module).map_err(|problem| format!("{property}: {problem}"))
}

/// The problems name no option and no value: behind a wrong quote, both may be parts of a password.
fn options_of(text: &str, module: &str) -> Result<Vec<(String, Password)>, String> {
    let mut tokens = Tokens(text.chars().peekable());
    match tokens.token()? {
        Some(Token::Text(found)) if found.ends_with(module) => {}
        Some(Token::Text(found)) => return Err(format!("`{found}` is no {module}")),
        Some(Token::Mark(_)) | None => return Err(format!("the name of the {module} is missing")),
    }
    match tokens.token()? {
        Some(Token::Text(flag)) if FLAGS.iter().any(|known| flag.eq_ignore_ascii_case(known)) => {}
        _ => return Err(format!("behind the name of the {module}, `required` is missing")),
    }
    let mut options: Vec<(String, Password)> = Vec::new();
    loop {
        let name = match tokens.token()? {
            Some(Token::Text(name)) => name,
            Some(Token::Mark(';')) => break,
            Some(Token::Mark(_)) => return Err("`=` without the name of an option".to_owned()),
            None => return Err("`;` is missing at the end".to_owned()),
        };
        let is_assigned = matches!(tokens.token()?, Some(Token::Mark('=')));
        let value = if is_assigned { tokens.token()? } else { None };
        let Some(Token::Text(value)) = value else {
            return Err("an option has no value: expected NAME=\"VALUE\"".to_owned());
        };
        // As in Kafka, the last one counts.
        options.retain(|(known, _)| *known != name);
        options.push((name, value.into()));
    }
    match tokens.token()? {
        None => Ok(options),
        Some(_) => Err("there is text behind `;`: a listener has one login module".to_owned()),
    }
}

enum Token {
    /// A word, or a text in quotes.
    Text(String),
    /// `=` or `;`
    Mark(char),
}

/// The text that is not read yet.
struct Tokens<'a>(Peekable<Chars<'a>>);

impl Tokens<'_> {
    fn token(&mut self) -> Result<Option<Token>, String> {
        loop {
            let Some(c) = self.0.next() else { return Ok(None) };
            match c {
                '/' => self.skip_comment(),
                '"' | '\'' => return self.quoted(c).map(|text| Some(Token::Text(text))),
                '=' | ';' => return Ok(Some(Token::Mark(c))),
                c if c <= ' ' => {}
                c => return Ok(Some(Token::Text(self.word(c)))),
            }
        }
    }

    /// Skips the rest of a comment behind its first slash: to the end of the line, or up to `*/` if it begins with `/*`.
    fn skip_comment(&mut self) {
        if self.0.next_if_eq(&'*').is_none() {
            while self.0.next().is_some_and(|c| c != '\n' && c != '\r') {}
            return;
        }
        let mut before = ' ';
        for c in self.0.by_ref() {
            if before == '*' && c == '/' {
                return;
            }
            before = c;
        }
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(c) = self.0.next_if(|c| *c > ' ' && !['=', ';', '/', '"', '\''].contains(c)) {
            word.push(c);
        }
        word
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let no_end = || "a text in quotes has no end".to_owned();
        let mut text = String::new();
        loop {
            match self.0.next().ok_or_else(no_end)? {
                c if c == quote => return Ok(text),
                '\n' | '\r' => return Err(no_end()),
                '\\' => text.push(self.escaped().ok_or_else(no_end)?),
                c => text.push(c),
            }
        }
    }

    /// The character that a backslash and the next characters stand for.
    fn escaped(&mut self) -> Option<char> {
        Some(match self.0.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            digit @ '0'..='7' => self.octal(digit),
            other => other,
        })
    }

    /// The character of an octal number, which is 377 at most.
    fn octal(&mut self, first: char) -> char {
        let more_max = if first <= '3' { 2 } else { 1 };
        let mut code = first.to_digit(8).unwrap_or_default();
        for _ in 0..more_max {
            let Some(digit) = self.0.next_if(|c| c.is_digit(8)) else { break };
            code = code * 8 + digit.to_digit(8).unwrap_or_default();
        }
        char::from_u32(code).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Result<Vec<(String, String)>, String> {
        let exposed = |(name, value): (String, Password)| (name, value.expose().to_owned());
        Ok(options("jaas", text, "PlainLoginModule")?.into_iter().map(exposed).collect())
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Users in comments could log in, and single quotes belonged to the password.
    #[test]
    fn comments_hold_no_users_and_both_quotes_enclose_passwords() {
        let alice = Ok(pairs(&[("user_alice", "it is me")]));
        for text in [
            "PlainLoginModule required user_alice='it is me' /* user_bob=\"old\" */;",
            "PlainLoginModule required // user_bob=\"old\";\n user_alice=\"it is me\";",
            "PlainLoginModule required / user_bob=\"old\";\r user_alice=\"it is me\";",
            "/* the users */ a.b.PlainLoginModule REQUIRED user_alice = 'it is me'; // user_bob=\"old\"",
            "PlainLoginModule required user_alice=old user_alice='it is me' /*/ user_bob=old */ ;",
        ] {
            assert_eq!(plain(text), alice, "{text}");
        }
        let quotes =
            plain(r#"PlainLoginModule required a="it's" b='say "no"' c="/* \" */" d="\x\n\101\7" e=x;"#);
        let expected =
            [("a", "it's"), ("b", "say \"no\""), ("c", "/* \" */"), ("d", "x\nA\u{7}"), ("e", "x")];
        assert_eq!(quotes, Ok(pairs(&expected)));
        assert_eq!(plain(" "), Ok(Vec::new()));
    }

    /// Most of them were accepted, with the options up to there.
    #[test]
    fn an_unfinished_text_is_refused_without_its_passwords() {
        for (text, problem) in [
            ("ScramLoginModule required;", "`ScramLoginModule` is no PlainLoginModule"),
            ("/* PlainLoginModule required; */", "the name of the PlainLoginModule is missing"),
            ("PlainLoginModule user_alice=\"hunter2\";", "`required` is missing"),
            ("PlainLoginModule required user_alice=\"hunter2\"", "`;` is missing"),
            ("PlainLoginModule required user_alice=\"hunter2\"; user_bob=\"hunter2\";", "text behind `;`"),
            ("PlainLoginModule required user_alice;", "no value"),
            ("PlainLoginModule required user_alice=;", "no value"),
            ("PlainLoginModule required user_alice=\"x\"hunter2;", "no value"),
            ("PlainLoginModule required =\"hunter2\";", "without the name"),
            ("PlainLoginModule required user_alice=\"hunter2;", "no end"),
        ] {
            let error = plain(text).expect_err(text);
            assert!(error.contains(problem) && !error.contains("hunter2"), "{error}");
        }
    }
}
