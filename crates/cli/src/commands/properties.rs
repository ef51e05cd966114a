//! `ottla properties`.

use ottla_broker::{BrokerConfig, Mode, Scope, Setting, broker_effect};
use ottla_client::properties::{self, Kind, State};

use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;

/// Lists client properties, for -X and --config; with --broker a broker's
///
/// With the full name of a property: describes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Lists only names that contain this text
    filter: Option<String>,
    /// Lists the properties of `ottla broker`
    #[arg(long)]
    broker: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut output = Output::new();
    let filter = args.filter.as_deref().unwrap_or_default();
    if args.broker {
        return list_of_broker(filter, output);
    }
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

/// The properties of a broker: name, default, effect, and how they change while it runs.
fn list_of_broker(filter: &str, mut output: Output) -> Result<(), Failure> {
    if let Some(setting) = ottla_broker::find_setting(Scope::Broker, filter) {
        let text = format!(
            "{}: {}\n\ndefault  {}\nchanges  {}\n",
            setting.name,
            broker_effect(setting),
            default_of(setting),
            change_of(setting)
        );
        output.write(text.as_bytes())?;
        return output.flush();
    }
    let mut table = Table::new(["PROPERTY", "DEFAULT", "EFFECT", "CHANGES"]);
    let named = ottla_broker::settings(Scope::Broker).iter().filter(|setting| setting.name.contains(filter));
    let mut is_empty = true;
    for setting in named {
        let effect = if BrokerConfig::has_effect(setting.name) { "yes" } else { "no" };
        table.row([
            setting.name.to_owned(),
            default_of(setting),
            effect.to_owned(),
            change_of(setting).to_owned(),
        ]);
        is_empty = false;
    }
    if is_empty {
        return Err(Failure::failed(format!("no broker property's name contains `{filter}`")));
    }
    output.write(table.render().as_bytes())?;
    output.flush()
}

fn default_of(setting: &Setting) -> String {
    setting.default.unwrap_or("-").to_owned()
}

fn change_of(setting: &Setting) -> &'static str {
    match setting.mode {
        Mode::ReadOnly => "at the start",
        Mode::PerBroker => "per broker",
        Mode::ClusterWide => "at any time",
    }
}
