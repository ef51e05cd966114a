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
        Ok(filter) => (Some(filter), None),
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
}
