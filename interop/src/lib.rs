//! (grows)
