//! The partitioners as functions, for applications that call them from their own.

use std::cell::RefCell;
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};

use ottla_client::Partitioner;

use crate::ffi::panic::on_panic;
use crate::ffi::*;

macro_rules! partitioners {
    ($($function:ident $partitioner:ident,)*) => {
        $(
            #[on_panic(RD_KAFKA_PARTITION_UA)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $function(
                _rkt: *const rd_kafka_topic_t,
                key: *const c_void,
                keylen: usize,
                partition_cnt: i32,
                _rkt_opaque: *mut c_void,
                _msg_opaque: *mut c_void,
            ) -> i32 {
                // SAFETY: `key` is NULL or points to `keylen` bytes (rdkafka.h, every function of this macro).
                let key = (!key.is_null()).then(|| unsafe { std::slice::from_raw_parts(key.cast::<u8>(), keylen) });
                choose(&Partitioner::$partitioner, key, partition_cnt)
            }
        )*
    };
}

partitioners! {
    rd_kafka_msg_partitioner_random Random,
    rd_kafka_msg_partitioner_consistent Consistent,
    rd_kafka_msg_partitioner_consistent_random ConsistentRandom,
    rd_kafka_msg_partitioner_murmur2 Murmur2,
    rd_kafka_msg_partitioner_murmur2_random Murmur2Random,
    rd_kafka_msg_partitioner_fnv1a Fnv1a,
    rd_kafka_msg_partitioner_fnv1a_random Fnv1aRandom,
}

fn choose(partitioner: &Partitioner, key: Option<&[u8]>, partition_cnt: i32) -> i32 {
    match u32::try_from(partition_cnt) {
        Err(_) | Ok(0) => RD_KAFKA_PARTITION_UA,
        Ok(count) => partitioner.of_key(key, count).unwrap_or_else(|| any(count)) as i32,
    }
}

thread_local! {
    static RNG: RefCell<fastrand::Rng> = RefCell::new(fastrand::Rng::with_seed(RandomState::new().hash_one(0)));
}

fn any(count: u32) -> u32 {
    RNG.with_borrow_mut(|rng| rng.u32(..count))
}
