//! `#[on_panic(VALUE)]`: the panic boundary around functions that C calls.
//!
//! Without dependencies: the function's body is its last token, and the attribute reads no more of it than that.

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// Runs the whole body of an `extern "C"` function inside `crate::ffi::panic::guard`. The function returns `VALUE` if the
/// body panics; `VALUE` is only evaluated then.
///
/// The body can use the constant `FUNCTION`, the name of the function.
///
/// ```ignore
/// #[on_panic(null_mut())]
/// #[unsafe(no_mangle)]
/// pub unsafe extern "C" fn rd_kafka_queue_new(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t { .. }
/// ```
#[proc_macro_attribute]
pub fn on_panic(value: TokenStream, function: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    if value.is_empty() {
        return error("the value on panic is missing: `#[on_panic(null_mut())]`, or `#[on_panic(())]`");
    }
    let body = match tokens.pop() {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        _ => return error("`on_panic` needs a function with a body"),
    };
    if !tokens.iter().any(|token| matches!(token, TokenTree::Ident(word) if word.to_string() == "extern")) {
        return error("`on_panic` is for `extern \"C\"` functions");
    }
    let body = with_name(&function_name(&tokens), &body);
    tokens.push(guarded(value, returned(&tokens), body).into());
    tokens.into_iter().collect()
}

/// `{ crate::ffi::panic::guard(|| VALUE, move || -> TYPE BODY) }`. The type is repeated, so that the body is checked as
/// without the attribute.
fn guarded(value: TokenStream, returned: &[TokenTree], body: Group) -> Group {
    let mut arguments = TokenStream::new();
    arguments.extend(closure());
    arguments.extend(value);
    arguments.extend([TokenTree::from(Punct::new(',', Spacing::Alone)), word("move")]);
    arguments.extend(closure());
    arguments.extend(returned.iter().cloned());
    arguments.extend([TokenTree::from(body)]);
    let mut call = TokenStream::new();
    call.extend([word("crate")]);
    for name in ["ffi", "panic", "guard"] {
        call.extend(pair(':', ':'));
        call.extend([word(name)]);
    }
    call.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, arguments))]);
    Group::new(Delimiter::Brace, call)
}

/// The identifier after `fn`.
fn function_name(signature: &[TokenTree]) -> String {
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let name = signature.iter().position(is_fn).and_then(|at| signature.get(at + 1));
    name.map(ToString::to_string).unwrap_or_default()
}

/// The body after `const FUNCTION: &str = NAME;`.
fn with_name(name: &str, body: &Group) -> Group {
    let constant = format!("#[allow(dead_code)] const FUNCTION: &str = {:?};", name.trim());
    let mut tokens: TokenStream = constant.parse().unwrap_or_default();
    tokens.extend(body.stream());
    Group::new(Delimiter::Brace, tokens)
}

/// `-> TYPE` of the signature, or nothing.
fn returned(signature: &[TokenTree]) -> &[TokenTree] {
    let is = |token: &TokenTree, wanted| matches!(token, TokenTree::Punct(own) if own.as_char() == wanted);
    let arrow = signature.windows(2).position(|two| is(&two[0], '-') && is(&two[1], '>'));
    arrow.map_or(&[], |at| &signature[at..])
}

fn closure() -> [TokenTree; 2] {
    pair('|', '|')
}

fn pair(first: char, second: char) -> [TokenTree; 2] {
    [Punct::new(first, Spacing::Joint).into(), Punct::new(second, Spacing::Alone).into()]
}

fn word(name: &str) -> TokenTree {
    Ident::new(name, Span::call_site()).into()
}

fn error(text: &str) -> TokenStream {
    format!("compile_error!({text:?});").parse().unwrap_or_default()
}
