//! `#[derive(Message)]`: generates encoder, decoder, defaults and schema from a struct and its attributes.
//!
//! ```text
//! #[message(api = Produce, versions = "3-13", flexible = "9+", response = ProduceResponse)]   on a request
//! #[message(versions = "3-13", flexible = "9+")]                                              on a response
//!                                                                                  nothing on nested structs
//! #[field(versions = "3+", nullable = "3+", tag = 0, default = null, ignorable)]     each part is optional
//! ```
//!
//! Without `versions` a field is in every version. `Option` types are nullable in every version unless `nullable` is
//! set. `default` is the decoded value in versions without the field. A tagged field with this value is not written.
//! A text with a name that ends with `error_message` is cut to the limit of strings when it is written.
//! The derive implements `Default`, so do not derive it as well.

mod attributes;
mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements the wire format of a Kafka message, or of a struct inside one. The attributes are described in the
/// crate documentation.
#[proc_macro_derive(Message, attributes(message, field))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    attributes::Container::parse(&input)
        .map_or_else(syn::Error::into_compile_error, |container| expand::expand(&container))
        .into()
}
