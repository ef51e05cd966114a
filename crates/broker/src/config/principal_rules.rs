//! The identity of a client certificate: Kafka's `ssl.principal.mapping.rules`.

use regex_lite::Regex;

/// Rules that turn the subject of a certificate into a name; the first that matches counts.
#[derive(Clone, Debug)]
pub struct PrincipalRules(Vec<Rule>);

#[derive(Clone, Debug)]
enum Rule {
    /// The subject itself.
    Default,
    Replace {
        pattern: Regex,
        replacement: String,
        case: Case,
    },
}

#[derive(Clone, Copy, Debug)]
enum Case {
    Same,
    Lower,
    Upper,
}

impl Default for PrincipalRules {
    fn default() -> Self {
        Self(vec![Rule::Default])
    }
}

impl PrincipalRules {
    /// Parses rules such as `RULE:^CN=(.*?),.*$/$1/L, DEFAULT`.
    ///
    /// # Errors
    /// A sentence that names the rule.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (rule, after) = Self::parse_one(rest)?;
            rules.push(rule);
            rest = match after.trim_start() {
                "" => "",
                after => after
                    .strip_prefix(',')
                    .ok_or_else(|| format!("`{after}` follows a rule: expected a comma"))?
                    .trim_start(),
            };
        }
        Ok(if rules.is_empty() { Self::default() } else { Self(rules) })
    }

    fn parse_one(text: &str) -> Result<(Rule, &str), String> {
        if let Some(rest) = text.strip_prefix("DEFAULT") {
            return Ok((Rule::Default, rest));
        }
        let bad = || format!("`{text}` is no rule: expected DEFAULT or RULE:pattern/replacement/[LU]");
        let rest = text.strip_prefix("RULE:").ok_or_else(bad)?;
        let (pattern, rest) = until_slash(rest).ok_or_else(bad)?;
        let (replacement, rest) = until_slash(rest).ok_or_else(bad)?;
        let (case, rest) = match rest.as_bytes().first() {
            Some(b'L') => (Case::Lower, &rest[1..]),
            Some(b'U') => (Case::Upper, &rest[1..]),
            _ => (Case::Same, rest),
        };
        // Java's pattern must match the whole subject.
        let pattern =
            Regex::new(&format!("^(?:{pattern})$")).map_err(|error| format!("`{pattern}`: {error}"))?;
        let groups = pattern.captures_len();
        Ok((Rule::Replace { pattern, replacement: with_braces(&replacement, groups), case }, rest))
    }

    /// The name of this subject; `None` if no rule matches, in which case the client is refused.
    pub(crate) fn name_of(&self, subject: &str) -> Option<String> {
        self.0.iter().find_map(|rule| match rule {
            Rule::Default => Some(subject.to_owned()),
            Rule::Replace { pattern, replacement, case } => pattern.is_match(subject).then(|| {
                let name = pattern.replace(subject, replacement.as_str());
                match case {
                    Case::Same => name.into_owned(),
                    Case::Lower => name.to_lowercase(),
                    Case::Upper => name.to_uppercase(),
                }
            }),
        })
    }
}

/// The text before the next `/`, without the backslash of each `\/`, and the text after it.
fn until_slash(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '/' => return Some((part, &text[at + 1..])),
            '\\' => match chars.next()? {
                (_, '/') => part.push('/'),
                (_, escaped) => part.extend(['\\', escaped]),
            },
            c => part.push(c),
        }
    }
    None
}

/// Writes Java's `$1` as `${1}`: what follows the number belongs to the text. The number has as many digits as name one of `groups`,
/// which include the whole subject; without such a group, `$1` is text. So is the character after a backslash, as in Java.
fn with_braces(replacement: &str, groups: usize) -> String {
    let mut text = String::new();
    let mut rest = replacement;
    while let Some(at) = rest.find(['$', '\\']) {
        let after = &rest[at + 1..];
        text.push_str(&rest[..at]);
        if rest[at..].starts_with('\\') {
            let mut chars = after.chars();
            match chars.next() {
                Some('$') => text.push_str("$$"),
                escaped => text.extend(escaped),
            }
            rest = chars.as_str();
            continue;
        }
        let written = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let is_group = |digits: &usize| after[..*digits].parse().is_ok_and(|group: usize| group < groups);
        let digits = (1..=written).take_while(is_group).last().unwrap_or(0);
        match digits {
            0 => text.push_str("$$"),
            digits => {
                text.push_str("${");
                text.push_str(&after[..digits]);
                text.push('}');
            }
        }
        rest = &after[digits..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_name(rules: &str, subject: &str, expected: Option<&str>) {
        let rules = PrincipalRules::parse(rules).expect("rules");
        assert_eq!(rules.name_of(subject).as_deref(), expected, "{rules:?} {subject}");
    }

    #[test]
    fn the_first_rule_that_matches_names_the_client() {
        let rules = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=.*$/$1@$2/L, \
                     RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT";
        assert_name(rules, "CN=kafka-server1,OU=ServiceUsers,O=Org", Some("kafka-server1"));
        assert_name(rules, "CN=kafka1,OU=SME,O=Org", Some("kafka1@sme"));
        assert_name(rules, "cn=kafka2,DC=ldap,DC=com", Some("KAFKA2"));
        assert_name(rules, "O=Org", Some("O=Org"));
        assert_name("", "CN=a", Some("CN=a"));
        assert_name("RULE:^CN=(.*)$/$1x/", "CN=a", Some("ax"));
        assert_name("RULE:^CN=(.*)$/$1/", "O=a", None);
        // As in Java, the longest number of a group that there is.
        assert_name("RULE:^CN=(.*)$/$12/", "CN=a", Some("a2"));
        assert_name("RULE:^CN=(.*)$/$4$1$/", "CN=a", Some("$4a$"));
        assert_name(r"RULE:^CN=a\/(.*)$/\/$1/", "CN=a/b", Some("/b"));
    }

    /// The backslash was a part of the name, and no rule of an ACL applied to the client.
    #[test]
    fn a_backslash_in_a_replacement_makes_the_next_character_text() {
        assert_name(r"RULE:^CN=(.*)$/$1\@org/", "CN=a", Some("a@org"));
        assert_name(r"RULE:^CN=(.*)$/\$1=$1/", "CN=a", Some("$1=a"));
        assert_name(r"RULE:^CN=(.*)$/org\\$1/", "CN=a", Some(r"org\a"));
    }

    #[test]
    fn rules_that_cannot_be_read_are_refused() {
        for bad in ["RULE:^CN", "RULE:^CN=(.*)$/$1", "OTHER", "RULE:(/x/", "DEFAULT DEFAULT"] {
            assert!(PrincipalRules::parse(bad).is_err(), "{bad}");
        }
    }
}
