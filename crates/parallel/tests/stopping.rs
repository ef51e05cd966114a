//! Processors that stop: the records that are handled before that, and the time that it takes.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use ottla_parallel::{Error, Failure, GiveUp, Mode, Order, Retry};
use support::*;

/// The later records of the key were handled before the processor stopped, and once more by the next owner of the partition.
#[test]
fn no_record_of_a_key_is_handled_after_one_that_stops_the_processor() {
    for is_fatal in [false, true] {
        let broker = broker("orders", 1);
        produce(broker.bootstrap_servers(), "orders", 1, 3);
        let seen = Seen::default();
        let noted = seen.clone();
        let give_up = if is_fatal { GiveUp::Skip } else { GiveUp::Stop };
        let mut retry = Retry::never();
        if !is_fatal {
            retry = retry.holding();
        }
        let processor = builder(&broker, Mode::MultiAsync, Order::Key)
            .workers(1)
            .retry(retry)
            .give_up(give_up)
            .start_each(move |message| {
                noted.note(message.key(), message.partition(), message.offset(), message.value());
                let failure = if is_fatal { Failure::fatal("no program") } else { Failure::new("no") };
                if message.offset() == 0 { Err(failure) } else { Ok(()) }
            })
            .expect("a processor");
        match processor.join() {
            Err(Error::Record { offset: 0, .. } | Error::Handler { offset: 0, .. }) => {}
            other => panic!("it stops with the error of the first record: {other:?}"),
        }
        let offsets: Vec<i64> = seen.all().into_iter().map(|(_, _, offset, _)| offset).collect();
        assert_eq!(offsets, [0], "fatal: {is_fatal}");
        assert_eq!(committed_of(member(broker.bootstrap_servers(), "workers"), "orders", 0), 0);
    }
}
