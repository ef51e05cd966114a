//! A service in this process in place of AWS's.

use std::collections::BTreeMap;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::net::connector::Connecting;

const NOW_MS: i64 = 1_440_938_160_000;
const ROLE: &str = r#"{"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "horse", "Token": "of the role"}"#;

/// Answers requests by the beginning of their first line, and remembers them.
#[derive(Default)]
struct Service {
    answers: BTreeMap<&'static str, String>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn of(answers: &[(&'static str, &str)]) -> Arc<Self> {
        let answers = answers.iter().map(|(line, answer)| (*line, (*answer).to_owned())).collect();
        Arc::new(Self { answers, asked: Arc::default() })
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("no panic"))
    }
}

impl Connector for Service {
    fn connect<'a>(&'a self, _host: &'a str, _port: u16) -> Connecting<'a> {
        let (io, mut peer) = tokio::io::duplex(1 << 16);
        let (answers, asked) = (self.answers.clone(), self.asked.clone());
        tokio::spawn(async move {
            let mut request = String::new();
            let mut buffer = [0; 4096];
            while !is_whole(&request) {
                let read = peer.read(&mut buffer).await.expect("read");
                assert_ne!(read, 0, "{request}");
                request.push_str(std::str::from_utf8(&buffer[..read]).expect("a text"));
            }
            let found = answers.iter().rev().find(|(line, _)| request.starts_with(**line));
            let answer = found.map_or("404", |(_, answer)| answer);
            let (status, body) = if answer.len() == 3 { (answer, "") } else { ("200", answer) };
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            asked.lock().expect("no panic").push(request);
            peer.write_all(answer.as_bytes()).await.expect("written");
        });
        Box::pin(async move { Ok(Box::new(io) as _) })
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.to_lowercase();
    let length =
        length.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn jwt() -> String {
    let payload = URL_SAFE_NO_PAD.encode(br#"{"sub": "arn:aws:iam::1:role/orders", "exp": 1440938460}"#);
    format!("e30.{payload}.c2ln")
}

fn answer() -> String {
    let token = jwt();
    format!(
        "<GetWebIdentityTokenResponse><GetWebIdentityTokenResult><WebIdentityToken>{token}</WebIdentityToken>\
         </GetWebIdentityTokenResult></GetWebIdentityTokenResponse>"
    )
}

fn tokens(service: &Arc<Service>, variables: &[(&str, &str)]) -> AwsTokens {
    let config = "region=eu-west-1,audience=https://kafka.test/a,duration_seconds=900,tag_team=pay ments";
    let settings = AwsIam::parse(config).expect("valid");
    let mut tokens = AwsTokens::new(
        settings,
        service.clone(),
        service.clone(),
        "sub".into(),
        vec![("a".into(), "b".into())],
    );
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    tokens.chain.environment = Arc::new(move |name| variables.get(name).cloned());
    tokens
}

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "horse")];

#[tokio::test]
async fn sts_gets_a_signed_request_and_its_token_is_taken() {
    let service = Service::of(&[("POST / ", &answer())]);
    let token = tokens(&service, &KEYS).token(NOW_MS).await.expect("a token");
    assert_eq!((token.value.expose(), token.expires_at_ms), (&*jwt(), NOW_MS + 300_000));
    assert_eq!((token.principal.as_str(), token.extensions.len()), ("arn:aws:iam::1:role/orders", 1));
    let asked = &service.asked()[0];
    let (head, body) = asked.split_once("\r\n\r\n").expect("a request");
    assert_eq!(
        body,
        "Action=GetWebIdentityToken&Version=2011-06-15&Audience.member.1=https%3A%2F%2Fkafka.test%2Fa&\
         SigningAlgorithm=ES384&DurationSeconds=900&Tags.member.1.Key=team&Tags.member.1.Value=pay%20ments"
    );
    // botocore's signature of the same request.
    for part in [
        "host: sts.eu-west-1.amazonaws.com\r\n",
        "x-amz-date: 20150830T123600Z\r\n",
        "Credential=AKIDEXAMPLE/20150830/eu-west-1/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date, \
         Signature=00e66df895f9dea4e5d7e7999413f25b49e6e5ef024585bd9a8b09e3e7709002",
    ] {
        assert!(head.contains(part), "`{part}` is missing in {head}");
    }
    assert!(!asked.contains("horse"), "{asked}");
}

#[tokio::test]
async fn credentials_come_from_the_first_place_that_has_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, "of kubernetes\n").expect("written");
    let file = file.to_str().expect("a name");
    let role = [("AWS_WEB_IDENTITY_TOKEN_FILE", file), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x")];
    let agent = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file),
    ];
    let relative = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1")];
    let token = answer();
    let both = format!(
        "<Credentials><AccessKeyId>AKIDEXAMPLE</AccessKeyId><SecretAccessKey>horse</SecretAccessKey>\
         <SessionToken>of the role</SessionToken></Credentials>{token}"
    );
    let of = "meta-data/iam/security-credentials/";
    let (roles, machine) = (format!("GET /latest/{of} "), format!("GET /latest/{of}orders "));
    let (roles, machine): (&'static str, &'static str) = (roles.leak(), machine.leak());
    let answers: [(&'static str, &str); 6] = [
        ("POST / ", &both),
        ("GET /v1/credentials ", ROLE),
        ("GET /v2/credentials/1 ", ROLE),
        ("PUT /latest/api/token ", "of the session"),
        (roles, "orders\n"),
        (machine, ROLE),
    ];
    for (variables, parts) in [
        (&role[..], &["WebIdentityToken=of%20kubernetes", "RoleSessionName=ottla&"][..]),
        (&agent, &["authorization: of kubernetes\r\n"]),
        (&relative, &["host: 169.254.170.2:80\r\n"]),
        (&[], &["x-aws-ec2-metadata-token: of the session\r\n", "x-aws-ec2-metadata-token-ttl-seconds: "]),
    ] {
        let service = Service::of(&answers);
        let token = tokens(&service, variables).token(NOW_MS).await;
        assert_eq!(token.expect("a token").principal, "arn:aws:iam::1:role/orders", "{variables:?}");
        let asked = service.asked().concat();
        for part in parts.iter().chain(&["x-amz-security-token: of the role\r\n"]) {
            assert!(asked.to_lowercase().contains(&part.to_lowercase()), "`{part}` is missing in {asked}");
        }
    }
}

#[tokio::test]
async fn a_refusal_has_awss_words_and_no_secret() {
    let refused = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not allowed</Message></Error></ErrorResponse>";
    let disabled = [("AWS_EC2_METADATA_DISABLED", "true")];
    let elsewhere = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.test/")];
    let no_file = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token"), ("AWS_ROLE_ARN", "arn")];
    for (variables, body, part) in [
        (&KEYS[..], refused, "the answer holds no WebIdentityToken"),
        (&KEYS, "404", "404 Not Found"),
        (&disabled, "", "AWS_EC2_METADATA_DISABLED is true"),
        (&elsewhere, "", "http is allowed for this machine"),
        (&no_file, "", "AWS_WEB_IDENTITY_TOKEN_FILE: /nowhere/token"),
        (&[], "", "no AWS credentials: set AWS_ACCESS_KEY_ID"),
    ] {
        let service = Service::of(&[("POST / ", body)]);
        let error = tokens(&service, variables).token(NOW_MS).await.expect_err("refused");
        assert!(error.contains(part) && error.starts_with("AWS STS at sts.eu-west-1"), "{error}");
        assert!(!error.contains("horse"), "{error}");
    }
    assert_eq!(failure(StatusCode::FORBIDDEN, refused), "403 Forbidden: AccessDenied: not allowed");
}
