//! Tests that run on both brokers: Apache Kafka 4.3 and the Ottla broker.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ottla_interop::Failure;

/// The broker that a test runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Apache Kafka 4.3.
    Kafka,
    /// The Ottla broker.
    Ottla,
}

/// Generates a test for each broker from functions `fn(Kind) -> Result<(), Failure>`. The tests on Apache Kafka can have an attribute:
/// `on_both! { on_kafka: #[cfg(feature = "soaks")], a_test, }` runs on Kafka in `cargo xtask soak` only.
macro_rules! on_both {
    (on_kafka: #[$attribute:meta], $($test:ident,)*) => {
        mod on_kafka {
            $(#[test]
            #[$attribute]
            fn $test() -> Result<(), ottla_interop::Failure> {
                super::$test(crate::both_brokers::Kind::Kafka)
            })*
        }

        mod on_ottla {
            $(#[test]
            fn $test() -> Result<(), ottla_interop::Failure> {
                super::$test(crate::both_brokers::Kind::Ottla)
            })*
        }
    };
    ($($test:ident,)*) => {
        crate::both_brokers::on_both! { on_kafka: #[cfg(all())], $($test,)* }
    };
}

pub(crate) use on_both;

/// One broker of each kind for the tests that run at the same time. The last one to drop it stops it.
pub(crate) struct SharedBrokers<T>([Mutex<Weak<T>>; 2]);

impl<T> SharedBrokers<T> {
    pub(crate) const fn new() -> Self {
        Self([const { Mutex::new(Weak::new()) }; 2])
    }

    /// Returns the running broker of this kind, or starts one.
    pub(crate) fn of(
        &self,
        kind: Kind,
        start: impl FnOnce(Kind) -> Result<T, Failure>,
    ) -> Result<Arc<T>, Failure> {
        let mut shared = self.0[kind as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broker) = shared.upgrade() {
            return Ok(broker);
        }
        let broker = Arc::new(start(kind)?);
        *shared = Arc::downgrade(&broker);
        Ok(broker)
    }
}
