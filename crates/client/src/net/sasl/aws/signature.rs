//! AWS's Signature Version 4 for requests without a query.

use std::fmt::Write as _;

use hmac::Hmac;
use hmac::digest::{Digest, KeyInit, Mac};
use sha2::Sha256;

use super::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The place and the time for which a signature is valid.
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    /// `20150830T123600Z`.
    pub(super) time: &'a str,
}

/// The parts of a request that are signed. The names of the headers are in lower case and sorted.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a [u8],
}

/// The value of the header `Authorization`.
pub(super) fn authorization(credentials: &Credentials, scope: &Scope<'_>, request: &Signed<'_>) -> String {
    let date = scope.time.get(..8).unwrap_or_default();
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut canonical = format!("{}\n{}\n\n", request.method, request.path);
    for (name, value) in request.headers {
        let _ = writeln!(canonical, "{name}:{}", value.trim());
    }
    let _ = write!(canonical, "\n{names}\n{}", hex(&Sha256::digest(request.body)));
    let place = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let to_sign =
        format!("{ALGORITHM}\n{}\n{place}\n{}", scope.time, hex(&Sha256::digest(canonical.as_bytes())));
    let secret = format!("AWS4{}", credentials.secret_key.expose());
    let mut key = mac(secret.as_bytes(), date);
    for part in [scope.region, scope.service, "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = hex(&mac(&key, &to_sign));
    format!(
        "{ALGORITHM} Credential={}/{place}, SignedHeaders={names}, Signature={signature}",
        credentials.key_id
    )
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // A key of HMAC can have any length.
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.chain_update(text).finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The UTC time as `20150830T123600Z`.
pub(super) fn timestamp(now_ms: i64) -> String {
    let seconds = now_ms.div_euclid(1000);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin in March, so that the leap day is the last; 400 of them have 146,097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases of AWS's test suite for Signature Version 4.
    #[test]
    fn signatures_are_those_of_awss_test_suite() {
        let credentials = Credentials {
            key_id: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let scope = Scope { region: "us-east-1", service: "service", time: "20150830T123600Z" };
        let (host, date) = (("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z"));
        let form = ("content-type", "application/x-www-form-urlencoded");
        let plain = [host, date];
        let with_form = [form, host, date];
        for (method, headers, body, signature) in [
            ("GET", &plain[..], "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", &plain, "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
            (
                "POST",
                &with_form,
                "Param1=value1",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            let request = Signed { method, path: "/", headers, body: body.as_bytes() };
            let value = authorization(&credentials, &scope, &request);
            assert!(value.ends_with(&format!("Signature={signature}")), "{method}: {value}");
            assert!(value.contains("AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"), "{value}");
        }
    }

    #[test]
    fn times_are_in_the_calendar_of_utc() {
        for (ms, text) in [
            (0, "19700101T000000Z"),
            (1_440_938_160_999, "20150830T123600Z"),
            (951_782_400_000, "20000229T000000Z"),
            (4_107_542_399_000, "21000228T235959Z"),
            (4_107_542_400_000, "21000301T000000Z"),
            (-1, "19691231T235959Z"),
        ] {
            assert_eq!(timestamp(ms), text, "{ms}");
        }
    }
}
