//! Parses the attributes of `#[derive(Message)]`.

use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Expr, Fields, GenericArgument, Ident, LitInt, LitStr, PathArguments, Type,
};

/// An inclusive range of versions; open ends are `i16::MAX`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Versions {
    pub(crate) min: i16,
    pub(crate) max: i16,
}

impl Versions {
    pub(crate) const ALL: Self = Self { min: 0, max: i16::MAX };
    pub(crate) const NONE: Self = Self { min: 0, max: -1 };

    /// `true` if this range contains every version of `other`.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.min <= other.min && self.max >= other.max
    }

    fn parse(text: &LitStr) -> syn::Result<Self> {
        let value = text.value();
        let number = |part: &str| {
            part.parse::<i16>().map_err(|_| {
                Error::new(
                    text.span(),
                    format!("`{value}` is not a version range: use `3`, `3+`, `3-9` or `none`"),
                )
            })
        };
        Ok(match value.split_once('-') {
            _ if value == "none" => Self::NONE,
            Some((min, max)) => Self { min: number(min)?, max: number(max)? },
            None => match value.strip_suffix('+') {
                Some(min) => Self { min: number(min)?, max: i16::MAX },
                None => Self { min: number(&value)?, max: number(&value)? },
            },
        })
    }
}

/// The attributes of a struct.
pub(crate) struct Container {
    pub(crate) name: Ident,
    /// `None` for a nested struct, which has the versions of its message.
    pub(crate) message: Option<MessageAttributes>,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct MessageAttributes {
    pub(crate) versions: Versions,
    pub(crate) flexible: Versions,
    pub(crate) api: Option<Ident>,
    pub(crate) response: Option<Type>,
    /// `true` if the newest version may still change upstream.
    pub(crate) latest_unstable: bool,
}

pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) is_option: bool,
    pub(crate) versions: Versions,
    pub(crate) nullable: Versions,
    pub(crate) tag: Option<u32>,
    pub(crate) default: Option<Expr>,
    pub(crate) ignorable: bool,
}

impl Container {
    pub(crate) fn parse(input: &DeriveInput) -> syn::Result<Self> {
        let Data::Struct(data) = &input.data else {
            return Err(Error::new(input.span(), "a message must be a struct"));
        };
        let fields = match &data.fields {
            Fields::Named(fields) => fields.named.iter().map(Field::parse).collect::<syn::Result<_>>()?,
            Fields::Unit => Vec::new(),
            Fields::Unnamed(_) => return Err(Error::new(input.span(), "message fields must have names")),
        };
        let mut message = None;
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("message")) {
            let mut parsed = MessageAttributes {
                versions: Versions::ALL,
                flexible: Versions::NONE,
                api: None,
                response: None,
                latest_unstable: false,
            };
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("versions") {
                    parsed.versions = Versions::parse(&meta.value()?.parse()?)?;
                } else if meta.path.is_ident("flexible") {
                    parsed.flexible = Versions::parse(&meta.value()?.parse()?)?;
                } else if meta.path.is_ident("api") {
                    parsed.api = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("response") {
                    parsed.response = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("latest_unstable") {
                    parsed.latest_unstable = true;
                } else {
                    return Err(
                        meta.error("expected `versions`, `flexible`, `api`, `response`, `latest_unstable`")
                    );
                }
                Ok(())
            })?;
            if parsed.versions.max == i16::MAX {
                return Err(Error::new(attribute.span(), "a message needs `versions` with an upper bound"));
            }
            if parsed.api.is_some() != parsed.response.is_some() {
                return Err(Error::new(attribute.span(), "`api` and `response` require each other"));
            }
            message = Some(parsed);
        }
        Ok(Self { name: input.ident.clone(), message, fields })
    }
}

impl Field {
    fn parse(field: &syn::Field) -> syn::Result<Self> {
        let name =
            field.ident.clone().ok_or_else(|| Error::new(field.span(), "message fields must have names"))?;
        let is_option = is_option(&field.ty);
        let mut versions = None;
        let mut nullable = None;
        let mut tag = None;
        let mut default = None;
        let mut ignorable = false;
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("field")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("versions") {
                    versions = Some(Versions::parse(&meta.value()?.parse()?)?);
                } else if meta.path.is_ident("nullable") {
                    nullable = Some(Versions::parse(&meta.value()?.parse()?)?);
                } else if meta.path.is_ident("tag") {
                    tag = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
                } else if meta.path.is_ident("default") {
                    default = Some(meta.value()?.parse::<Expr>()?);
                } else if meta.path.is_ident("ignorable") {
                    ignorable = true;
                } else {
                    return Err(
                        meta.error("expected `versions`, `nullable`, `tag`, `default` or `ignorable`")
                    );
                }
                Ok(())
            })?;
        }
        if nullable.is_some() && !is_option {
            return Err(Error::new(field.span(), "a nullable field must be an `Option`"));
        }
        let versions = versions.unwrap_or(Versions::ALL);
        let nullable = match nullable {
            Some(nullable) => nullable,
            None if is_option => versions,
            None => Versions::NONE,
        };
        Ok(Self { name, ty: field.ty.clone(), is_option, versions, nullable, tag, default, ignorable })
    }

    /// `true` for the text of an error, by Kafka's names.
    pub(crate) fn is_error_message(&self) -> bool {
        self.is_option && self.name.to_string().ends_with("error_message")
    }
}

/// `true` if `ty` is spelled `Option<..>`.
fn is_option(ty: &Type) -> bool {
    last_segment(ty).is_some_and(|segment| segment.ident == "Option")
}

/// `T` of `Option<T>`.
pub(crate) fn option_inner(ty: &Type) -> Option<&Type> {
    let segment = last_segment(ty).filter(|segment| segment.ident == "Option")?;
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
            GenericArgument::Type(inner) => Some(inner),
            _ => None,
        },
        _ => None,
    }
}

/// The last name of a path type: `String` of `std::string::String`.
pub(crate) fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}
