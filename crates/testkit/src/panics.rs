//! The panics of a run: Tokio catches those of tasks, and a test would pass without the task.

use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::Once;

thread_local! {
    /// The panics of this thread since the start of its run, oldest first.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Forgets the panics of this thread, and records the next ones.
pub(crate) fn begin() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let other = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            record(info);
            other(info);
        }));
    });
    drop(take());
}

/// Returns the panics of this thread, and forgets them.
pub(crate) fn take() -> Vec<String> {
    PANICS.with_borrow_mut(std::mem::take)
}

fn record(info: &PanicHookInfo<'_>) {
    let text = info.to_string();
    // A panic of a thread that ends, or of the code above, is only printed.
    let _ = PANICS.try_with(|panics| {
        if let Ok(mut panics) = panics.try_borrow_mut() {
            panics.push(text);
        }
    });
}
