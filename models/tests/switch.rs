//! The switch of a node: each change wakes the tasks that wait for it, even if the switch is back at once.

use std::sync::Arc;

use ottla_models::run::shuttle;
use shuttle::future::block_on;
use shuttle::thread;

/// Three tasks wait while two others turn the switch off, and one of these turns it on again.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("switch, ", stringify!($variant)), 3_000, || {
            use ottla_models::switch::$variant::switch::Switch;
            let switch = Arc::new(Switch::default());
            let flips = switch.flips();
            let waiters = [(); 3].map(|()| {
                let switch = switch.clone();
                thread::spawn(move || block_on(switch.turned_since(flips)))
            });
            let other = {
                let switch = switch.clone();
                thread::spawn(move || switch.turn(false))
            };
            let mine = switch.turn(false);
            assert!(mine != other.join().expect("it ends"), "one of the two turns it off");
            assert!(switch.turn(true) && switch.is_on());
            for waiter in waiters {
                waiter.join().expect("it sees the change");
            }
        })
    };
}

#[test]
fn a_turn_of_the_switch_wakes_all_who_wait() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_task_must_wait_for_the_switch_before_it_looks() {
    model!(with_a_late_waiter);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_turn_of_the_switch_must_wake_all() {
    model!(with_one_wake_up_for_all);
}
