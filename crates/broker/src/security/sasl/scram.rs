//! SCRAM (RFC 5802, RFC 7677): the client proves that it knows a password, of which the cluster stores keys only.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use subtle::ConstantTimeEq;

use super::{Login, Outcome, Stage};
use crate::config::SaslMechanism;
use crate::security::scram_credentials::{ScramCredential, ScramCredentials, ScramMechanism};

/// The random bytes of a nonce, before encoding.
pub(super) const NONCE_BYTES: usize = 24;
/// The longest first message of a client. Parts of it are kept until the proof comes. A user's name has 255 bytes, and three times
/// as many with escapes, twice if it is the authorization id too; nonces have less than 100.
const FIRST_MESSAGE_BYTES_MAX: usize = 2 << 10;

const DOUBLED_NONCE: &str = "the client's nonce is doubled, as by librdkafka before 2.6.1: use a newer one";

/// An exchange that waits for the client's proof.
#[derive(Debug)]
pub(super) struct ScramExchange {
    mechanism: ScramMechanism,
    user: String,
    /// `None` if the user does not exist: the proof is still checked, and is wrong.
    is_known: bool,
    credential: ScramCredential,
    nonce: String,
    gs2_header: String,
    /// The client's first message without its header, and the server's.
    said: String,
}

impl ScramExchange {
    /// Answers the client's first message with a salt. A user that does not exist has one, too.
    pub(super) fn begin(credentials: &ScramCredentials, mechanism: SaslMechanism, token: &Bytes) -> Outcome {
        let mut random = [0; NONCE_BYTES];
        if rustls::crypto::ring::default_provider().secure_random.fill(&mut random).is_err() {
            tracing::error!("the system gives no random numbers: no SCRAM login is possible");
            return Outcome::Failed(None);
        }
        Self::begin_with(credentials, mechanism, token, random)
    }

    /// The same, with the random part of the nonce.
    pub(super) fn begin_with(
        credentials: &ScramCredentials,
        mechanism: SaslMechanism,
        token: &Bytes,
        random: [u8; NONCE_BYTES],
    ) -> Outcome {
        let mechanism = match mechanism {
            SaslMechanism::ScramSha512 => ScramMechanism::Sha512,
            _ => ScramMechanism::Sha256,
        };
        let token = Some(token).filter(|token| token.len() <= FIRST_MESSAGE_BYTES_MAX);
        let Some(first) =
            token.and_then(|token| std::str::from_utf8(token).ok()).and_then(ClientFirst::parse)
        else {
            return Outcome::Failed(None);
        };
        if !first.authorization_id.is_empty() && first.authorization_id != first.user {
            let text =
                "Authentication failed: Client requested an authorization id that is different from username";
            return Outcome::FailedWith(text.to_owned(), Some(first.user));
        }
        let known = credentials.credential(&first.user, mechanism);
        let is_known = known.is_some();
        let credential = known.unwrap_or_else(|| credentials.invented(&first.user, mechanism));
        let nonce = format!("{}{}", first.nonce, STANDARD.encode(random));
        let answer = format!("r={nonce},s={},i={}", STANDARD.encode(&credential.salt), credential.iterations);
        let said = format!("{},{answer}", first.bare);
        let (user, gs2_header) = (first.user, first.gs2_header);
        let exchange = Self { mechanism, user, is_known, credential, nonce, gs2_header, said };
        Outcome::Continue(Stage::ScramProof(Box::new(exchange)), answer.into())
    }

    pub(super) fn mechanism(&self) -> SaslMechanism {
        match self.mechanism {
            ScramMechanism::Sha256 => SaslMechanism::ScramSha256,
            ScramMechanism::Sha512 => SaslMechanism::ScramSha512,
        }
    }

    /// Checks the client's proof, and proves that the server knows the keys.
    pub(super) fn finish(self, token: &Bytes) -> Outcome {
        match self.signature(token) {
            Some(signature) if self.is_known => {
                let bytes = format!("v={}", STANDARD.encode(signature)).into();
                Outcome::Done(Login { user: self.user, bytes, expires_ms: None })
            }
            None if self.has_doubled_nonce(token) => Outcome::FailedFor(DOUBLED_NONCE, self.user),
            Some(_) | None => Outcome::Failed(Some(self.user)),
        }
    }

    /// Returns `true` if the client has put its own nonce before the whole one again.
    fn has_doubled_nonce(&self, token: &Bytes) -> bool {
        let nonce =
            std::str::from_utf8(token).ok().and_then(|message| message.split(',').nth(1)?.strip_prefix("r="));
        nonce.is_some_and(|nonce| nonce.len() > self.nonce.len() && nonce.ends_with(&self.nonce))
    }

    /// The server's signature, if the client's proof is right.
    fn signature(&self, token: &Bytes) -> Option<Vec<u8>> {
        let message = std::str::from_utf8(token).ok()?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let proof = STANDARD.decode(proof).ok()?;
        let mut fields = without_proof.split(',');
        let channel_binding = fields.next()?.strip_prefix("c=")?;
        let nonce = fields.next()?.strip_prefix("r=")?;
        // The nonce shows that the proof was made for this exchange (CVE-2024-56128).
        if STANDARD.decode(channel_binding).ok()? != self.gs2_header.as_bytes() || nonce != self.nonce {
            return None;
        }
        let said = format!("{},{without_proof}", self.said);
        let mechanism = self.mechanism;
        let client_signature = mechanism.mac(&self.credential.stored_key, said.as_bytes());
        if proof.len() != client_signature.len() {
            return None;
        }
        let client_key: Vec<u8> = proof.iter().zip(&client_signature).map(|(a, b)| a ^ b).collect();
        let is_right = mechanism.digest(&client_key).ct_eq(&self.credential.stored_key);
        bool::from(is_right).then(|| mechanism.mac(&self.credential.server_key, said.as_bytes()))
    }
}

/// The client's first message.
#[derive(Debug, PartialEq)]
struct ClientFirst {
    gs2_header: String,
    authorization_id: String,
    bare: String,
    user: String,
    nonce: String,
}

impl ClientFirst {
    fn parse(message: &str) -> Option<Self> {
        let mut parts = message.splitn(3, ',');
        let (binding, authorization, bare) = (parts.next()?, parts.next()?, parts.next()?);
        // Without channel binding; `y` is a client that could bind and sees that the server cannot.
        if !matches!(binding, "n" | "y") {
            return None;
        }
        let authorization_id = match authorization {
            "" => String::new(),
            authorization => name(authorization.strip_prefix("a=")?)?,
        };
        let mut fields = bare.split(',');
        // A mandatory extension (`m=`) comes first, and none is known.
        let user = name(fields.next()?.strip_prefix("n=")?)?;
        let nonce = fields.next()?.strip_prefix("r=")?;
        // Delegation tokens are passwords of another store, which this broker does not have.
        let has_token = fields.any(|extension| extension == "tokenauth=true");
        if user.is_empty() || nonce.is_empty() || has_token {
            return None;
        }
        Some(Self {
            gs2_header: format!("{binding},{authorization},"),
            authorization_id,
            bare: bare.to_owned(),
            user,
            nonce: nonce.to_owned(),
        })
    }
}

/// A name without its escapes: `=2C` for a comma, `=3D` for an equals sign.
fn name(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('=') {
        name.push_str(before);
        let escaped = after.get(..2)?;
        name.push(match escaped {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        rest = &after[2..];
    }
    name.push_str(rest);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677 with user `user` and password `pencil`.
    fn rfc_7677() -> ScramExchange {
        let salted = [
            0xc4, 0xa4, 0x95, 0x10, 0x32, 0x3a, 0xb4, 0xf9, 0x52, 0xca, 0xc1, 0xfa, 0x99, 0x44, 0x19, 0x39,
            0xe7, 0x8e, 0xa7, 0x4d, 0x6b, 0xe8, 0x1d, 0xdf, 0x70, 0x96, 0xe8, 0x75, 0x13, 0xdc, 0x61, 0x5d,
        ];
        let mechanism = ScramMechanism::Sha256;
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        ScramExchange {
            mechanism,
            user: "user".to_owned(),
            is_known: true,
            credential: ScramCredential::of(mechanism, 4096, salt, &salted),
            nonce: nonce.to_owned(),
            gs2_header: "n,,".to_owned(),
            said: format!("n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
        }
    }

    const PROOF: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    #[test]
    fn the_proof_of_rfc_7677_gets_in_and_is_answered() {
        match rfc_7677().finish(&Bytes::from_static(PROOF.as_bytes())) {
            Outcome::Done(login) => {
                assert_eq!(login.user, "user");
                assert_eq!(&*login.bytes, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
            }
            _ => panic!("refused"),
        }
    }

    #[test]
    fn other_proofs_nonces_and_users_are_refused() {
        let is_refused = |exchange: ScramExchange, proof: &str| {
            matches!(exchange.finish(&Bytes::copy_from_slice(proof.as_bytes())), Outcome::Failed(_))
        };
        assert!(is_refused(rfc_7677(), &PROOF.replace("dHzb", "dHzc")));
        assert!(is_refused(rfc_7677(), &PROOF.replace("c=biws", "c=eSws")));
        assert!(is_refused(rfc_7677(), &PROOF.replace("%hv", "%hw")));
        assert!(is_refused(rfc_7677(), "c=biws,p=AAAA"));
        assert!(is_refused(rfc_7677(), ""));
        assert!(is_refused(ScramExchange { is_known: false, ..rfc_7677() }, PROOF));
    }

    /// It was logged with the whole name of the user at each attempt.
    #[test]
    fn a_doubled_nonce_is_refused_with_a_hint_for_the_log() {
        let proof = PROOF.replace("r=rOpr", "r=abcrOpr");
        let outcome = rfc_7677().finish(&Bytes::copy_from_slice(proof.as_bytes()));
        assert!(matches!(outcome, Outcome::FailedFor(DOUBLED_NONCE, user) if user == "user"));
    }

    /// The exchange kept three copies of a first message of any size until the proof came.
    #[test]
    fn a_first_message_above_the_limit_is_refused() {
        let credentials = ScramCredentials::default();
        let begin = |bytes: usize| {
            const HEAD: &str = "n,,n=user,r=";
            let token = Bytes::from(format!("{HEAD}{}", "x".repeat(bytes - HEAD.len())));
            assert_eq!(token.len(), bytes);
            ScramExchange::begin_with(&credentials, SaslMechanism::ScramSha256, &token, [7; NONCE_BYTES])
        };
        assert!(matches!(begin(FIRST_MESSAGE_BYTES_MAX), Outcome::Continue(..)));
        assert!(matches!(begin(FIRST_MESSAGE_BYTES_MAX + 1), Outcome::Failed(None)));
        assert!(matches!(begin(500_000), Outcome::Failed(None)));
    }

    #[test]
    fn first_messages_are_parsed_with_their_escapes() {
        let first = ClientFirst::parse("n,a=b=2Cc,n=b=2Cc=3D,r=abc,x=1").expect("parsed");
        assert_eq!((&*first.authorization_id, &*first.user, &*first.nonce), ("b,c", "b,c=", "abc"));
        assert_eq!((&*first.gs2_header, &*first.bare), ("n,a=b=2Cc,", "n=b=2Cc=3D,r=abc,x=1"));
        for bad in [
            "",
            "n,,",
            "p=tls-unique,,n=a,r=b",
            "n,,m=x,n=a,r=b",
            "n,,n=,r=b",
            "n,,n=a",
            "n,,n=a,r=",
            "n,,n=a=2,r=b",
            "n,,n=a=é,r=b",
            "n,,n=a,r=b,tokenauth=true",
            "n,x,n=a,r=b",
        ] {
            assert_eq!(ClientFirst::parse(bad), None, "{bad}");
        }
    }
}
