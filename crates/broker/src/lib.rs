//! (grows in the commits that follow)
