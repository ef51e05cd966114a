//! The subject of a certificate as Java writes it (`X500Principal.getName()`, RFC 2253): rules of `ssl.principal.mapping.rules`,
//! `super.users` and ACLs are written for that form.

use std::fmt::Write as _;

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Encode, Tag, Tagged};
use x509_cert::name::Name;

/// The attributes that have a name in RFC 2253. All others are written as a number with the bytes of the value.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];

/// Characters with a backslash before them. RFC 2253 does not ask for it before `=` and `#`; Java does, so that a value cannot be taken
/// for an attribute.
const ESCAPED: &str = ",=+<>#;\"\\";

/// The text of a subject, its last part first. The attributes of one part are in DER's order.
pub(super) fn subject_text(name: &Name) -> String {
    let parts: Vec<_> = name.iter_rdn().collect();
    let mut text = String::new();
    for (number, part) in parts.into_iter().rev().enumerate() {
        for (of_part, attribute) in part.iter().enumerate() {
            text.push_str(match (number, of_part) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            add_attribute(&mut text, attribute);
        }
    }
    text
}

fn add_attribute(text: &mut String, attribute: &AttributeTypeAndValue) {
    let keyword = keyword(attribute.oid).filter(|_| is_text(attribute.value.tag()));
    if let Some(keyword) = keyword {
        text.push_str(keyword);
        text.push('=');
        add_escaped(text, &String::from_utf8_lossy(attribute.value.value()));
        return;
    }
    let name = self::keyword(attribute.oid).map_or_else(|| attribute.oid.to_string(), str::to_owned);
    let _ = write!(text, "{name}=#");
    for byte in attribute.value.to_der().unwrap_or_default() {
        let _ = write!(text, "{byte:02x}");
    }
}

fn keyword(oid: ObjectIdentifier) -> Option<&'static str> {
    let number = oid.to_string();
    KEYWORDS.iter().find(|(known, _)| *known == number).map(|(_, keyword)| *keyword)
}

/// Returns `true` for the kinds of text whose bytes are written as characters.
const fn is_text(tag: Tag) -> bool {
    matches!(
        tag,
        Tag::Utf8String
            | Tag::PrintableString
            | Tag::TeletexString
            | Tag::Ia5String
            | Tag::GeneralString
            | Tag::BmpString
    )
}

fn add_escaped(text: &mut String, value: &str) {
    let is_space = |character: char| matches!(character, ' ' | '\r');
    let inner = value.trim_matches(is_space);
    let leading =
        if inner.is_empty() { value.len() } else { value.len() - value.trim_start_matches(is_space).len() };
    for (at, character) in value.char_indices() {
        let is_outer = at < leading || at >= leading + inner.len();
        match character {
            '\0' => text.push_str("\\00"),
            _ if is_outer || ESCAPED.contains(character) => text.extend(['\\', character]),
            _ => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use x509_cert::der::Decode;

    use super::*;

    fn text_of(hex: &str) -> String {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
        let der: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        subject_text(&Name::from_der(&der).expect("a name"))
    }

    /// A rule such as `^.*CN=([a-z]*).*$` found `admin` in the organizational unit of a certificate of `mallory`.
    #[test]
    fn a_value_of_a_subject_cannot_be_taken_for_an_attribute() {
        let subject = "302731133011060355040b0c0a7820434e3d61646d696e3110300e06035504030c076d616c6c6f7279";
        assert_eq!(text_of(subject), r"CN=mallory,OU=x CN\=admin");
    }

    /// The texts are the answers of Java 17 for these names.
    #[test]
    fn subjects_are_written_as_java_writes_them() {
        for (subject, text) in [
            (
                "304a310b3009060355040613024445310e300c06035504080c05612c622b633119301706035504070c10206c65616420616e64207\
                 47261696c203110300e06035504090c0723313b223c3e5c",
                r#"STREET=\#1\;\"\<\>\\,L=\ lead and trail\ ,ST=a\,b\+c,C=DE"#,
            ),
            (
                "306931173015060a0992268993f22c64011916076578616d706c6531123010060a0992268993f22c6401010c02753131123010060\
                 92a864886f70d0109011603614062310b3009060355040513023432310d300b060355040c0c04626f7373310a300806035504040c\
                 0173",
                "2.5.4.4=#0c0173,2.5.4.12=#0c04626f7373,2.5.4.5=#13023432,1.2.840.113549.1.9.1=#1603614062,UID=u1,DC=example",
            ),
            ("301c311a300a060355040a0c0374776f300c06035504030c05c3a920c3bc", "O=two+CN=é ü"),
            (
                "302a310d300b06035504031e0400410042310b30090603550403140241e9310c300a06035504030c03410042",
                "CN=A\\00B,CN=A\u{fffd},CN=\\00A\\00B",
            ),
            (
                "3026310b300906035504030c02202031093007060355040a0c00310c300a060355040b0c030a410d",
                "OU=\nA\\\r,O=,CN=\\ \\ ",
            ),
            ("3019310b300906035504031b024142310a30080603550403040141", "CN=#040141,CN=AB"),
        ] {
            assert_eq!(text_of(subject), text);
        }
    }
}
