//! The filter of the log: that of `OTTLA_LOG`, or the level of `-v`.

use std::ffi::OsStr;

use tracing_subscriber::EnvFilter;

const VARIABLE: &str = "OTTLA_LOG";

/// Returns the filter, if one is set, and a warning about a variable that is no filter.
pub(crate) fn read(verbose: u8) -> (Option<EnvFilter>, Option<String>) {
    filter_of(std::env::var_os(VARIABLE).as_deref(), verbose)
}

fn filter_of(variable: Option<&OsStr>, verbose: u8) -> (Option<EnvFilter>, Option<String>) {
    let of_options = match verbose {
        0 => None,
        1 => Some("info"),
        2 => Some("debug"),
        _ => Some("trace"),
    };
    let of_options = of_options.map(EnvFilter::new);
    // An empty filter would hide even the warnings.
    let Some(text) = variable.filter(|text| !text.is_empty()) else { return (of_options, None) };
    let text = text.to_string_lossy();
    match EnvFilter::try_new(&text) {
        Ok(filter) => (Some(filter), mistaken_target(&text)),
        Err(error) => {
            let remedy = "use a level such as `debug`, or TARGET=LEVEL with commas between them";
            (
                of_options,
                Some(format!(
                    "{VARIABLE}=`{text}` is ignored, it is no filter of the log: {error}; {remedy}"
                )),
            )
        }
    }
}

/// A warning about a filter that hides the warnings because a word in it is no level, such as `warning`: it is the name of a target,
/// and enables all events of that target only.
fn mistaken_target(text: &str) -> Option<String> {
    let is_bare = |part: &&str| !part.is_empty() && !part.contains(['=', '[']);
    let bare: Vec<&str> = text.split(',').map(str::trim).filter(is_bare).collect();
    // The targets of our own crates begin with `ottla`. With a level, the other targets are shown, too.
    if bare.iter().any(|part| is_level(part) || part.starts_with("ottla")) {
        return None;
    }
    let target = bare.first()?;
    Some(format!(
        "{VARIABLE}=`{text}`: `{target}` is no level but the name of a target, and the filter shows only this target's events; the levels are {}",
        LEVELS.join(", ")
    ))
}

fn is_level(text: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text))
        || text.bytes().all(|byte| byte.is_ascii_digit())
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(variable: Option<&str>, verbose: u8) -> (Option<String>, bool) {
        let (filter, warning) = filter_of(variable.map(OsStr::new), verbose);
        (filter.map(|filter| filter.to_string()), warning.is_some())
    }

    /// An empty variable hid the warnings and `-v`, and a wrong one was ignored without a word.
    #[test]
    fn the_variable_wins_over_the_option_if_it_is_a_filter() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(filter(None, 0), (None, false));
        assert_eq!(filter(Some(""), 0), (None, false));
        assert_eq!(filter(Some(""), 2), (some("debug"), false));
        assert_eq!(filter(Some("ottla=trace"), 1), (some("ottla=trace"), false));
        assert_eq!(filter(Some("ottla=loud"), 0), (None, true));
        assert_eq!(filter(Some("["), 1), (some("info"), true));
    }

    /// `warning` hid all warnings without a word.
    #[test]
    fn a_target_that_looks_like_a_level_has_a_warning() {
        for text in ["warning", "verbose,hyper=info", "WARNING"] {
            let warning = filter_of(Some(OsStr::new(text)), 0).1.expect("a warning");
            assert!(warning.contains("is no level") && warning.contains("warn, info"), "{warning}");
        }
        for text in ["warn", "WARN", "3", "off", "ottla", "ottla_client", "info,hyper", "hyper=warn"] {
            assert_eq!(filter_of(Some(OsStr::new(text)), 0).1, None, "{text}");
        }
    }
}
