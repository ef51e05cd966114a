//! A configuration of C: one call at a time uses it, and each call gets its turn.

use std::sync::Arc;

use ottla_models::neighbours::exclusive::InUse;
use ottla_models::run::shuttle;
use shuttle::thread;

/// Three threads add one each, in two steps.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("exclusive, ", stringify!($variant)), 3_000, || {
            use ottla_models::exclusive::$variant::exclusive::{Exclusive, ExclusiveUse};
            let configuration = Arc::new(Exclusive::new(0));
            let calls = [(); 3].map(|()| {
                let configuration = configuration.clone();
                thread::spawn(move || {
                    let mut number = ExclusiveUse::of(InUse(configuration.clone())).expect("no call inside");
                    assert!(
                        ExclusiveUse::of(InUse(configuration)).is_none(),
                        "one call at a time, and none inside it"
                    );
                    let before = *number;
                    thread::yield_now();
                    *number = before + 1;
                })
            });
            for call in calls {
                call.join().expect("it ends");
            }
            let number = ExclusiveUse::of(InUse(configuration)).expect("no call is left");
            assert_eq!(*number, 3, "one call at a time");
        })
    };
}

#[test]
fn one_call_at_a_time_uses_a_configuration() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "one call at a time")]
fn a_call_must_look_again_after_its_wake_up() {
    model!(with_one_look_for_the_other_call);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_end_of_a_call_must_wake_another() {
    model!(without_a_wake_up);
}
