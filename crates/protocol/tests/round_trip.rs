//! Every message in every version: recoding random bytes returns the same bytes.

#![allow(clippy::unwrap_used, reason = "a test may panic, helpers included")]

mod support;

use fastrand::Rng;
use ottla_protocol::api::Recode;
use ottla_protocol::messages::REQUESTS;
use ottla_protocol::schema::Schema;

fn check(schema: &Schema, recode: Recode) {
    for version in schema.versions.min..=schema.versions.max {
        for seed in 0..50 {
            let bytes = support::random_message(schema, version, &mut Rng::with_seed(seed));
            let again = recode(bytes.clone(), version)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{bytes:02x?}"))
                .to_bytes()
                .unwrap();
            assert!(bytes == again, "{} v{version}, seed {seed}\n{bytes:02x?}\n{again:02x?}", schema.name);
        }
    }
}

#[test]
fn random_messages_survive_reading_and_writing() {
    for api in REQUESTS {
        let messages = api.messages();
        check(&messages.request, messages.recode_request);
        check(&messages.response, messages.recode_response);
    }
}
