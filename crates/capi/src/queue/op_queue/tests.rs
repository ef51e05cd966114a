//! The contract of a queue.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use super::*;
use crate::ffi::panic::on_panic;

fn noop() -> Op {
    Op::Nothing
}

#[test]
fn what_is_forwarded_comes_where_the_forwarding_ends() {
    let (main, consumer, application) = (OpQueue::new(), OpQueue::new(), OpQueue::new());
    main.push(noop());
    main.forward_to(Some(&consumer));
    consumer.forward_to(Some(&application));
    main.push(noop());
    assert_eq!((main.len(), application.len()), (2, 2), "asked of any of them");
    assert!(application.poll(Some(Duration::ZERO)).is_some());
    // A circular forwarding is ignored. The end of a forwarding does not return operations.
    application.forward_to(Some(&main));
    consumer.forward_to(None);
    main.push(noop());
    assert_eq!((consumer.len(), application.len()), (1, 1));
}

/// The old forwarding of a queue hid that the new one comes back to it: every thread that used it was in an endless loop.
#[test]
fn a_queue_with_a_forwarding_is_not_forwarded_in_a_circle() {
    let (first, second, application) = (OpQueue::new(), OpQueue::new(), OpQueue::new());
    first.forward_to(Some(&application));
    first.forward_to(Some(&first));
    second.forward_to(Some(&first));
    first.forward_to(Some(&second));
    second.push(noop());
    assert_eq!(application.len(), 1);
}

#[test]
fn a_source_is_drawn_from_where_the_forwarding_ends() {
    struct Endless;
    impl OpSource for Endless {
        fn draw(&self) -> Option<Op> {
            Some(noop())
        }
        fn len(&self) -> usize {
            1
        }
    }
    let (main, consumer) = (OpQueue::new(), OpQueue::new());
    main.set_source(Some(Arc::new(Endless)));
    assert!(consumer.poll(Some(Duration::ZERO)).is_none());
    main.forward_to(Some(&consumer));
    assert!(consumer.poll(Some(Duration::ZERO)).is_some());
    main.forward_to(None);
    assert!(consumer.poll(Some(Duration::ZERO)).is_none() && main.poll(Some(Duration::ZERO)).is_some());
    main.close();
    assert!(main.poll(None).is_none(), "no thread waits at a closed queue");
}

#[test]
fn who_waits_is_woken_by_an_operation_and_by_a_yield() {
    let queue = OpQueue::new();
    for wake in [OpQueue::yield_once as fn(&Arc<OpQueue>), |queue| queue.push(noop())] {
        let waiting = std::thread::spawn({
            let queue = queue.clone();
            move || queue.poll(Some(Duration::from_secs(60))).is_some()
        });
        while queue.lock().waiting == 0 && !waiting.is_finished() {
            std::thread::yield_now();
        }
        wake(&queue);
        waiting.join().expect("no panic");
    }
}

/// A thread that polls `queue` without a limit, and waits at `end`.
fn poll_that_waits(queue: &Arc<OpQueue>, end: &Arc<OpQueue>) -> JoinHandle<bool> {
    let waiting = std::thread::spawn({
        let queue = queue.clone();
        move || queue.poll(None).is_some()
    });
    while end.lock().waiting == 0 && !waiting.is_finished() {
        std::thread::yield_now();
    }
    waiting
}

/// Returns `true` if the poll returned an operation.
fn result_of(waiting: JoinHandle<bool>) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !waiting.is_finished() {
        assert!(Instant::now() < deadline, "the poll still waits");
        std::thread::yield_now();
    }
    waiting.join().expect("no panic")
}

/// It waited at the end of the forwarding, which stays open: a thread in `rd_kafka_poll` never returned.
#[test]
fn a_wait_ends_when_the_queue_where_it_began_is_closed() {
    let (main, application) = (OpQueue::new(), OpQueue::new());
    main.forward_to(Some(&application));
    let waiting = poll_that_waits(&main, &application);
    main.close();
    assert!(!result_of(waiting));
}

/// It stayed at the former end, where nothing arrived any more.
#[test]
fn a_wait_follows_a_change_of_the_forwarding() {
    let [main, consumer, first, second] = [(); 4].map(|()| OpQueue::new());
    main.forward_to(Some(&consumer));
    consumer.forward_to(Some(&first));
    let waiting = poll_that_waits(&main, &first);
    consumer.forward_to(Some(&second));
    main.push(noop());
    assert!(result_of(waiting));
}

/// The bytes that arrived since the last call.
fn arrived(end: &mut UnixStream) -> usize {
    // Reading nothing is an error of this descriptor.
    end.read(&mut [0; 64]).unwrap_or(0)
}

fn drain(queue: &Arc<OpQueue>) {
    while queue.poll(Some(Duration::ZERO)).is_some() {}
}

/// Each operation was written, and so was each wake-up without one.
#[test]
fn a_descriptor_gets_one_payload_until_the_next_poll() {
    let (mut end, own) = UnixStream::pair().expect("two descriptors");
    end.set_nonblocking(true).expect("a descriptor that does not block");
    let queue = OpQueue::new();
    queue.enable_io(Some((own.as_raw_fd(), b"x".to_vec())));
    queue.ring();
    assert_eq!(arrived(&mut end), 0, "there is no operation");
    for _ in 0..3 {
        queue.push(noop());
    }
    assert_eq!(arrived(&mut end), 1);
    drain(&queue);
    assert_eq!(arrived(&mut end), 0);
    queue.push(noop());
    assert_eq!(arrived(&mut end), 1);
    drain(&queue);
    queue.yield_once();
    assert_eq!(arrived(&mut end), 1, "as in the original");
}

/// The operations that were notified were polled at the other queue, and nothing was notified after the end of the forwarding.
#[test]
fn a_descriptor_learns_of_events_after_a_forwarding() {
    let (own, mut end) = UnixStream::pair().expect("two descriptors");
    end.set_nonblocking(true).expect("a descriptor that does not block");
    let (queue, other) = (OpQueue::new(), OpQueue::new());
    queue.enable_io(Some((own.as_raw_fd(), b"x".to_vec())));
    queue.push(noop());
    assert_eq!(arrived(&mut end), 1);
    queue.forward_to(Some(&other));
    drain(&other);
    queue.forward_to(None);
    queue.push(noop());
    assert_eq!(arrived(&mut end), 1);
}

#[on_panic(())]
unsafe extern "C" fn count(_: *mut rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: the counter of the test.
    unsafe { &*opaque.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
}

/// It was called for each operation, and for each report of a source that had been there before.
#[test]
fn the_function_of_a_queue_is_called_once_until_the_next_poll() {
    #[derive(Default)]
    struct Source(AtomicUsize);
    impl OpSource for Source {
        fn draw(&self) -> Option<Op> {
            let one_less = |left: usize| left.checked_sub(1);
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).ok().map(|_| noop())
        }
        fn len(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }
    let (main, application, source) = (OpQueue::new(), OpQueue::new(), Arc::new(Source::default()));
    let calls = AtomicUsize::new(0);
    application.enable_call(Some(count), std::ptr::null_mut(), (&raw const calls).cast_mut().cast());
    main.set_source(Some(source.clone()));
    main.forward_to(Some(&application));
    assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing has come");
    for expected in 1..=2 {
        for _ in 0..3 {
            source.0.fetch_add(1, Ordering::Relaxed);
            main.ring();
            main.push(noop());
        }
        assert_eq!(calls.load(Ordering::Relaxed), expected);
        drain(&application);
    }
    application.enable_call(None, std::ptr::null_mut(), std::ptr::null_mut());
}
