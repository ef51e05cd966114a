//! The checks of a request's arguments before it is sent. Programs compare most of the texts.

use std::collections::BTreeSet;

use ottla_client::{ConfigChange, ConfigResource, ConfigResourceType};

/// Returns `text` as the error of a request without things. Programs compare the texts of some requests.
pub(super) fn some<T>(things: Vec<T>, text: &str) -> Result<Vec<T>, String> {
    if things.is_empty() { Err(text.to_owned()) } else { Ok(things) }
}

fn distinct<T: Ord + std::fmt::Display>(things: Vec<T>, what: &str) -> Result<Vec<T>, String> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = things.iter().find(|thing| !seen.insert(*thing)) {
        return Err(format!("{what} {twice} is named twice"));
    }
    Ok(things)
}

/// The one thing of a request that takes one only. Programs compare the text.
pub(super) fn one<T>(mut things: Vec<T>, what: &str) -> Result<T, String> {
    match (things.pop(), things.len()) {
        (Some(thing), 0) => Ok(thing),
        _ => Err(format!("Exactly one {what} must be passed")),
    }
}

/// The error of a request that repeats a partition.
pub(super) const DUPLICATE_PARTITIONS: &str = "Duplicate partitions not allowed";

/// The error of a request for configurations without resources.
const NO_RESOURCES: &str = "No config resources specified";

pub(super) fn check_resources<'a>(resources: impl Iterator<Item = &'a ConfigResource>) -> Result<(), String> {
    let resources = distinct(some(resources.collect(), NO_RESOURCES)?, "resource")?;
    check_broker_ids(resources.into_iter())
}

/// The request for a broker goes to that broker, so its name has to be an id. Programs compare the text.
fn check_broker_ids<'a>(resources: impl Iterator<Item = &'a ConfigResource>) -> Result<(), String> {
    let is_id = |name: &str| name.parse().is_ok_and(|id: i32| id >= 0);
    let mut brokers = resources.filter(|resource| resource.kind == ConfigResourceType::Broker);
    match brokers.find(|broker| !is_id(&broker.name)) {
        Some(ConfigResource { name, .. }) => {
            Err(format!("Expected an int32 broker_id for ConfigResource(type=BROKER, name={name})"))
        }
        None => Ok(()),
    }
}

/// Checks the changes of an incremental request: programs compare the texts.
pub(super) fn check_changes(
    resources: &[(ConfigResource, Vec<(String, ConfigChange)>)],
) -> Result<(), String> {
    if resources.is_empty() {
        return Err(NO_RESOURCES.to_owned());
    }
    all_different(resources.iter().map(|(resource, _)| resource), "Duplicate ConfigResource found")?;
    check_broker_ids(resources.iter().map(|(resource, _)| resource))?;
    resources.iter().try_for_each(|(_, changes)| {
        all_different(changes.iter().map(|(name, _)| name), "Duplicate ConfigEntry found")
    })
}

/// Checks the groups of a request; `none` is the error without any.
pub(super) fn check_groups(groups: Vec<String>, none: &str) -> Result<Vec<String>, String> {
    let groups = some(groups, none)?;
    all_different(groups.iter(), "Duplicate groups not allowed").map(|()| groups)
}

/// Returns `text` as the error of repeated things. Programs compare the texts of some requests.
pub(super) fn all_different<'a, T: Ord + 'a>(
    mut things: impl Iterator<Item = &'a T>,
    text: &str,
) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    if things.all(|thing| seen.insert(thing)) { Ok(()) } else { Err(text.to_owned()) }
}
