//! Topics on the command line: positional, or with `-t` as in kcat.

use clap::Args;

/// Checks a topic name against Kafka's rules, without a request to a broker.
pub(crate) fn topic_name(text: &str) -> Result<String, String> {
    match ottla_client::check_topic_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks a name for a subscription. A name that begins with `^` is a regular expression.
pub(crate) fn topic_or_regex(text: &str) -> Result<String, String> {
    if text.starts_with('^') { Ok(text.to_owned()) } else { topic_name(text) }
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
