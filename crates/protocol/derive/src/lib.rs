//! Derive for the wire schema.
