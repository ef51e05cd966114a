//! Invalid bytes cause an error, never a panic, and no allocation beyond the bytes present.

#![allow(clippy::unwrap_used, reason = "a test may panic, helpers included")]

mod support;

use bytes::Bytes;
use fastrand::Rng;
use ottla_protocol::api::Recode;
use ottla_protocol::messages::{MetadataRequest, REQUESTS};
use ottla_protocol::schema::Schema;
use ottla_protocol::{DecodeFault, Decoder, Message, RequestHeader};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than any test here needs, and far less than 2^31 elements would take.
const ADDRESS_SPACE_BYTES: u64 = 1 << 30;

/// Makes an allocation beyond the limit abort the test.
fn limit_memory() {
    let Rlimit { maximum, .. } = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(ADDRESS_SPACE_BYTES), maximum }).unwrap();
}

/// Calls `each` for every message in every version.
fn each_version(mut check: impl FnMut(&Schema, Recode, i16)) {
    for api in REQUESTS {
        let messages = api.messages();
        for version in api.versions.min..=api.versions.max {
            check(&messages.request, messages.recode_request, version);
            check(&messages.response, messages.recode_response, version);
        }
    }
}

#[test]
fn every_prefix_of_a_message_is_an_error() {
    each_version(|schema, recode, version| {
        for seed in 0..4 {
            let bytes = support::random_message(schema, version, &mut Rng::with_seed(seed));
            // Long messages are mostly payload: every 37th byte suffices.
            let step = if bytes.len() > 2000 { 37 } else { 1 };
            for cut in (0..bytes.len()).step_by(step) {
                let prefix = recode(bytes.slice(..cut), version);
                assert!(prefix.is_err(), "{} v{version}, seed {seed}, {cut} bytes", schema.name);
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(recode(longer.into(), version).is_err(), "{} v{version}: a byte too many", schema.name);
        }
    });
}

#[test]
fn a_count_of_two_billion_takes_no_memory() {
    limit_memory();
    for (version, bytes) in
        [(1, &[0x7f, 0xff, 0xff, 0xff, 0, 0][..]), (9, &[0xff, 0xff, 0xff, 0xff, 0x07, 0])]
    {
        let error =
            MetadataRequest::decode(&mut Decoder::new(Bytes::copy_from_slice(bytes)), version).unwrap_err();
        assert!(matches!(error.fault(), DecodeFault::ArrayTooLong { .. }), "{error}");
        assert_eq!(error.field(), "topics");
    }
    // A huge length at any position must be rejected.
    each_version(|schema, recode, version| {
        let bytes = support::random_message(schema, version, &mut Rng::with_seed(7));
        for at in 0..bytes.len().min(300) {
            for huge in [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff, 0x07]] {
                let mut bytes = bytes.to_vec();
                bytes.resize(bytes.len().max(at + huge.len()), 0);
                bytes[at..at + huge.len()].copy_from_slice(huge);
                drop(recode(bytes.into(), version));
            }
        }
    });
}

#[test]
fn memory_has_a_limit_of_its_own() {
    // Topics of two bytes each, which take twenty times as much memory.
    let mut bytes = vec![0x81, 0x80, 0x04];
    bytes.extend([1, 0].repeat(0x10000));
    bytes.extend([0, 0, 0, 0]);
    let bytes = Bytes::from(bytes);
    assert!(MetadataRequest::decode(&mut Decoder::new(bytes.clone()), 9).is_ok());
    let mut input = Decoder::with_memory_max(bytes, 1 << 20);
    let error = MetadataRequest::decode(&mut input, 9).unwrap_err();
    assert!(matches!(error.fault(), DecodeFault::Memory { at: 3, left: 0x10_0000, .. }), "{error}");
}

#[test]
fn ten_thousand_damaged_messages_are_refused_or_understood() {
    limit_memory();
    let mut rng = Rng::with_seed(0x07_71a);
    let mut understood = 0;
    for round in 0..10_000 {
        let api = &REQUESTS[rng.usize(..REQUESTS.len())];
        let version = rng.i16(api.versions.min..=api.versions.max);
        let messages = api.messages();
        let (schema, recode) = if rng.bool() {
            (&messages.request, messages.recode_request)
        } else {
            (&messages.response, messages.recode_response)
        };
        let mut bytes = support::random_message(schema, version, &mut rng).to_vec();
        for _ in 0..rng.usize(1..5) {
            damage(&mut bytes, &mut rng);
        }
        let bytes = Bytes::from(bytes);
        drop(RequestHeader::decode(&mut Decoder::new(bytes.clone())));
        let Ok(again) = recode(bytes, version) else { continue };
        // A decoded message is encoded in the shortest form, which decodes to the same message.
        let again = again.to_bytes().unwrap();
        let third = recode(again.clone(), version).unwrap().to_bytes().unwrap();
        assert!(again == third, "{} v{version}, round {round}", schema.name);
        understood += 1;
    }
    assert!((100..9_900).contains(&understood), "{understood} of 10000 understood");
}

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    if bytes.is_empty() {
        bytes.push(rng.u8(..));
        return;
    }
    let at = rng.usize(..bytes.len());
    match rng.u8(..6) {
        0 => bytes[at] ^= 1 << rng.u8(..8),
        1 => bytes[at] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap(),
        2 => bytes.insert(at, rng.u8(..)),
        3 => drop(bytes.remove(at)),
        4 => bytes.truncate(at),
        _ => {
            let from = rng.usize(..bytes.len());
            let len = rng.usize(..=(bytes.len() - at.max(from)).min(16));
            bytes.copy_within(from..from + len, at);
        }
    }
}
