//! Generates the code of `#[derive(Message)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::Expr;
use syn::ext::IdentExt;

use crate::attributes::{Container, Field, Versions, last_segment, option_inner};

pub(crate) fn expand(container: &Container) -> TokenStream {
    let default = default_impl(container);
    let field = field_impl(container);
    let message = message_impl(container);
    quote! { #default #field #message }
}

fn default_impl(container: &Container) -> TokenStream {
    let name = &container.name;
    let fields = container.fields.iter().map(|field| {
        let (ident, value) = (&field.name, default_value(field));
        quote! { #ident: #value }
    });
    quote! {
        #[automatically_derived]
        impl ::core::default::Default for #name {
            #[inline]
            fn default() -> Self {
                Self { #(#fields,)* }
            }
        }
    }
}

/// The `Field` implementation, for structs inside messages.
fn field_impl(container: &Container) -> TokenStream {
    let name = &container.name;
    let text = name.to_string();
    let schema = container.fields.iter().map(field_schema);
    let always = container
        .fields
        .iter()
        .filter(|field| field.tag.is_none() && field.versions == Versions::ALL)
        .map(|field| &field.ty);
    let write = write_body(container);
    let read = read_body(container);
    quote! {
        #[automatically_derived]
        impl ::ottla_protocol::field::Field for #name {
            const TYPE: ::ottla_protocol::schema::FieldType =
                ::ottla_protocol::schema::FieldType::Struct(&::ottla_protocol::schema::StructSchema {
                    name: #text,
                    fields: &[#(#schema),*],
                });
            const BYTES_MIN: usize = 0 #(+ <#always as ::ottla_protocol::field::Field>::BYTES_MIN)*;

            fn write(
                &self,
                out: &mut ::ottla_protocol::Encoder,
                form: ::ottla_protocol::field::Form,
            ) -> ::core::result::Result<(), ::ottla_protocol::EncodeError> {
                #write
            }

            fn read(
                input: &mut ::ottla_protocol::Decoder,
                form: ::ottla_protocol::field::Form,
            ) -> ::core::result::Result<Self, ::ottla_protocol::DecodeError> {
                #read
            }
        }

        #[automatically_derived]
        impl ::ottla_protocol::field::Nullable for #name {}
    }
}

fn write_body(container: &Container) -> TokenStream {
    let mut body = TokenStream::new();
    for field in container.fields.iter().filter(|field| field.tag.is_none()) {
        let write = write_value(field);
        body.extend(match in_version(field.versions) {
            None => write,
            Some(condition) => {
                let absent = absent_check(field);
                quote! { if #condition { #write } #absent }
            }
        });
    }
    let mut tagged: Vec<&Field> = container.fields.iter().filter(|field| field.tag.is_some()).collect();
    tagged.sort_by_key(|field| field.tag);
    for field in &tagged {
        // A tagged field needs a flexible version as well as its own range.
        let absent = absent_check(field);
        if let (Some(condition), false) = (in_version(field.versions), absent.is_empty()) {
            body.extend(quote! { if #condition {} #absent });
        }
    }
    let present = tagged.iter().map(|field| {
        let differs = differs_from_default(field);
        match in_version(field.versions) {
            None => differs,
            Some(condition) => quote! { (#condition && #differs) },
        }
    });
    let count = quote! { 0_u32 #(+ u32::from(#present))* };
    let writes = tagged.iter().map(|field| {
        let tag = field.tag;
        let differs = differs_from_default(field);
        let condition = match in_version(field.versions) {
            None => differs,
            Some(condition) => quote! { #condition && #differs },
        };
        let write = write_value(field);
        quote! {
            if #condition {
                out.put_unsigned_varint(#tag);
                let start = out.mark();
                #write
                out.prefix_with_size(start);
            }
        }
    });
    body.extend(quote! {
        if form.flexible {
            out.put_unsigned_varint(#count);
            #(#writes)*
        }
        ::core::result::Result::Ok(())
    });
    body
}

/// Code that writes a field in a version that has it.
fn write_value(field: &Field) -> TokenStream {
    let (ident, name) = (&field.name, field.name.unraw().to_string());
    let null_check = (field.is_option && !field.nullable.covers(field.versions)).then(|| {
        let nullable = in_version(field.nullable);
        quote! {
            if self.#ident.is_none() && !(#nullable) {
                return ::core::result::Result::Err(::ottla_protocol::EncodeError::null(#name));
            }
        }
    });
    let write = if field.is_error_message() {
        quote! { ::ottla_protocol::field::write_error_message(self.#ident.as_deref(), out, form) }
    } else {
        quote! { ::ottla_protocol::field::Field::write(&self.#ident, out, form) }
    };
    quote! {
        #null_check
        if let ::core::result::Result::Err(error) = #write {
            return ::core::result::Result::Err(error.within(#name));
        }
    }
}

/// The `else` branch for a version without the field: a value that would be lost is an error.
fn absent_check(field: &Field) -> TokenStream {
    if field.ignorable {
        return TokenStream::new();
    }
    let name = field.name.unraw().to_string();
    let differs = differs_from_default(field);
    quote! {
        else if #differs {
            return ::core::result::Result::Err(::ottla_protocol::EncodeError::unsupported(#name, form.version));
        }
    }
}

fn read_body(container: &Container) -> TokenStream {
    let mut body = TokenStream::new();
    for field in &container.fields {
        let (ident, ty, default) = (&field.name, &field.ty, default_value(field));
        if field.tag.is_some() {
            body.extend(quote! { let mut #ident: #ty = #default; });
            continue;
        }
        let read = read_value(field);
        body.extend(match in_version(field.versions) {
            None => quote! { let #ident: #ty = #read; },
            Some(condition) => quote! { let #ident: #ty = if #condition { #read } else { #default }; },
        });
    }
    let tagged = container.fields.iter().filter_map(|field| {
        let tag = field.tag?;
        let (ident, read) = (&field.name, read_value(field));
        let guard = in_version(field.versions).map(|condition| quote! { if #condition });
        Some(quote! { #tag #guard => { #ident = #read; } })
    });
    let tags = if container.fields.iter().any(|field| field.tag.is_some()) {
        quote! {
            for _ in 0..input.unsigned_varint()? {
                let (tag, size) = input.tag()?;
                let start = input.position();
                match tag {
                    #(#tagged)*
                    _ => input.skip(size)?,
                }
                input.end_tag(tag, start, size)?;
            }
        }
    } else {
        quote! { input.skip_tags()?; }
    };
    let idents = container.fields.iter().map(|field| &field.name);
    quote! {
        #body
        if form.flexible { #tags }
        ::core::result::Result::Ok(Self { #(#idents),* })
    }
}

/// Code that reads a field in a version that has it.
fn read_value(field: &Field) -> TokenStream {
    let (ty, name) = (&field.ty, field.name.unraw().to_string());
    let null_check = (field.is_option && !field.nullable.covers(field.versions)).then(|| {
        let nullable = in_version(field.nullable);
        quote! {
            ::core::result::Result::Ok(::core::option::Option::None) if !(#nullable) => {
                return ::core::result::Result::Err(input.null().within(#name));
            }
        }
    });
    quote! {
        match <#ty as ::ottla_protocol::field::Field>::read(input, form) {
            #null_check
            ::core::result::Result::Ok(value) => value,
            ::core::result::Result::Err(error) => return ::core::result::Result::Err(error.within(#name)),
        }
    }
}

/// The `Message` and `Request` implementations, for whole messages.
fn message_impl(container: &Container) -> Option<TokenStream> {
    let message = container.message.as_ref()?;
    let name = &container.name;
    let text = name.to_string();
    let Versions { min, max } = message.versions;
    let stable_max = max - i16::from(message.latest_unstable);
    let flexible_from = if message.flexible == Versions::NONE { i16::MAX } else { message.flexible.min };
    let request = message.api.as_ref().map(|api| {
        let response = &message.response;
        quote! {
            #[automatically_derived]
            impl ::ottla_protocol::Request for #name {
                const KEY: ::ottla_protocol::ApiKey = ::ottla_protocol::ApiKey::#api;
                type Response = #response;
            }
        }
    });
    let throttle = container.fields.iter().any(|field| field.name == "throttle_time_ms").then(|| {
        quote! {
            fn throttle_time_ms(&self) -> i32 {
                self.throttle_time_ms
            }
        }
    });
    Some(quote! {
        #[automatically_derived]
        impl ::ottla_protocol::Message for #name {
            const NAME: &'static str = #text;
            const VERSIONS: ::core::ops::RangeInclusive<i16> = #min..=#max;
            const STABLE_VERSIONS: ::core::ops::RangeInclusive<i16> = #min..=#stable_max;
            const FLEXIBLE_FROM: i16 = #flexible_from;
            #throttle
        }
        #request
    })
}

fn field_schema(field: &Field) -> TokenStream {
    let (name, ty, ignorable) = (field.name.unraw().to_string(), &field.ty, field.ignorable);
    let tag = field.tag.map_or_else(
        || quote! { ::core::option::Option::None },
        |tag| quote! { ::core::option::Option::Some(#tag) },
    );
    let (versions, nullable) = (versions_value(field.versions), versions_value(field.nullable));
    let default = match &field.default {
        None => String::new(),
        Some(Expr::Lit(literal)) => match &literal.lit {
            syn::Lit::Str(text) => text.value(),
            syn::Lit::Int(number) => number.base10_digits().to_owned(),
            other => other.to_token_stream().to_string(),
        },
        Some(other) => other.to_token_stream().to_string().replace(' ', ""),
    };
    quote! {
        ::ottla_protocol::schema::FieldSchema {
            name: #name,
            ty: <#ty as ::ottla_protocol::field::Field>::TYPE,
            versions: #versions,
            nullable: #nullable,
            tag: #tag,
            default: #default,
            ignorable: #ignorable,
        }
    }
}

fn versions_value(Versions { min, max }: Versions) -> TokenStream {
    quote! { ::ottla_protocol::schema::Versions { min: #min, max: #max } }
}

/// The condition that `form.version` is in `versions`; `None` if it always is.
fn in_version(versions: Versions) -> Option<TokenStream> {
    let Versions { min, max } = versions;
    match (min, max) {
        (0, i16::MAX) => None,
        _ if max < min => Some(quote! { false }),
        (min, i16::MAX) => Some(quote! { form.version >= #min }),
        (0, max) => Some(quote! { form.version <= #max }),
        (min, max) if min == max => Some(quote! { form.version == #min }),
        (min, max) => Some(quote! { (form.version >= #min && form.version <= #max) }),
    }
}

fn default_value(field: &Field) -> TokenStream {
    let ty = &field.ty;
    let Some(default) = &field.default else {
        return match option_inner(ty) {
            // Kafka's default for records is null. For all other types it is the empty value, even if null is
            // allowed.
            Some(inner) if last_segment(inner).is_some_and(|segment| segment.ident == "Chain") => {
                quote! { ::core::option::Option::None }
            }
            Some(inner) => {
                quote! { ::core::option::Option::Some(<#inner as ::core::default::Default>::default()) }
            }
            None => quote! { <#ty as ::core::default::Default>::default() },
        };
    };
    if let Expr::Path(path) = default
        && path.path.is_ident("null")
    {
        return quote! { ::core::option::Option::None };
    }
    let value = match default {
        Expr::Lit(literal) if matches!(literal.lit, syn::Lit::Str(_)) => {
            quote! { ::std::string::String::from(#default) }
        }
        _ => quote! { #default },
    };
    if field.is_option {
        quote! { ::core::option::Option::Some(#value) }
    } else {
        value
    }
}

fn differs_from_default(field: &Field) -> TokenStream {
    let ident = &field.name;
    let default = default_value(field);
    quote! { (self.#ident != #default) }
}
