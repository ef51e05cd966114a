//! The value of `--acks`.

use clap::ValueEnum;

/// `0`, `1` or `all`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AcksArg {
    /// The broker sends no acknowledgement
    #[value(name = "0")]
    None,
    /// The leader has it
    #[value(name = "1")]
    Leader,
    /// All in-sync replicas have it
    #[value(name = "all", alias = "-1")]
    All,
}

impl AcksArg {
    pub(crate) const fn value(self) -> &'static str {
        match self {
            Self::None => "0",
            Self::Leader => "1",
            Self::All => "all",
        }
    }
}
