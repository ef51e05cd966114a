//! The messages of all peers: files of JSON lines of one length.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use ottla_interop::Failure;

/// Larger than the caches, so that neither they nor codecs see the same bytes again soon.
const FILE_BYTES: usize = 16 << 20;

/// Bytes of a line without its end.
pub(super) const SIZES: [usize; 2] = [100, 1024];

/// Lines shorter than this are events, longer ones are orders.
const ORDER_BYTES: usize = 400;

const EVENTS: [&str; 6] = ["page_view", "click", "search", "add_to_cart", "checkout", "login"];
const CITIES: [&str; 8] = ["Berlin", "Lyon", "Porto", "Gdansk", "Turin", "Ghent", "Malmo", "Graz"];
const WORDS: [&str; 16] = [
    "blue", "steel", "garden", "chair", "lamp", "small", "oak", "table", "kitchen", "large", "cotton",
    "shelf", "glass", "wool", "round", "desk",
];

pub(super) struct Payloads(Vec<(usize, PathBuf)>);

impl Payloads {
    /// Writes one file per size; the same bytes in every run.
    pub(super) fn write(dir: &Path) -> Result<Self, Failure> {
        let write = |size| {
            let path = dir.join(format!("payload-{size}.json"));
            let written = fs::write(&path, lines(size, FILE_BYTES / size));
            written.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            Ok((size, path))
        };
        SIZES.into_iter().map(write).collect::<Result<_, _>>().map(Self)
    }

    /// The file whose lines have `size` bytes.
    pub(super) fn of_size(&self, size: usize) -> &Path {
        let file = self.0.iter().find(|(own, _)| *own == size);
        &file.expect("one of SIZES").1
    }
}

fn lines(size: usize, count: usize) -> String {
    let mut random = Random::new();
    let mut text = String::with_capacity(count * (size + 1));
    for n in 0..count {
        let before = text.len();
        let ts = 1_760_000_000_000 + n as u64 * 3 + random.below(3);
        if size < ORDER_BYTES {
            event(&mut text, ts, &mut random);
        } else {
            order(&mut text, ts, before + size, &mut random);
        }
        // The rest of the line is an opaque id, as in events and orders.
        let end = before + size - "\"}".len();
        while text.len() < end {
            let digit = char::from_digit(random.below(16) as u32, 16);
            text.push(digit.expect("below 16"));
        }
        text.truncate(end);
        text.push_str("\"}\n");
    }
    text
}

/// Both end within the quotes of a last value.
fn event(text: &mut String, ts: u64, random: &mut Random) {
    let (event, user) = (random.of(&EVENTS), random.below(50_000));
    let (path, ms) = (random.below(2000), random.below(900));
    let _ =
        write!(text, r#"{{"ts":{ts},"user":{user},"event":"{event}","path":"/p/{path}","ms":{ms},"id":""#);
}

fn order(text: &mut String, ts: u64, end: usize, random: &mut Random) {
    /// More than an item and the rest of the line need.
    const ROOM: usize = 140;
    let (number, customer, city) = (random.below(1_000_000), random.below(50_000), random.of(&CITIES));
    let _ = write!(
        text,
        r#"{{"ts":{ts},"order":{number},"customer":{{"id":{customer},"city":"{city}"}},"status":"paid","items":["#
    );
    let mut separator = "";
    while text.len() + ROOM < end {
        let (first, second) = (random.of(&WORDS), random.of(&WORDS));
        let (sku, quantity, cents) = (random.below(9000), 1 + random.below(4), 100 + random.below(20_000));
        let price = cents as f64 / 100.0;
        let _ = write!(
            text,
            r#"{separator}{{"sku":"A-{sku}","title":"{first} {second}","quantity":{quantity},"price":{price:.2}}}"#
        );
        separator = ",";
    }
    text.push_str(r#"],"note":""#);
    while text.len() + 32 < end {
        text.push_str(random.of(&WORDS));
        text.push(' ');
    }
    text.push_str(r#"","id":""#);
}

/// A small generator of our own (xorshift): the payload must not change with a dependency's version.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_json_of_exactly_its_size() {
        for size in SIZES {
            let text = lines(size, 5000);
            assert_eq!(text.len(), 5000 * (size + 1));
            for line in text.lines() {
                assert_eq!(line.len(), size);
                let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(parsed["ts"].is_u64() && parsed["id"].as_str().unwrap().len() > 3, "{line}");
            }
        }
    }
}
