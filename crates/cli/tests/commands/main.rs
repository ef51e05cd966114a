//! The `ottla` binary as its users run it, against a broker in this process.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod administration;
mod diagnoses;
mod endpoint;
mod faults;
mod feedback;
mod groups;
mod handlers;
mod imports;
mod interrupts;
mod letters;
mod logs;
mod operation;
mod outputs;
mod security;
mod share_groups;
mod support;
mod warnings;
