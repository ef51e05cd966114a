//! `sasl.jaas.config`: the name of a login module and its options.

use super::Password;

/// The options of `MODULE required NAME="VALUE" ...;`, for a module whose name ends with `module`. None for an empty text.
pub(super) fn options(property: &str, text: &str, module: &str) -> Result<Vec<(String, Password)>, String> {
    let mut options = Vec::new();
    let mut rest = text.trim();
    if rest.is_empty() {
        return Ok(options);
    }
    let (found, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if !found.ends_with(module) {
        return Err(format!("{property}: `{found}` is no {module}"));
    }
    rest = after;
    while let Some((before, after)) = rest.split_once('=') {
        let name = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let (value, after) =
            value(after.trim_start()).ok_or_else(|| format!("{property}: the value of {name} has no end"))?;
        options.push((name.to_owned(), value.into()));
        rest = after;
    }
    Ok(options)
}

/// A value, quoted or not, and the text after it.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}
