//! Models of the hand-written synchronisation.
//!
//! The build script copies the shipped files and gives them the types of [`under_loom`] or [`under_shuttle`] in place of
//! those of the standard library and of Tokio. The models are the tests of this crate. See `docs/RELIABILITY.md`.

pub mod neighbours;
pub mod run;
pub mod timer;
pub mod under_loom;
pub mod under_shuttle;

include!(concat!(env!("OUT_DIR"), "/copies.rs"));
