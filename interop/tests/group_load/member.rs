//! A group member in its own thread. It executes commands and records events in the group's book.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use ottla_client::{Client, Consumer, Error, Event, Polled, Stall, TopicPartition};

use super::book::Book;

const TURN: Duration = Duration::from_millis(50);
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// A command for a member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Does {
    Polls,
    /// Stays a member without polling.
    Stalls,
    /// Leaves the group.
    Leaves,
    /// Disappears without leaving.
    Dies,
}

pub(crate) struct Member {
    does: Arc<AtomicU8>,
    thread: JoinHandle<()>,
}

impl Member {
    pub(crate) fn join(number: usize, client: Client, topic: &str, book: &Arc<Mutex<Book>>) -> Self {
        let does = Arc::new(AtomicU8::new(Does::Polls as u8));
        let (command, topic, book) = (does.clone(), topic.to_owned(), book.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let mut consumer = client.consumer();
            runtime.block_on(consumer.subscribe(&[&topic])).expect("subscribed");
            let partitions = lock(&book).partitions();
            let all =
                (0..partitions).map(|partition| TopicPartition::new(&topic, partition as i32)).collect();
            let mut seat = Seat { number, client, consumer, book, all };
            loop {
                match command.load(Ordering::Relaxed) {
                    does if does == Does::Stalls as u8 => std::thread::sleep(TURN),
                    does if does == Does::Leaves as u8 => {
                        let (consumer, book) = (seat.consumer, seat.book);
                        if let Err(error) = consumer.close_blocking(CLOSE_WITHIN) {
                            lock(&book).note(None, format!("member {number} closes: {error}"));
                        }
                        return;
                    }
                    does if does == Does::Dies as u8 => return,
                    _ => seat.turn(&runtime),
                }
            }
        });
        Self { does, thread }
    }

    pub(crate) fn tell(&self, does: Does) {
        self.does.store(does as u8, Ordering::Relaxed);
    }

    /// Waits for the end of a member after its last command.
    pub(crate) fn gone(self) {
        self.thread.join().expect("the member's thread");
    }
}

struct Seat {
    number: usize,
    client: Client,
    consumer: Consumer,
    book: Arc<Mutex<Book>>,
    all: Vec<TopicPartition>,
}

impl Seat {
    fn turn(&mut self, runtime: &tokio::runtime::Runtime) {
        let polled = self.consumer.poll_blocking(TURN);
        self.claim(runtime);
        let (number, mut book) = (self.number, lock(&self.book));
        while let Some(report) = self.client.stalls().try_next() {
            let partition = match &report.stall {
                Stall::Consuming { partition, .. } => Some(*partition as usize),
                _ => None,
            };
            book.note(partition, format!("member {number}: {report}"));
        }
        match polled {
            Ok(Some(Polled::Records(batch))) => {
                for record in &batch {
                    let value = record.expect("a sound record").value.unwrap_or_default();
                    let value = std::str::from_utf8(value).expect("a number").parse().expect("a number");
                    book.handles(number, batch.partition() as usize, value);
                }
            }
            Ok(Some(Polled::Event(event))) => {
                if let Event::Assigned(partitions) | Event::Revoked(partitions) | Event::Lost(partitions) =
                    &event
                {
                    for at in partitions {
                        book.note(Some(at.partition as usize), format!("member {number}: {event:?}"));
                    }
                }
                if let Event::Assigned(partitions) = event {
                    for at in &partitions {
                        book.begins(number, at.partition as usize);
                    }
                }
            }
            Ok(_) => {}
            Err(error @ Error::PollIntervalExceeded { .. }) => {
                book.note(None, format!("member {number}: {error}"));
            }
            Err(error) => book.broken.push(format!("member {number} got the error: {error}")),
        }
    }

    /// Its assignment, if its generation is unchanged during the check.
    fn claim(&self, runtime: &tokio::runtime::Runtime) {
        let generation = || {
            let metadata = runtime.block_on(self.consumer.group_metadata()).expect("a group");
            metadata.generation
        };
        let before = generation();
        let owned = (0..self.all.len()).filter(|at| self.consumer.position(&self.all[*at]).is_some());
        let owned: Vec<usize> = owned.collect();
        if before >= 0 && before == generation() {
            lock(&self.book).owns(self.number, before, &owned);
        }
    }
}

pub(crate) fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().expect("not poisoned")
}
