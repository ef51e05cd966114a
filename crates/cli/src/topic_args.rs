//! Topics on the command line: positional, or with `-t` as in kcat.

use clap::Args;

/// Checks a topic name against Kafka's rules, without a request to a broker.
pub(crate) fn topic_name(text: &str) -> Result<String, String> {
    match ottla_client::check_topic_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(ottla_client::Error::Config(problem)) => Err(problem),
        Err(error) => Err(error.to_string()),
    }
}

/// The names of a subscription. A name that begins with `^` is a regular expression.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Subscription(pub(crate) Vec<String>);

/// Parses names that are separated by commas. A comma within the brackets of a regular expression does not end it.
pub(crate) fn subscription(text: &str) -> Result<Subscription, String> {
    let mut names: Vec<String> = Vec::new();
    for part in text.split(',') {
        match names.last_mut().filter(|name| name.starts_with('^') && has_open_bracket(name)) {
            Some(regex) => {
                regex.push(',');
                regex.push_str(part);
            }
            None if part.starts_with('^') => names.push(part.to_owned()),
            None => names.push(topic_name(part)?),
        }
    }
    Ok(Subscription(names))
}

fn has_open_bracket(regex: &str) -> bool {
    let mut open = 0_usize;
    let mut characters = regex.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '{' | '[' | '(' => open += 1,
            '}' | ']' | ')' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    open > 0
}

/// One topic.
#[derive(Args, Clone, Debug)]
#[group(id = "one_topic", required = true, multiple = false)]
pub(crate) struct TopicArg {
    /// The topic
    #[arg(value_name = "TOPIC", value_parser = topic_name)]
    positional: Option<String>,
    /// The topic, as in kcat
    #[arg(short, long, value_name = "TOPIC", value_parser = topic_name)]
    topic: Option<String>,
}

impl TopicArg {
    pub(crate) fn name(&self) -> &str {
        // clap requires one of them.
        self.positional.as_deref().or(self.topic.as_deref()).unwrap_or_default()
    }
}

/// One topic or more.
#[derive(Args, Clone, Debug)]
#[group(id = "topics", required = true, multiple = false)]
pub(crate) struct TopicArgs {
    /// The topics
    #[arg(value_name = "TOPIC", value_parser = topic_name)]
    positional: Vec<String>,
    /// A topic, as in kcat; may be repeated
    #[arg(short, long, value_name = "TOPIC", value_parser = topic_name)]
    topic: Vec<String>,
}

impl TopicArgs {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.positional.iter().chain(&self.topic).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text began with `configuration: `.
    #[test]
    fn a_wrong_name_is_explained() {
        let refused = topic_name("a b").expect_err("no name");
        assert!(refused.starts_with("the topic name `a b` has ' ' in it: "), "{refused}");
    }

    /// An expression was cut at its comma: `^a{1` matched nothing, and `3}` is no name.
    #[test]
    fn a_regular_expression_may_have_commas() {
        for (text, names) in [
            ("a,b", &["a", "b"][..]),
            ("^a{1,3}", &["^a{1,3}"]),
            ("a,^b{1,3}", &["a", "^b{1,3}"]),
            ("^a{1,3},^b", &["^a{1,3}", "^b"]),
            ("^a.*,b", &["^a.*", "b"]),
            ("^[a,b]c,d", &["^[a,b]c", "d"]),
            ("^a\\{,b", &["^a\\{", "b"]),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(subscription(text), Ok(Subscription(names)), "{text}");
        }
        assert!(subscription("a,b{1").is_err());
    }
}
