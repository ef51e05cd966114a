//! (grows in the commits that follow)
pub mod storage;
