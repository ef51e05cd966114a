//! The core's decisions about answers with batches that cannot be parsed: no runtime, no clock.

use bytes::Bytes;
use ottla_protocol::messages::fetch::PartitionData;

use super::harness::*;
use super::*;
use crate::fetch::inbox::Item;

/// The offset of the format's version in a batch or a message.
const MAGIC_AT: usize = 16;

/// The answer for partition 0 with these batches.
fn answer_of(batches: Vec<u8>) -> PartitionData {
    PartitionData { records: Some(Bytes::from(batches).into()), ..empty(0) }
}

/// A message of format v0 without a key or a value.
fn legacy_message(offset: i64) -> Vec<u8> {
    let mut message = offset.to_be_bytes().to_vec();
    message.extend(14_i32.to_be_bytes());
    message.extend(0xa7ec_6803_u32.to_be_bytes());
    message.extend([0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    message
}

/// The good batches were dropped at each attempt: the error named the first of them, and a seek behind it lost them.
#[test]
fn batches_before_a_damaged_one_are_delivered_first() {
    let mut damaged_batch = batch(5, 5, 5);
    damaged_batch[MAGIC_AT] = 9;
    let mut damaged_message = legacy_message(1);
    damaged_message[MAGIC_AT + 1] ^= 1;
    for (good, damaged, next) in [(batch(0, 5, 5), damaged_batch, 5), (legacy_message(0), damaged_message, 1)]
    {
        let mut harness = Harness::new(&[StartAt::Offset(0)]);
        let spec = harness.one_fetch();
        harness.answer(&spec, response(77, vec![answer_of([good, damaged.clone()].concat())]));
        assert_eq!(harness.poll_offsets(), [(0, 0, next)]);
        let spec = harness.one_fetch();
        assert_eq!(named(&spec), [(0, next)]);
        harness.answer(&spec, response(77, vec![answer_of(damaged)]));
        let items = harness.poll_all();
        let is_corrupt =
            matches!(&items[..], [Item::Error(Error::Corrupt { offset, .. })] if *offset == next);
        assert!(is_corrupt, "{items:?}");
    }
}
