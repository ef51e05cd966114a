//! The `ottla` binary as its users run it, against a broker in this process.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod diagnoses;
mod faults;
mod groups;
mod handlers;
mod imports;
mod interrupts;
mod letters;
mod logs;
mod support;
mod warnings;
