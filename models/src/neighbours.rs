//! The types that a modelled file imports, with as much of them as the file uses and no synchronisation of their own.

pub mod delivery;
pub mod exchange;
pub mod exclusive;
pub mod inbox;
#[allow(non_camel_case_types, reason = "the names of C")]
pub mod op_queue;
pub mod panics;
pub mod produce_memory;
pub mod slab;
