//! Handles: the values that C gets in place of addresses.
//!
//! A handle names a kind of object, a slot and a generation of that slot. A call looks the slot up and compares the
//! generation, so a destroyed handle is detected at any later time and no freed memory is read. The object stays while a
//! call uses it: its thread has a mark that a destroy looks for.

pub(crate) mod exclusive;
pub(crate) mod handle_table;
pub(crate) mod misuse_report;
pub(crate) mod slot_table;
pub(crate) mod use_marks;
