//! `ottla topics configs`.

use ottla_client::{
    Admin, AlterOptions, ConfigChange, ConfigEntry, ConfigResource, DescribeConfigs, Error, ErrorCode,
};
use serde_json::json;

use crate::failure::Failure;
use crate::failures::Failures;
use crate::listing::{Format, Listing, ListingArgs};
use crate::output::note;
use crate::properties::{key_value, last_of_each};
use crate::topic_args::TopicArgs;

/// Prints the configs of topics with their sources, or changes them
///
/// Configs that no change names keep their values. Example: `ottla topics configs orders --set retention.ms=3600000`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    topics: TopicArgs,
    /// Sets a config; may be repeated: the last value of a key applies
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Appends to a config that is a list; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    append: Vec<(String, String)>,
    /// Removes from a config that is a list; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    subtract: Vec<(String, String)>,
    /// Restores the default of a config; may be repeated
    #[arg(long, value_name = "KEY")]
    delete: Vec<String>,
    /// Validates the changes only
    #[arg(long)]
    dry_run: bool,
    /// Prints all configs, not only those that are set explicitly
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

impl Args {
    fn changes(&self) -> Result<Vec<(String, ConfigChange)>, Failure> {
        let with = |pairs: &[(String, String)], change: fn(String) -> ConfigChange| {
            let pairs = pairs.iter().map(|(key, value)| (key.clone(), change(value.clone())));
            pairs.collect::<Vec<_>>()
        };
        let mut changes = with(&last_of_each(&self.set), ConfigChange::Set);
        changes.extend(with(&self.append, ConfigChange::Append));
        changes.extend(with(&self.subtract, ConfigChange::Subtract));
        changes.extend(self.delete.iter().map(|key| (key.clone(), ConfigChange::Delete)));
        for (index, (key, _)) in changes.iter().enumerate() {
            if changes[..index].iter().any(|(earlier, _)| earlier == key) {
                return Err(Failure::usage(format!(
                    "`{key}` has two changes: use one of --set, --append, --subtract and --delete for it, and separate items by \
                     commas"
                )));
            }
        }
        Ok(changes)
    }
}

pub(super) async fn run(args: &Args) -> Result<(), Failure> {
    let changes = args.changes()?;
    if args.dry_run && changes.is_empty() {
        return Err(Failure::usage(
            "--dry-run without a change: add --set, --append, --subtract or --delete",
        ));
    }
    let admin = args.listing.admin().await?;
    let mut failures = Failures::default();
    let mut names: Vec<&str> = args.topics.names().collect();
    if !changes.is_empty() {
        let failed = change(&admin, args, &changes, &mut failures).await?;
        names.retain(|name| !failed.iter().any(|failed| failed == name));
    }
    if names.is_empty() {
        return failures.result();
    }
    let resources: Vec<_> = names.into_iter().map(ConfigResource::topic).collect();
    let what = DescribeConfigs::default();
    let mut listing = Listing::new(["topic", "config", "value", "source"]);
    for (resource, entries) in admin.describe_configs(&resources, what).await? {
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                failures.push(failure(&resource, error));
                continue;
            }
        };
        let is_shown = |entry: &&ConfigEntry| args.all || !entry.default;
        for entry in entries.iter().filter(is_shown) {
            listing.row([
                json!(resource.name),
                json!(entry.name),
                json!(entry.value),
                json!(entry.source.name()),
            ]);
        }
    }
    failures.print_listing(&listing, args.listing.format());
    failures.result()
}

/// Changes the configs of every topic. The changes of a topic apply together or not at all. Returns the topics that
/// are not changed.
async fn change(
    admin: &Admin,
    args: &Args,
    changes: &[(String, ConfigChange)],
    failures: &mut Failures,
) -> Result<Vec<String>, Failure> {
    let resources: Vec<_> =
        args.topics.names().map(|name| (ConfigResource::topic(name), changes.to_vec())).collect();
    let options = AlterOptions { validate_only: args.dry_run, ..AlterOptions::default() };
    let mut failed = Vec::new();
    for (resource, changed) in admin.incremental_alter_configs(&resources, options).await? {
        match changed {
            Ok(()) if args.dry_run => note(&format!("dry run: the changes of {} are valid", resource.name)),
            // With JSON, standard output has only objects.
            Ok(()) if args.listing.format() == Format::Json => note(&format!("changed {}", resource.name)),
            Ok(()) => failures.print(&format!("changed {}\n", resource.name)),
            Err(error) => {
                failures.push(failure(&resource, error));
                failed.push(resource.name);
            }
        }
    }
    Ok(failed)
}

fn failure(resource: &ConfigResource, error: Error) -> Failure {
    match error {
        Error::Broker { code: code @ ErrorCode::UnknownTopicOrPartition, .. }
        | Error::Refused { code: code @ ErrorCode::UnknownTopicOrPartition, .. } => {
            Error::Broker { what: format!("topic `{}`", resource.name), code }.into()
        }
        error => error.into(),
    }
}
