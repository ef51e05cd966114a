//! Options of Kafka's tools and of kcat that this program does not have, and what it has in their place.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The command that gets the options (an empty one means all commands), the options, and the tip for them.
type Row = (&'static str, &'static [&'static str], &'static str);

const FILE: &str = "a file of properties is named by `--config FILE`";
const PROPERTY: &str = "a property is set by `-X KEY=VALUE`";

/// The options. A test compares them with those of the commands.
const INSTEAD: &[Row] = &[
    ("", &["--command-config", "--consumer.config", "--producer.config"], FILE),
    ("", &["--command-property", "--consumer-property", "--producer-property"], PROPERTY),
    ("", &["--broker-list", "--zookeeper"], "the servers are named by `--brokers HOST:PORT,...`"),
    ("", &["-d"], "the client's contexts are chosen by `-X debug=LIST`, and shown with `-vv`"),
    ("", &["--json"], "listings are printed as JSON by `--output json`"),
    ("", &["-q"], "only problems are printed without `-v`"),
    ("", &["-C"], "`ottla consume` reads records"),
    ("", &["-P"], "`ottla produce` writes records"),
    ("", &["-L"], "use `ottla cluster`, `ottla topics list` and `ottla topics describe`"),
    ("broker", &["--override"], PROPERTY),
    ("broker", &["--host", "--port"], "the address is named by `--listen HOST:PORT`"),
    ("consume", &["-F"], FILE),
    ("consume", &["--from-beginning"], "reading begins at the beginning by default"),
    ("consume", &["--max-messages"], "the number of records is limited by `--count N`"),
    ("consume", &["--timeout-ms"], "`--exit-at-end` stops at the end of the partitions"),
    ("consume", &["--isolation-level"], "the level is set by `-X isolation.level=read_uncommitted`"),
    ("consume", &["--formatter", "--formatter-property"], "the output has `--format`, and `--json`"),
    ("consume", &["-K"], "keys are printed by a format, such as `-f '%k:%s\\n'`"),
    ("consume", &["-O"], "offsets are printed by a format, such as `-f '%o: %s\\n'`"),
    ("consume", &["-u"], "the output is written when no more records have arrived"),
    ("groups", &["--all-topics"], "all topics with committed offsets are the default"),
    ("groups", &["--group"], "the group is an argument, such as `ottla groups describe GROUP`"),
    ("groups", &["--to-datetime"], "the time is named by `--to-time TIME`"),
    ("produce", &["-F"], FILE),
    ("produce", &["-T"], "`tee` prints the lines before `ottla produce` reads them"),
    ("produce", &["-c"], "`head -n N` limits the lines before `ottla produce` reads them"),
    ("produce", &["--compression-codec"], "the codec is named by `--codec`"),
    ("produce", &["--reader-property", "--key-separator"], "lines are split into key and value by `-K TEXT`"),
    ("produce", &["--request-required-acks"], "the acknowledgements are named by `--acks`"),
    (
        "topics",
        &["--unavailable-partitions", "--under-min-isr-partitions", "--under-replicated-partitions"],
        "such partitions are printed by `ottla topics partitions --problems`",
    ),
];

/// Gives an error about an unknown option the tip for it, if it is one of another tool. `args` are the words after the name of the
/// program.
pub(crate) fn explain(error: &mut clap::Error, command: &Command, args: impl IntoIterator<Item = OsString>) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let (path, used) = used(command, args);
    let Some(tip) = tip(option, &path, used) else { return };
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
}

/// The subcommands among the words, and the last one of them.
fn used(command: &Command, args: impl IntoIterator<Item = OsString>) -> (Vec<&str>, &Command) {
    let (mut path, mut used) = (Vec::new(), command);
    for word in args {
        if let Some(inner) = used.find_subcommand(&word) {
            path.push(inner.get_name());
            used = inner;
        }
    }
    (path, used)
}

fn tip(option: &str, path: &[&str], used: &Command) -> Option<String> {
    let first = path.first().copied().unwrap_or_default();
    let name = option.trim_start_matches('-');
    if option.starts_with("--") && used.find_subcommand(name).is_some() {
        let words: Vec<&str> = std::iter::once("ottla").chain(path.iter().copied()).chain([name]).collect();
        return Some(format!("`{name}` is a command: `{}`", words.join(" ")));
    }
    // `kafka-server-start.sh server.properties`.
    if first == "broker" && option.ends_with(".properties") {
        return Some(FILE.to_owned());
    }
    let is_for = |(of, options, _): &&Row| (of.is_empty() || *of == first) && options.contains(&option);
    let row = INSTEAD.iter().find(is_for);
    row.map(|(_, _, tip)| (*tip).to_owned())
}

/// Properties of Kafka's console tools, which have no counterpart among those of clients.
const OF_CONSOLES: [&str; 8] = [
    "key.separator",
    "parse.key",
    "print.headers",
    "print.key",
    "print.offset",
    "print.partition",
    "print.timestamp",
    "print.value",
];

/// Adds a remedy to the error for an unknown property of a client that has no similar one.
pub(crate) fn with_remedy(property: &str, problem: String) -> String {
    if OF_CONSOLES.contains(&property) && problem.starts_with("no property ") {
        let remedy = "use `ottla consume -f '%k:%s\\n'` to print keys, and `ottla produce -K :` to read them";
        return format!("`{property}` is a property of Kafka's console tools: {remedy}");
    }
    if problem.starts_with("no property ") && !problem.contains("did you mean") {
        return problem + ": `ottla properties` lists them";
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text for this command line, whose option is unknown.
    fn refused(line: &str) -> String {
        let args: Vec<&str> = line.split(' ').collect();
        let words = std::iter::once("ottla").chain(args.iter().copied());
        let error = crate::command().try_get_matches_from(words);
        let mut error = error.expect_err("an unknown option");
        assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{line}: {error}");
        explain(&mut error, &crate::command(), args.iter().map(OsString::from));
        error.to_string()
    }

    #[test]
    fn every_option_of_another_tool_gets_its_tip_alone() {
        for (of, options, tip) in INSTEAD {
            for option in *options {
                let text = refused(format!("{of} {option}").trim_start());
                assert!(text.contains(&format!("tip: {tip}")), "{option}: {text}");
                assert_eq!(text.matches("tip:").count(), 1, "{option}: {text}");
            }
        }
    }

    #[test]
    fn actions_of_kafkas_tools_are_commands() {
        for (line, tip) in [
            ("topics --list", "`list` is a command: `ottla topics list`"),
            ("topics --create --topic orders", "`create` is a command: `ottla topics create`"),
            ("groups --reset-offsets", "`ottla groups reset-offsets`"),
            ("--broker", "`broker` is a command: `ottla broker`"),
            ("broker config/server.properties", FILE),
        ] {
            let text = refused(line);
            assert!(text.contains(tip), "{line}: {text}");
        }
        assert!(refused("produce orders --no-such-option").contains("'-- --no-such-option'"));
    }
}
