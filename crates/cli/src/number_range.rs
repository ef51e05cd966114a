//! Texts of usage errors about numbers: the argument, the value and the range that it allows.

use std::any::TypeId;
use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// The reasons of the parsers of integers, which name no range.
const WITHOUT_RANGE: [&str; 4] = [
    "cannot parse integer from empty string",
    "invalid digit found in string",
    "number too large to fit in target type",
    "number too small to fit in target type",
];

/// The words between the value and the range in the reasons of clap: `0 is not in 1..=1024`.
const NOT_IN: &str = " is not in ";

/// Returns the text of a usage error about the value of a numeric argument. `args` are the words after the name of the program.
pub(crate) fn usage_error(
    error: &clap::Error,
    mut command: Command,
    args: impl IntoIterator<Item = OsString>,
) -> Option<String> {
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let reason = error.source()?.to_string();
    if !WITHOUT_RANGE.contains(&reason.as_str()) && bounds(&reason).is_none() {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidArg) else { return None };
    command.build();
    let (low, high) = range(find(&command, name, args)?)?;
    let text = error.render().to_string();
    let range = format!(": use a whole number from {low} to {high}");
    Some(text.replacen(&format!(": {reason}"), &range, 1))
}

/// The argument of the command that these words use.
fn find<'c>(command: &'c Command, name: &str, args: impl IntoIterator<Item = OsString>) -> Option<&'c Arg> {
    let mut used = command;
    for word in args {
        used = used.find_subcommand(&word).unwrap_or(used);
    }
    used.get_arguments().find(|arg| arg.to_string() == name)
}

/// The lowest and the highest value of an argument. Its parser reports them in its errors only.
fn range(arg: &Arg) -> Option<(String, String)> {
    let refused = |value: &str| {
        let value_arg =
            Arg::new("value").value_parser(arg.get_value_parser().clone()).allow_hyphen_values(true);
        let command = Command::new("range").no_binary_name(true).arg(value_arg);
        let error = command.try_get_matches_from([value]).err()?;
        error.source().map(ToString::to_string)
    };
    let values = [i64::MAX.to_string(), i64::MIN.to_string(), "0".to_owned()];
    let of_type = || {
        let kind = arg.get_value_parser().type_id();
        if kind == TypeId::of::<u64>() || kind == TypeId::of::<usize>() {
            Some(("0".to_owned(), u64::MAX.to_string()))
        } else if kind == TypeId::of::<i64>() {
            Some((i64::MIN.to_string(), i64::MAX.to_string()))
        } else {
            None
        }
    };
    values.iter().find_map(|value| bounds(&refused(value)?)).or_else(of_type)
}

/// The range in a reason of clap.
fn bounds(reason: &str) -> Option<(String, String)> {
    let (_, range) = reason.split_once(NOT_IN)?;
    let (low, high) = range.split_once("..")?;
    let high = high.trim_start_matches('=');
    let is_number = |text: &str| text.parse::<i128>().is_ok();
    (is_number(low) && is_number(high)).then(|| (low.to_owned(), high.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text for this command line, which is refused.
    fn refused(args: &[&str]) -> String {
        let line = std::iter::once("ottla").chain(args.iter().copied());
        let error = crate::command().try_get_matches_from(line).expect_err("out of range");
        let words = args.iter().map(OsString::from);
        usage_error(&error, crate::command(), words).unwrap_or_else(|| panic!("{args:?}: {error}"))
    }

    /// The numeric options of all commands, each with the path of its command.
    fn options(command: &Command, path: &[String], found: &mut Vec<Vec<String>>) {
        let numbers = [
            TypeId::of::<i16>(),
            TypeId::of::<u16>(),
            TypeId::of::<i32>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
        ];
        for arg in command.get_arguments() {
            let is_number = numbers.iter().any(|number| arg.get_value_parser().type_id() == *number);
            if let Some(long) = arg.get_long().filter(|_| is_number) {
                found.push([path, &[format!("--{long}")]].concat());
            }
        }
        for subcommand in command.get_subcommands() {
            options(subcommand, &[path, &[subcommand.get_name().to_owned()]].concat(), found);
        }
    }

    /// A number that no type has was "too large to fit in target type".
    #[test]
    fn every_number_that_is_out_of_range_gets_the_range_of_its_option() {
        let mut found = Vec::new();
        options(&crate::command(), &[], &mut found);
        assert!(found.len() > 30, "{found:?}");
        for mut line in found {
            let option = line.last().cloned().unwrap_or_default();
            for value in ["99999999999999999999999", "1.5", "many"] {
                line.pop();
                line.push(format!("{option}={value}"));
                let text = refused(&line.iter().map(String::as_str).collect::<Vec<_>>());
                let words = [&*option, value, "use a whole number from "];
                assert!(words.iter().all(|word| text.contains(word)), "{line:?}: {text}");
            }
        }
    }

    #[test]
    fn ranges_are_those_of_the_types_and_of_the_options() {
        for (line, range) in [
            ("fault add Fetch cut --count 99999999999", "from 0 to 4294967295"),
            ("fault add Fetch delay --delay-ms -1", "from 0 to 18446744073709551615"),
            ("fault remove 99999999999999999999", "from 0 to 18446744073709551615"),
            ("topics create a --partitions 99999999999", "from 1 to 2147483647"),
            ("consume orders -c 0", "from 1 to 18446744073709551615"),
            ("consume orders -p 0,-1", "from 0 to 2147483647"),
            ("broker --drain-timeout 3601", "from 0 to 3600"),
            ("groups reset-offsets g --to-offset 99999999999999999999", "from 0 to 9223372036854775807"),
            ("transactions list --producer-id x", "from -9223372036854775808 to 9223372036854775807"),
        ] {
            let text = refused(&line.split(' ').collect::<Vec<_>>());
            assert!(text.contains(range), "{line}: {text}");
        }
    }
}
