//! Logins and pushed metrics, as a broker reads them.

use ottla_broker::fuzzing;
use ottla_wire::Compression;
use ottla_wire::compress::compress;

use crate::input::{Input, push_part};

/// A JWKS with the key of `TOKEN`, and one with an RSA key.
const JWKS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"1","alg":"ES256","use":"sig","x":"SEU2IZSTFdU3WZDRh51WzcymPHitU8uBaL07IM6PKYQ","y":"agIH0RDdJUARnEfcJ6qjs_sAXy-GC7S9O34CWT0m590"}]}"#;
const RSA_JWKS: &str = r#"{"keys":[{"kty":"RSA","kid":"2","n":"xdOAAx3NjDEeesmKhgAb89LM3hsuFikW3MhH_LgrLuGQpoYUqJF6gQ34540qBa7Y_omqz_5qi6D74TF0RvyObg427vd3jK8NBEtSGHGg4B4zFi0UFjYWWPO54bSLkprtxbtUwGxSYt4JSfr-goqCd89c6CG7kMWyL-qt60gD9pruy-YwWll4pRNmgMDMquaIMiSCPHttcH_Ujsr9QIljvYjlryuGsUr8Qmsxj8VuzgdVqErL7Wyq4ZAyb-QrF2mZ3ewrKKv-gRUpTjqAudAZx9t34F59Dw1K-LDlezhxEJFHaGhnhT8GWu0O-9gkHJURtFnGRfVY_aSrAUwUVQ6V6Q","e":"AQAB"}]}"#;
/// The claims `{"sub":"alice","iss":"https://issuer","aud":"kafka","iat":1700000000,"exp":1700003600}`, signed.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJhbGljZSIsImlzcyI6Imh0dHBzOi8vaXNzdWVyIiwiYXVkIjoia2Fma2EiLCJpYXQiOjE3MDAwMDAwMDAsImV4cCI6MTcwMDAwMzYwMH0.dyRRYu9Jkuw8OdhnTDLki7UkGaqTm0ZpAPeG0dTDyhZJq2havB-ATnK3xBZI8rmIBGg1rg8QPuVuPo022yJz7w";

/// The messages of a client in SCRAM, in a part each.
pub(crate) fn scram(input: &[u8]) {
    let mut input = Input::new(input);
    let first = input.part();
    fuzzing::scram(first, input.rest());
}

fn scram_seed(first: &str, proof: &str) -> Vec<u8> {
    let mut seed = Vec::new();
    push_part(&mut seed, first.as_bytes());
    seed.extend(proof.bytes());
    seed
}

pub(crate) fn scram_seeds() -> Vec<Vec<u8>> {
    let first = "n,,n=alice,r=abc";
    let mut seeds: Vec<_> =
        fuzzing::scram_proofs(first.as_bytes()).iter().map(|proof| scram_seed(first, proof)).collect();
    let escaped = "y,a=al=2Cice,n=al=2Cice,r=x,ext=1";
    seeds.push(scram_seed(escaped, &fuzzing::scram_proofs(escaped.as_bytes())[0]));
    seeds.push(scram_seed("n,,n=alice,r=abc,tokenauth=true", "c=biws,r=abc,p=AAAA"));
    seeds.push(scram_seed("p=tls-unique,,n=a=3D,r=b", ""));
    seeds
}

/// A message in OAUTHBEARER, at a broker with the key of a token.
pub(crate) fn oauth_token(input: &[u8]) {
    fuzzing::oauth_token(JWKS.as_bytes(), input);
    // The same bytes as a token.
    let message = [b"n,,\x01auth=Bearer ", input, b"\x01\x01"].concat();
    fuzzing::oauth_token(JWKS.as_bytes(), &message);
}

pub(crate) fn oauth_token_seeds() -> Vec<Vec<u8>> {
    let message = |header: &str| format!("{header}\x01auth=Bearer {TOKEN}\x01traceId=1\x01\x01");
    let texts = [
        message("n,,"),
        message("n,a=alice,"),
        message("n,a=bob,"),
        TOKEN.to_owned(),
        TOKEN.replace("eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ", "eyJhbGciOiJub25lIn0"),
        "n,,\x01auth=Basic x\x01\x01".to_owned(),
    ];
    texts.map(String::into_bytes).into()
}

/// The claims of a token as JSON, whose signature is right.
pub(crate) fn oauth_claims(input: &[u8]) {
    fuzzing::oauth_claims(JWKS.as_bytes(), input);
}

pub(crate) fn oauth_claims_seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"sub":"alice","iss":"https://issuer","aud":"kafka","iat":1700000000,"exp":1700003600}"#,
        r#"{"sub":" alice ","iss":"https://issuer","aud":["other","kafka"],"exp":1.7000036e9,"nbf":1600000000,"iat":1}"#,
        r#"{"sub":"","iss":"https://issuer","aud":"kafka","exp":1e400}"#,
        r#"{"sub":["alice"],"iss":{"a":1},"aud":[[]],"exp":-9e99}"#,
        "[[[[",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// A JWKS, with a token for its keys.
pub(crate) fn jwks(input: &[u8]) {
    fuzzing::oauth_token(input, format!("n,,\x01auth=Bearer {TOKEN}\x01\x01").as_bytes());
}

pub(crate) fn jwks_seeds() -> Vec<Vec<u8>> {
    let texts = [
        JWKS,
        RSA_JWKS,
        r#"{"keys":[{"kty":"oct","k":"AA"},{"kty":"EC","crv":"P-384","x":"AA==","y":"!"}]}"#,
        r#"{"keys":[{"kty":"RSA","n":"","e":""},{"kty":"EC","crv":"P-256","use":"enc","x":"AA","y":"AA"}]}"#,
        r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},{"kty":"RSA","n":"AAAA","e":"AQAB"}]}"#,
        r#"{"keys":{}}"#,
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// A codec, and the metrics that a client pushes with it.
pub(crate) fn pushed_metrics(input: &[u8]) {
    let mut input = Input::new(input);
    let codec = input.byte() as i8;
    fuzzing::pushed_metrics(codec, input.rest());
}

pub(crate) fn pushed_metrics_seeds() -> Vec<Vec<u8>> {
    let metrics = metrics();
    let codecs =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let mut seeds: Vec<Vec<u8>> = codecs.into_iter().map(|codec| pushed(codec, &metrics)).collect();
    // Much from little: the largest push, of empty metrics and of values without labels.
    for part in [field(2, &[]), field(5, &field(1, &[]))] {
        let mut many = part.repeat(500_000 / part.len());
        many = field(1, &field(2, &many));
        seeds.push(pushed(Compression::Zstd, &many));
    }
    seeds.push(pushed(Compression::Zstd, &vec![0; 2 << 20]));
    seeds
}

fn pushed(codec: Compression, metrics: &[u8]) -> Vec<u8> {
    let mut seed = vec![codec as u8];
    if codec == Compression::None {
        seed.extend(metrics);
    } else {
        compress(codec, None, metrics, &mut seed).expect("the default level");
    }
    seed
}

/// A gauge and a sum with labels, in OpenTelemetry's protobuf messages.
fn metrics() -> Vec<u8> {
    let label = |key: &str, value: Vec<u8>| [field(1, key.as_bytes()), field(2, &value)].concat();
    let text = label("group_id", field(1, b"billing"));
    let number = label("partition", vec![3 << 3, 17]);
    // Field 4 is a double, and field 6 an integer of eight bytes.
    let point =
        |tag: u8| [field(7, &text), field(7, &number), vec![tag << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8]].concat();
    let gauge = [field(1, b"org.apache.kafka.consumer.lag"), field(5, &field(1, &point(4)))].concat();
    let sum =
        [field(1, b"org.apache.kafka.records"), field(7, &[field(1, &point(6)), vec![3 << 3, 1]].concat())]
            .concat();
    let scope = [field(2, &gauge), field(2, &sum)].concat();
    field(1, &[field(1, &field(1, &text)), field(2, &scope)].concat())
}

/// A field of protobuf with a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = value.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend(value);
    out
}
