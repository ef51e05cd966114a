//! The checks of a request's arguments before it is sent. Programs compare most of the texts.

use std::collections::BTreeSet;

use ottla_client::{ConfigChange, ConfigResource, ConfigResourceType};

use crate::ffi::*;

/// Returns the code of a refused request.
pub(super) fn refusal_code(reason: &str) -> rd_kafka_resp_err_t {
    if reason == SEVERAL_BROKERS { RD_KAFKA_RESP_ERR__CONFLICT } else { RD_KAFKA_RESP_ERR__INVALID_ARG }
}

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

/// The error of a request for the configurations of two brokers: it goes to one broker.
const SEVERAL_BROKERS: &str = "Only one ConfigResource of type BROKER is allowed per call";

pub(super) fn check_resources<'a>(resources: impl Iterator<Item = &'a ConfigResource>) -> Result<(), String> {
    let resources: Vec<_> = resources.collect();
    check_brokers(resources.iter().copied())?;
    distinct(resources, "resource").map(drop)
}

/// The request for a broker goes to that broker: its name has to be an id, and it has to be the only one. Programs compare the texts.
fn check_brokers<'a>(resources: impl Iterator<Item = &'a ConfigResource>) -> Result<(), String> {
    let is_id = |name: &str| name.parse().is_ok_and(|id: i32| id >= 0);
    let mut brokers = resources.filter(|resource| names_broker(resource));
    match brokers.next() {
        Some(ConfigResource { name, .. }) if !is_id(name) => {
            Err(format!("Expected an int32 broker_id for ConfigResource(type=BROKER, name={name})"))
        }
        Some(_) if brokers.next().is_some() => Err(SEVERAL_BROKERS.to_owned()),
        Some(_) | None => Ok(()),
    }
}

/// Returns `true` for a resource whose broker has to respond.
pub(super) fn names_broker(resource: &ConfigResource) -> bool {
    resource.kind == ConfigResourceType::Broker
}

/// Checks the changes of an incremental request: programs compare the texts.
pub(super) fn check_changes(
    resources: &[(ConfigResource, Vec<(String, ConfigChange)>)],
) -> Result<(), String> {
    all_different(resources.iter().map(|(resource, _)| resource), "Duplicate ConfigResource found")?;
    check_brokers(resources.iter().map(|(resource, _)| resource))?;
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
