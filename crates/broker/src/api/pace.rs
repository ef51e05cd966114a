//! Work on many items in the thread that serves all clients.

/// Items before other connections have their turn: less than a millisecond.
pub(super) const ITEMS_PER_TURN: usize = 1000;

/// Counts the items of a request.
#[derive(Debug, Default)]
pub(super) struct Pace {
    items: usize,
}

impl Pace {
    /// Counts an item, and lets other connections have their turn after each thousand.
    pub(super) async fn step(&mut self) {
        self.step_by(1).await;
    }

    /// The same for an item that takes as long as so many usual ones.
    pub(super) async fn step_by(&mut self, items: usize) {
        self.items += items;
        if self.items >= ITEMS_PER_TURN {
            self.items = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn other_connections_have_their_turn_after_each_thousand_items() {
        let mut work = pin!(async {
            let mut pace = Pace::default();
            for _ in 0..5500 {
                pace.step().await;
            }
        });
        let mut context = Context::from_waker(Waker::noop());
        let mut turns = 1;
        while work.as_mut().poll(&mut context) == Poll::Pending {
            turns += 1;
        }
        assert_eq!(turns, 6);
    }
}
