//! `tokio::sync`, by its documented contract. Tokio models its own code with loom.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use shuttle::sync::{Mutex, MutexGuard};

/// In place of `tokio::sync::Notify`.
#[derive(Debug)]
pub struct Notify(Mutex<NotifyState>);

#[derive(Debug, Default)]
struct NotifyState {
    /// `notify_one` without a waiter: the next waiter takes it.
    permit: bool,
    /// Calls of `notify_waiters`.
    broadcasts: u64,
    next_key: u64,
    /// The oldest first; without a waker after `enable` alone.
    waiters: VecDeque<(u64, Option<Waker>)>,
    /// Waiters that `notify_one` has chosen and that have not seen it.
    chosen: Vec<u64>,
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl Notify {
    /// A notification without a permit.
    pub const fn new() -> Self {
        Self(Mutex::new(NotifyState {
            permit: false,
            broadcasts: 0,
            next_key: 0,
            waiters: VecDeque::new(),
            chosen: Vec::new(),
        }))
    }

    /// Wakes the oldest waiter; without one, the next waiter does not wait.
    pub fn notify_one(&self) {
        let mut state = self.lock();
        match state.waiters.pop_front() {
            None => state.permit = true,
            Some((key, waker)) => {
                state.chosen.push(key);
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
    }

    /// Wakes all waiters, and those that were made before this call and have not waited yet.
    pub fn notify_waiters(&self) {
        let mut state = self.lock();
        state.broadcasts += 1;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().filter_map(|(_, waker)| waker).for_each(Waker::wake);
    }

    /// A waiter, which is on the list after its first poll or `enable`.
    pub fn notified(&self) -> Notified<'_> {
        let mut state = self.lock();
        state.next_key += 1;
        Notified { notify: self, key: state.next_key, broadcasts: state.broadcasts, done: false }
    }

    fn lock(&self) -> MutexGuard<'_, NotifyState> {
        self.0.lock().expect("no code that could panic runs under this lock")
    }
}

/// In place of `tokio::sync::futures::Notified`.
#[derive(Debug)]
pub struct Notified<'a> {
    notify: &'a Notify,
    key: u64,
    /// The calls of `notify_waiters` before it was made.
    broadcasts: u64,
    done: bool,
}

impl Notified<'_> {
    /// Takes its place on the list. Returns `true` if it was notified before.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.get_mut().check(None)
    }

    fn check(&mut self, waker: Option<&Waker>) -> bool {
        if self.done {
            return true;
        }
        let key = self.key;
        let mut state = self.notify.lock();
        let chosen = state.chosen.iter().position(|chosen| *chosen == key);
        self.done = if let Some(at) = chosen {
            state.chosen.remove(at);
            true
        } else if state.broadcasts != self.broadcasts {
            true
        } else if let Some(listed) = state.waiters.iter_mut().find(|(listed, _)| *listed == key) {
            listed.1 = waker.cloned().or(listed.1.take());
            false
        } else if std::mem::take(&mut state.permit) {
            true
        } else {
            state.waiters.push_back((key, waker.cloned()));
            false
        };
        self.done
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.get_mut().check(Some(context.waker())) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if self.done || std::thread::panicking() {
            return;
        }
        let mut state = self.notify.lock();
        state.waiters.retain(|(key, _)| *key != self.key);
        let chosen = state.chosen.iter().position(|chosen| *chosen == self.key);
        let was_chosen = chosen.map(|at| state.chosen.remove(at)).is_some();
        let broadcast = state.broadcasts != self.broadcasts;
        drop(state);
        if was_chosen && !broadcast {
            // The notification is for one waiter, and this one has not used it.
            self.notify.notify_one();
        }
    }
}

/// In place of `tokio::sync::oneshot`.
pub mod oneshot {
    use super::{Arc, Context, Mutex, Pin, Poll, Waker};

    /// A channel for one value.
    pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let state = State { value: None, has_sender: true, waker: None };
        let shared = Arc::new(Mutex::new(state));
        (Sender(shared.clone()), Receiver(shared))
    }

    #[derive(Debug)]
    struct State<T> {
        value: Option<T>,
        has_sender: bool,
        waker: Option<Waker>,
    }

    type Shared<T> = Arc<Mutex<State<T>>>;

    const NO_PANIC: &str = "no code that could panic runs under this lock";

    /// In place of `tokio::sync::oneshot::Sender`.
    #[derive(Debug)]
    pub struct Sender<T>(Shared<T>);

    impl<T> Sender<T> {
        /// Sends the value, which is returned if there is no receiver.
        pub fn send(self, value: T) -> Result<(), T> {
            if Arc::strong_count(&self.0) == 1 {
                return Err(value);
            }
            // The drop of the sender wakes the receiver.
            self.0.lock().expect(NO_PANIC).value = Some(value);
            Ok(())
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                return;
            }
            let mut state = self.0.lock().expect(NO_PANIC);
            state.has_sender = false;
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// In place of `tokio::sync::oneshot::Receiver`.
    #[derive(Debug)]
    pub struct Receiver<T>(Shared<T>);

    /// In place of `tokio::sync::oneshot::error::RecvError`: the sender was dropped.
    #[derive(Debug)]
    pub struct NoSender;

    impl<T> Future for Receiver<T> {
        type Output = Result<T, NoSender>;

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            let mut state = self.0.lock().expect(NO_PANIC);
            if let Some(value) = state.value.take() {
                return Poll::Ready(Ok(value));
            }
            if !state.has_sender {
                return Poll::Ready(Err(NoSender));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        }
    }
}
