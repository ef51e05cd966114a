//! GSSAPI (RFC 4752): the dialogue of Kerberos, as decisions about the broker's messages.

mod library;

pub(crate) use library::{KerberosContext, Library};

/// The bit of "no security layer": TLS protects the connection, not Kerberos.
const NO_LAYER: u8 = 1;
/// A bit mask, and the largest message in three bytes.
const LAYERS_BYTES: usize = 4;
/// Kerberos needs two messages of each side. A broker that asks for more of them is broken or malicious.
const TOKENS_MAX: usize = 8;

/// The parts of a GSS-API context that the dialogue needs.
pub(crate) trait SecurityContext {
    /// Takes the broker's token, which is empty at first, and returns ours. It may wait for the Kerberos server.
    fn step(&mut self, token: &[u8]) -> Result<Step, String>;

    /// Protects the integrity of a message.
    fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, String>;

    /// Verifies a message of the broker and returns its content.
    fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, String>;
}

/// The result of a step of a context.
pub(crate) struct Step {
    /// The token for the broker; empty if there is none.
    pub(crate) token: Vec<u8>,
    /// `true` if both sides know each other.
    pub(crate) is_complete: bool,
}

/// The client's side of the dialogue.
pub(crate) struct Dialogue<C> {
    context: C,
    state: State,
}

/// The message that the client expects.
enum State {
    /// The broker's next token, after this many of ours.
    Token { sent: usize },
    /// The security layers that the broker offers.
    Layers,
    /// None: our last message selected no layer.
    Done,
}

impl<C: SecurityContext> Dialogue<C> {
    pub(crate) fn new(context: C) -> Self {
        Self { context, state: State::Token { sent: 0 } }
    }

    /// Answers a message of the broker. The first one is empty: the client begins.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        match self.state {
            State::Token { sent: TOKENS_MAX } => {
                Err(format!("the broker asks for more than {TOKENS_MAX} tokens"))
            }
            State::Token { sent } => {
                let Step { token, is_complete } = self.context.step(message)?;
                if token.is_empty() && !is_complete {
                    return Err("the library has no token for the broker and expects another one".into());
                }
                self.state = if is_complete { State::Layers } else { State::Token { sent: sent + 1 } };
                Ok(token)
            }
            State::Layers => {
                let offer = self.context.unwrap(message)?;
                let &[layers, ..] = offer.as_slice() else { return Err(no_offer(&offer)) };
                if offer.len() != LAYERS_BYTES {
                    return Err(no_offer(&offer));
                }
                if layers & NO_LAYER == 0 {
                    return Err(format!(
                        "the broker requires a security layer of Kerberos (bits {layers:#04x}), and the client has none: \
                         use TLS"
                    ));
                }
                // No layer, no size, and no name behind them: the client acts as its own principal.
                let choice = self.context.wrap(&[NO_LAYER, 0, 0, 0])?;
                self.state = State::Done;
                Ok(choice)
            }
            State::Done => Err("the broker sends a message after the last one".into()),
        }
    }

    /// Returns `true` if the last answer ended the dialogue.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }
}

fn no_offer(offer: &[u8]) -> String {
    format!("the broker's offer of security layers has {} bytes instead of {LAYERS_BYTES}", offer.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context that is complete after these steps. It wraps a message in brackets.
    struct FakeContext {
        steps: Vec<(&'static [u8], Step)>,
    }

    impl SecurityContext for FakeContext {
        fn step(&mut self, token: &[u8]) -> Result<Step, String> {
            if self.steps.is_empty() {
                return Err("the ticket expired".into());
            }
            let (expected, step) = self.steps.remove(0);
            assert_eq!(token, expected);
            Ok(step)
        }

        fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
            Ok([b"[", message, b"]"].concat())
        }

        fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
            let inner = message.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
            inner.map(<[u8]>::to_vec).ok_or_else(|| "a token was invalid".into())
        }
    }

    fn step(expected: &'static [u8], token: &[u8], is_complete: bool) -> (&'static [u8], Step) {
        (expected, Step { token: token.to_vec(), is_complete })
    }

    /// A dialogue whose context the broker's first token completes.
    fn established() -> Dialogue<FakeContext> {
        let steps = vec![step(b"", b"request", false), step(b"reply", b"", true)];
        let mut dialogue = Dialogue::new(FakeContext { steps });
        assert_eq!(dialogue.answer(b"").as_deref(), Ok(b"request".as_slice()));
        assert_eq!(
            dialogue.answer(b"reply").as_deref(),
            Ok(b"".as_slice()),
            "the broker offers its layers next"
        );
        assert!(!dialogue.is_done());
        dialogue
    }

    #[test]
    fn tokens_are_exchanged_and_no_layer_is_selected() {
        let mut dialogue = established();
        assert_eq!(dialogue.answer(b"[\x07\x00\x10\x00]").as_deref(), Ok(b"[\x01\0\0\0]".as_slice()));
        assert!(dialogue.is_done());
        assert!(dialogue.answer(b"").expect_err("one too many").contains("after the last"));
    }

    #[test]
    fn a_last_token_is_sent_before_the_layers_are_offered() {
        let steps = vec![step(b"", b"one", false), step(b"two", b"three", true)];
        let mut dialogue = Dialogue::new(FakeContext { steps });
        dialogue.answer(b"").expect("a token");
        assert_eq!(dialogue.answer(b"two").as_deref(), Ok(b"three".as_slice()));
        dialogue.answer(b"[\x01\0\0\0]").expect("no layer");
        assert!(dialogue.is_done());
    }

    #[test]
    fn a_broker_that_wants_a_layer_or_offers_nonsense_is_refused() {
        for (offer, part) in [
            (&b"[\x06\x00\x10\x00]"[..], "requires a security layer of Kerberos (bits 0x06)"),
            (b"[\x01\0\0]", "has 3 bytes instead of 4"),
            (b"[\x01\0\0\0alice]", "has 9 bytes instead of 4"),
            (b"[]", "has 0 bytes instead of 4"),
            (b"\x01\0\0\0", "a token was invalid"),
        ] {
            let error = established().answer(offer).expect_err("refused");
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_dialogue_without_an_end_is_refused() {
        let steps = (0..=TOKENS_MAX).map(|_| step(b"", b"again", false)).collect();
        let mut dialogue = Dialogue::new(FakeContext { steps });
        for _ in 0..TOKENS_MAX {
            dialogue.answer(b"").expect("a token");
        }
        assert!(dialogue.answer(b"").expect_err("refused").contains("more than 8 tokens"));
        let mut silent = Dialogue::new(FakeContext { steps: vec![step(b"", b"", false)] });
        assert!(silent.answer(b"").expect_err("refused").contains("no token"));
        let mut failing = Dialogue::new(FakeContext { steps: Vec::new() });
        assert_eq!(failing.answer(b"").expect_err("refused"), "the ticket expired");
    }
}
