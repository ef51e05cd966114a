//! `ottla completions`.

use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::Output;

/// Prints the completion script of a shell
///
/// For bash: ottla completions bash > ~/.local/share/bash-completion/completions/ottla
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "ottla", &mut script);
    let mut output = Output::new();
    output.write(&script)?;
    output.flush()
}
