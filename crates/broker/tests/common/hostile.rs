//! Frames that no sound client sends.
#![allow(dead_code, reason = "each test file uses its own part")]

use ottla_protocol::ApiKey;
use ottla_wire::{Compression, Seal};

use crate::common::{CORRELATION_ID, batch, bomb, framed, metadata_of, produce_request, sized};

pub(crate) const EVIL_NAME: &str = "../../etc";

/// The head of a request without a client id.
pub(crate) fn head(api: i16, version: i16, flexible: bool) -> Vec<u8> {
    let mut head = [&api.to_be_bytes()[..], &version.to_be_bytes(), &CORRELATION_ID.to_be_bytes()].concat();
    head.extend((-1_i16).to_be_bytes());
    if flexible {
        head.push(0);
    }
    head
}

/// Frames that are refused: an error code answers, or the connection closes.
pub(crate) fn refused() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, frame: Vec<u8>| all.push((what.to_owned(), frame));
    add("a frame of 2 GiB", [&i32::MAX.to_be_bytes()[..], b"\0\x03\0\x09"].concat());
    add("a frame of -1 bytes", (-1_i32).to_be_bytes().to_vec());
    add("an empty frame", sized(b""));
    add("an unknown request", sized(&head(999, 0, false)));
    add("a request with a negative key", sized(&head(-7, 0, false)));
    add("a request that a broker sends", sized(&head(ApiKey::Vote.code(), 0, false)));
    add("Metadata v99", sized(&head(3, 99, true)));
    add("Metadata v-1", sized(&head(3, -1, false)));
    add("HTTP", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n".to_vec());
    for (api, version) in [(0_i16, 3_i16), (1, 4), (2, 1), (3, 1), (19, 2), (20, 1), (8, 2), (15, 0)] {
        // Up to 20 bytes of fields precede the first array; one of these positions is that of its length.
        for before in 0..20 {
            // Zeros are a valid Produce request with acks=0 and no topics, which has no response.
            if api == 0 && (before == 4 || before >= 12) {
                continue;
            }
            let mut body = head(api, version, false);
            body.extend(vec![0; before]);
            body.extend(i32::MAX.to_be_bytes());
            body.extend([0; 8]);
            add(&format!("api {api} v{version}, 2^31-1 after {before} bytes"), sized(&body));
        }
    }
    for (api, version) in [(0_i16, 9_i16), (1, 12), (3, 12), (19, 7)] {
        for before in 0..20 {
            // Zeros are a valid Produce request with acks=0 and no topics, which has no response.
            if api == 0 && (before == 4 || before >= 12) {
                continue;
            }
            let mut body = head(api, version, true);
            body.extend(vec![0; before]);
            body.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
            body.extend([0; 8]);
            add(&format!("api {api} v{version}, 2^32-2 after {before} bytes"), sized(&body));
        }
    }
    let mut wrong = batch(&[b"one"], &Seal::default());
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    add("a wrong checksum", framed(12, &produce_request("orders", -1, &wrong)));
    add("half a batch", framed(12, &produce_request("orders", -1, &wrong[..40])));
    add("records of nothing", framed(12, &produce_request("orders", -1, b"")));
    let sound = batch(&[b"one"], &Seal::default());
    add("a topic outside", framed(12, &produce_request(EVIL_NAME, -1, &sound)));
    add("metadata of a topic outside", framed(12, &metadata_of(EVIL_NAME)));
    all
}

/// Produce requests with bombs, one of each codec.
pub(crate) fn bombs() -> Vec<(String, Vec<u8>)> {
    let codecs = Compression::ALL.into_iter().filter(|codec| *codec != Compression::None);
    codecs
        .map(|codec| (format!("{codec:?} bomb"), framed(12, &produce_request("orders", -1, &bomb(codec)))))
        .collect()
}

/// 20 MB of empty names: half a gigabyte of them in memory.
pub(crate) fn swollen() -> (String, Vec<u8>) {
    let mut many = head(ApiKey::DescribeGroups.code(), 0, false);
    many.extend(10_000_000_i32.to_be_bytes());
    many.resize(many.len() + 20_000_000, 0);
    ("ten million empty names".into(), sized(&many))
}
