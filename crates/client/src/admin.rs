//! Topics, groups and offsets, seen from above.
