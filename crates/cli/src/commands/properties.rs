//! `ottla properties`.

use ottla_client::properties::{self, Kind, State};

use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;

/// Lists client properties, for -X and --config
///
/// With the full name of a property: describes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Lists only names that contain this text
    filter: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut output = Output::new();
    let filter = args.filter.as_deref().unwrap_or_default();
    if let Some(property) = properties::find(filter) {
        let mut text = format!("{}: {}\n\ntakes    {}\n", property.name, property.text, property.range());
        text += &format!("default  {}\n", property.default);
        if !property.aliases.is_empty() {
            text += &format!("also     {}\n", property.aliases.join(", "));
        }
        match property.state {
            State::Effective { .. } => {}
            State::Accepted { why } => text += &format!("accepted without effect: {why}\n"),
            State::Refused { why } => text += &format!("only the default is supported: {why}\n"),
        }
        output.write(text.as_bytes())?;
        return output.flush();
    }
    let settable = |property: &&properties::Property| {
        property.kind != Kind::Pointer && !matches!(property.state, State::Refused { .. })
    };
    let called = |property: &&properties::Property| {
        std::iter::once(&property.name).chain(property.aliases).any(|name| name.contains(filter))
    };
    let mut rows: Vec<_> = properties::all().filter(settable).filter(called).collect();
    rows.sort_by_key(|property| (property.name, property.scope));
    if rows.is_empty() {
        return Err(Failure::failed(format!("no property name contains `{filter}`")));
    }
    let mut table = Table::new(["PROPERTY", "DEFAULT", "TAKES"]);
    for property in rows {
        table.row([property.name.to_owned(), property.default.to_owned(), property.range()]);
    }
    output.write(table.render().as_bytes())?;
    output.flush()
}
