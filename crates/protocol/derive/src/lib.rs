//! `#[derive(Message)]`: from a struct and its attributes to encoder, decoder, defaults and schema.
//!
//! ```text
//! #[message(api = Produce, versions = "3-13", flexible = "9+", response = ProduceResponse)]   on a request
//! #[message(versions = "3-13", flexible = "9+")]                                              on a response
//!                                                                                  nothing on nested structs
//! #[field(versions = "3+", nullable = "3+", tag = 0, default = null, ignorable)]     each part is optional
//! ```
//!
//! Without `versions` a field is in every version. `Option` types are nullable in every version unless `nullable`
//! says otherwise. `default` is what a version without the field decodes to, and what a tagged field is not written
//! for. The derive writes `Default`, so do not derive it as well.

mod attributes;
mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Writes the wire form of a Kafka message, or of a struct inside one. See the crate page for the attributes.
#[proc_macro_derive(Message, attributes(message, field))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    attributes::Container::parse(&input)
        .map_or_else(syn::Error::into_compile_error, |container| expand::expand(&container))
        .into()
}
