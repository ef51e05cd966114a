//! `NAME[:PARTITIONS]`.

use std::str::FromStr;

use crate::topic_args::topic_name;

/// A topic, and optionally its number of partitions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TopicSpec {
    pub(crate) name: String,
    pub(crate) partitions: Option<i32>,
}

impl FromStr for TopicSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Topic names cannot contain colons, so the first colon is the separator.
        let (name, partitions) = match text.split_once(':') {
            None => (text, None),
            Some((name, count)) => {
                let count = count.parse().ok().filter(|count| *count >= 1);
                let refuse = || {
                    format!(
                        "`{text}`: the number of partitions must be from 1 to {}, as in `orders:3`",
                        i32::MAX
                    )
                };
                (name, Some(count.ok_or_else(refuse)?))
            }
        };
        Ok(Self { name: topic_name(name)?, partitions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_comes_with_or_without_its_partitions() {
        let spec = |name: &str, partitions| Ok(TopicSpec { name: name.into(), partitions });
        assert_eq!("orders".parse(), spec("orders", None));
        assert_eq!("orders:12".parse(), spec("orders", Some(12)));
        for count in ["0", "-1", "99999999999"] {
            let refused = format!("orders:{count}").parse::<TopicSpec>().expect_err("no such number");
            assert!(refused.contains(&format!("`orders:{count}`: ")), "{refused}");
            assert!(refused.contains("from 1 to 2147483647"), "{refused}");
        }
        for text in ["", ":3", "orders:", "orders:0", "orders:-1", "orders:x", "a:1:2", "a b", ".."] {
            assert!(text.parse::<TopicSpec>().is_err(), "{text}");
        }
    }
}
