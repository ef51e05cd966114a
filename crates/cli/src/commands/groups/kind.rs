//! Members of a group of the other kind.

use std::time::Duration;

use ottla_client::Admin;

use super::{Group, find};
use crate::failure::Failure;

/// The time limit for the kind of the group.
const KIND_WITHIN: Duration = Duration::from_secs(2);

/// The failure of a member whose group is of the other kind; otherwise `failure`.
pub(crate) async fn explain(admin: &Admin, group: &str, is_share: bool, failure: Failure) -> Failure {
    let found = tokio::time::timeout(KIND_WITHIN, find(admin, group)).await;
    let (kind, remedy) = match (is_share, found) {
        (true, Ok(Ok(Some(Group::Committing(_))))) => ("a consumer group: leave out --share", ""),
        (false, Ok(Ok(Some(Group::Share(_))))) => ("a share group: add --share", " to read as its member"),
        _ => return failure,
    };
    Failure::failed(format!("group `{group}` is {kind}{remedy}, or use another group"))
}
