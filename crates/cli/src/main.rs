//! The `ottla` command: a Kafka broker and command-line tools for Kafka.

#![allow(
    clippy::disallowed_methods,
    reason = "the command reads the clocks that the other crates take as arguments"
)]
#![allow(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "a copy costs nothing in text that is printed once"
)]

mod acks_arg;
mod allocator;
mod bench;
mod choices;
mod commands;
mod connect;
mod control;
mod failure;
mod failures;
mod format;
mod json_log;
#[cfg(test)]
mod letters;
mod lines;
mod listing;
mod log_filter;
mod metrics;
mod number_range;
mod other_tools;
mod output;
mod partition_args;
mod password;
mod printable;
mod properties;
mod security_args;
mod signals;
mod stoppable_output;
mod table;
mod time;
mod topic_args;
mod topic_spec;
mod warnings;

use std::any::TypeId;
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Failure;

/// A Kafka broker and command-line tools for Kafka.
///
/// Exit codes: 0 success, 1 failure, 2 usage error, 129, 130 and 143 interrupted by SIGHUP, SIGINT and SIGTERM. Commands that
/// run until a signal (broker, consume, run, log tail --follow) return 0 after a signal, if they have ended in order.
#[derive(Debug, Parser)]
#[command(name = "ottla", version, propagate_version = true)]
struct Cli {
    /// Logs to stderr: -v for events, -vv for details, -vvv for everything [default: one line per problem]
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(commands::demo::Args),
    Broker(commands::broker::Args),
    Produce(commands::produce::Args),
    Consume(commands::consume::Args),
    Run(commands::run::Args),
    #[command(subcommand)]
    Topics(commands::topics::Topics),
    #[command(subcommand)]
    Groups(commands::groups::Groups),
    #[command(subcommand)]
    Transactions(commands::transactions::Transactions),
    #[command(subcommand)]
    Users(commands::users::Users),
    Cluster(commands::cluster::Args),
    #[command(subcommand)]
    Acls(commands::acls::Acls),
    #[command(subcommand)]
    Quotas(commands::quotas::Quotas),
    #[command(subcommand)]
    Clients(commands::clients::Clients),
    Logdirs(commands::logdirs::Args),
    #[command(subcommand)]
    Fault(commands::fault::FaultCommand),
    #[command(subcommand)]
    Log(commands::log::Log),
    #[command(subcommand)]
    Bench(bench::Bench),
    Doctor(commands::doctor::Args),
    Properties(commands::properties::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

/// The form of the log on standard error.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Command {
    fn log_format(&self) -> LogFormat {
        match self {
            Self::Broker(args) => args.log_format,
            _ => LogFormat::Text,
        }
    }
}

fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return explain(error),
    };
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let format = cli.command.log_format();
    match format {
        LogFormat::Text => log_to_stderr(cli.verbose, &cli.command),
        LogFormat::Json => log_as_json(cli.verbose),
    }
    match run(cli.command) {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            match format {
                LogFormat::Text => output::note(&format!("ottla: {failure}")),
                LogFormat::Json => tracing::error!(target: "ottla", "{failure}"),
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints a usage error, or the help that was requested: it fails if the help cannot be written.
fn explain(mut error: clap::Error) -> ExitCode {
    if let Some(text) = number_range::usage_error(&error, command(), std::env::args_os().skip(1)) {
        output::note_lines(text.trim_end());
        return ExitCode::from(2);
    }
    other_tools::explain(&mut error, &command(), std::env::args_os().skip(1));
    let printed = error.print().and_then(|()| std::io::Write::flush(&mut std::io::stdout()));
    match printed.map_err(|problem| Failure::output(&problem)) {
        Err(failure @ Failure::Failed(_)) if !error.use_stderr() => {
            output::note(&format!("ottla: {failure}"));
            ExitCode::from(failure.exit_code())
        }
        Ok(()) | Err(_) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}

/// The command line. A letter has one meaning in all subcommands. As in kcat, `-f` is a format and `-l` a file of
/// lines.
pub(crate) fn command() -> clap::Command {
    with_negative_numbers(Cli::command())
}

/// Lets numeric options take negative numbers, so that they are refused with the range and not as unknown options.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let numbers = [
        TypeId::of::<i16>(),
        TypeId::of::<u16>(),
        TypeId::of::<i32>(),
        TypeId::of::<u32>(),
        TypeId::of::<i64>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<f64>(),
    ];
    let with_numbers = |arg: clap::Arg| {
        let is_number = numbers.iter().any(|number| arg.get_value_parser().type_id() == *number);
        let takes_value = arg.get_action().takes_values();
        if is_number && takes_value { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(with_numbers).mut_subcommands(with_negative_numbers)
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Broker(args) => commands::broker::run(&args),
        Command::Produce(args) => commands::produce::run(&args),
        Command::Consume(args) => commands::consume::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Topics(topics) => commands::topics::run(&topics),
        Command::Groups(groups) => commands::groups::run(&groups),
        Command::Transactions(transactions) => commands::transactions::run(&transactions),
        Command::Users(users) => commands::users::run(&users),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Acls(acls) => commands::acls::run(&acls),
        Command::Quotas(quotas) => commands::quotas::run(&quotas),
        Command::Clients(clients) => commands::clients::run(&clients),
        Command::Logdirs(args) => commands::logdirs::run(&args),
        Command::Fault(command) => commands::fault::run(&command),
        Command::Log(log) => commands::log::run(&log),
        Command::Bench(bench) => bench::run(&bench),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Properties(args) => commands::properties::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man(args) => commands::man::run(&args),
    }
}

fn log_as_json(verbose: u8) {
    let (filter, warning) = log_filter::read(verbose);
    let filter = filter.unwrap_or_else(|| EnvFilter::new("warn"));
    tracing_subscriber::registry().with(filter).with(json_log::JsonLog).init();
    if let Some(warning) = warning {
        tracing::warn!(target: "ottla", "{warning}");
    }
}

fn log_to_stderr(verbose: u8, command: &Command) {
    let (filter, warning) = log_filter::read(verbose);
    if let Some(warning) = warning {
        output::note(&format!("ottla: warning: {warning}"));
    }
    let Some(filter) = filter else {
        let doctor = !matches!(command, Command::Broker(_) | Command::Demo(_) | Command::Log(_));
        // The doctor's report already contains these problems.
        if !matches!(command, Command::Doctor(_)) {
            tracing_subscriber::registry().with(warnings::Warnings::new(doctor)).init();
        }
        return;
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| output::LogLines)
        .with_ansi(output::log_has_colours())
        .init();
}
