//! Answers of the group coordinator that depend on the group's type, over the wire.

use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;

use crate::consumer_groups::{beat, join_classic_as, join_request, partitions, start_with, stay};

/// They joined, although no migration was permitted.
#[test]
fn classic_members_do_not_join_a_group_of_the_new_protocol_without_a_migration() {
    let properties = [("group.consumer.migration.policy", "disabled")];
    let (_broker, mut connection) = start_with(&MemStorage::new(), &properties);
    assert_eq!(partitions(&beat(&mut connection, &join_request("a"))), 4);
    let refused = join_classic_as(&mut connection, "", "consumer").error_code;
    assert_eq!(refused, ErrorCode::InconsistentGroupProtocol);
    // A group without members is replaced: nothing is migrated.
    assert_eq!(stay(&mut connection, "a", -1).member_epoch, -1);
    assert_eq!(join_classic_as(&mut connection, "", "consumer").error_code, ErrorCode::None);
}
