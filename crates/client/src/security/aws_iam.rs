//! The parameters of `sasl.oauthbearer.metadata.authentication.type=aws_iam` in `sasl.oauthbearer.config`, with the names of the
//! extension `oauthbearer-aws` of confluent-kafka-python.

use std::net::IpAddr;

use super::token_endpoint::TokenEndpoint;
use crate::error::Error;

/// The life of a token in seconds: AWS's default, and its limits.
const DURATION_DEFAULT: u32 = 300;
const DURATIONS: std::ops::RangeInclusive<u32> = 60..=3600;
/// The algorithms with which AWS signs tokens; the first is the default.
const ALGORITHMS: [&str; 2] = ["ES384", "RS256"];
const KNOWN: &str = "region, audience, duration_seconds, signing_algorithm, sts_endpoint, tag_NAME";

/// A request for tokens to AWS's Security Token Service (STS).
#[derive(Debug)]
pub(crate) struct AwsIam {
    pub(crate) region: String,
    pub(crate) audience: String,
    pub(crate) duration_seconds: u32,
    pub(crate) signing_algorithm: String,
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) endpoint: TokenEndpoint,
}

impl AwsIam {
    /// Parses `NAME=VALUE` pairs with commas between them; `region` and `audience` are required.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let (mut region, mut audience, mut endpoint) = (String::new(), String::new(), String::new());
        let (mut signing_algorithm, mut duration_seconds) = (ALGORITHMS[0].to_owned(), DURATION_DEFAULT);
        let mut tags = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| refusal(&format!("`{pair}`: expected NAME=VALUE")))?;
            match name {
                "region" => value.clone_into(&mut region),
                "audience" => value.clone_into(&mut audience),
                "sts_endpoint" => value.clone_into(&mut endpoint),
                "signing_algorithm" => value.clone_into(&mut signing_algorithm),
                "duration_seconds" => {
                    let seconds = value.parse().ok().filter(|seconds| DURATIONS.contains(seconds));
                    duration_seconds = seconds.ok_or_else(|| {
                        refusal(&format!("duration_seconds: `{value}` is not a number from 60 to 3600"))
                    })?;
                }
                // A log of the AWS SDK, which this client does not use.
                "aws_debug" => {}
                _ => match name.strip_prefix("tag_") {
                    Some(tag) if !tag.is_empty() => tags.push((tag.to_owned(), value.to_owned())),
                    _ => return Err(refusal(&format!("`{name}` is unknown: there are {KNOWN}"))),
                },
            }
        }
        let is_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if region.is_empty() || !region.bytes().all(is_region) {
            return Err(refusal(&format!("region: `{region}` is not a region, for example us-east-1")));
        }
        if audience.is_empty() {
            return Err(refusal("audience is missing: the value that the broker expects in `aud`"));
        }
        if !ALGORITHMS.contains(&signing_algorithm.as_str()) {
            return Err(refusal(&format!("signing_algorithm: `{signing_algorithm}` is not ES384 or RS256")));
        }
        if endpoint.is_empty() {
            let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
            endpoint = format!("https://sts.{region}.{domain}");
        }
        let endpoint = TokenEndpoint::parse_any(&endpoint)?;
        // A test on the same machine needs no certificate.
        let is_local = endpoint.host == "localhost"
            || endpoint.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !endpoint.is_tls && !is_local {
            return Err(refusal("sts_endpoint must be https: the token for the broker comes from there"));
        }
        Ok(Self { region, audience, duration_seconds, signing_algorithm, tags, endpoint })
    }
}

fn refusal(reason: &str) -> Error {
    Error::Config(format!(
        "sasl.oauthbearer.config: {reason} (sasl.oauthbearer.metadata.authentication.type=aws_iam)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_have_awss_defaults() {
        let aws = AwsIam::parse("region=us-east-1, audience=https://x.test/?a=b").expect("valid");
        assert_eq!((aws.audience.as_str(), aws.duration_seconds), ("https://x.test/?a=b", 300));
        assert_eq!((aws.signing_algorithm.as_str(), aws.endpoint.port), ("ES384", 443));
        assert_eq!(aws.endpoint.host, "sts.us-east-1.amazonaws.com");
        let aws = AwsIam::parse("region=cn-north-1,audience=a,tag_team=payments,duration_seconds=60")
            .expect("valid");
        assert_eq!(aws.endpoint.host, "sts.cn-north-1.amazonaws.com.cn");
        assert_eq!(aws.tags, [("team".to_owned(), "payments".to_owned())]);
    }

    #[test]
    fn a_parameter_that_aws_would_refuse_is_refused_with_its_name() {
        for (text, part) in [
            ("", "region: ``"),
            ("region=us east,audience=a", "region: `us east`"),
            ("region=us-east-1", "audience is missing"),
            ("region=us-east-1,audience=a,duration_seconds=3601", "`3601` is not a number from 60 to 3600"),
            ("region=us-east-1,audience=a,signing_algorithm=HS256", "not ES384 or RS256"),
            ("region=us-east-1,audience=a,profile=x", "`profile` is unknown"),
            ("region=us-east-1,audience=a,sts_endpoint=sts.test", "must be http or https"),
            ("region=us-east-1,audience=a,sts_endpoint=http://sts.test", "sts_endpoint must be https"),
            ("region", "expected NAME=VALUE"),
        ] {
            let error = AwsIam::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
