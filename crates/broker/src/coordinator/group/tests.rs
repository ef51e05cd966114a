//! Stories of classic groups, without a clock, a lock or a socket.

use super::*;
use crate::config::BrokerConfig;
use crate::coordinator::groups::{Groups, Joining};

const SESSION: Duration = Duration::from_secs(60);

fn request(member_id: &str, protocol: &str) -> Join {
    Join {
        member_id: member_id.into(),
        instance_id: None,
        client_id: "client".into(),
        client_host: "host".into(),
        protocol_type: CONSUMER.into(),
        protocols: vec![(protocol.into(), Bytes::new())],
        session_timeout: SESSION,
        rebalance_timeout: SESSION,
        knows_skip_assignment: true,
    }
}

fn groups(members_max: usize) -> Groups {
    let mut config = BrokerConfig::default();
    config.set("group.max.size", &members_max.to_string()).expect("a setting");
    Groups::new(&config, fastrand::Rng::with_seed(1))
}

/// The id that a new member must join with.
fn id_of_new_member(groups: &Groups) -> String {
    match groups.join("g", request("", "range"), true) {
        Joining::ComeBackAs(id) => id,
        _ => panic!("no id"),
    }
}

fn join(
    groups: &Groups,
    member_id: &str,
    protocol: &str,
) -> Result<oneshot::Receiver<JoinAnswer>, ErrorCode> {
    match groups.join("g", request(member_id, protocol), true) {
        Joining::Wait(answer) => Ok(answer),
        Joining::Refused(code) => Err(code),
        _ => panic!("neither an answer that follows nor a refusal"),
    }
}

fn is_formed(mut answer: oneshot::Receiver<JoinAnswer>) -> bool {
    answer.try_recv().is_ok_and(|answer| answer.is_ok())
}

/// Such a member left an id, for which each rebalance waited until the id expired.
#[test]
fn a_new_member_with_other_protocols_gets_no_id() {
    let groups = groups(10);
    let first = id_of_new_member(&groups);
    assert!(join(&groups, &first, "range").is_ok_and(is_formed));
    let code = ErrorCode::InconsistentGroupProtocol;
    assert_eq!(join(&groups, "", "other").map(is_formed), Err(code));
    // One that has its id already loses it.
    let second = id_of_new_member(&groups);
    assert_eq!(join(&groups, &second, "other").map(is_formed), Err(code));
    assert_eq!(join(&groups, &second, "range").map(is_formed), Err(ErrorCode::UnknownMemberId));
    let other = Join {
        protocols: vec![("range".into(), Bytes::from_static(b"other topics"))],
        ..request(&first, "range")
    };
    let Joining::Wait(answer) = groups.join("g", other, true) else { panic!("the member is refused") };
    assert!(is_formed(answer), "the group waits for the member that was refused");
}

#[test]
fn a_new_member_of_a_full_group_gets_no_id() {
    let groups = groups(1);
    let ids = [id_of_new_member(&groups), id_of_new_member(&groups)];
    let first = join(&groups, &ids[0], "range").expect("there is room");
    let code = ErrorCode::GroupMaxSizeReached;
    assert_eq!(join(&groups, &ids[1], "range").map(is_formed), Err(code));
    assert!(is_formed(first), "the group waits for the member that was refused");
    assert_eq!(join(&groups, "", "range").map(is_formed), Err(code));
    assert_eq!(join(&groups, &ids[1], "range").map(is_formed), Err(code));
}

/// As in Kafka: a member that is gone must not keep its successor from joining.
#[test]
fn while_members_join_those_that_have_not_joined_do_not_fill_the_group() {
    let groups = groups(2);
    let ids = [id_of_new_member(&groups), id_of_new_member(&groups)];
    let first = join(&groups, &ids[0], "range").expect("there is room");
    let second = join(&groups, &ids[1], "range").expect("there is room");
    assert!(is_formed(first) && is_formed(second));
    let other = Join {
        protocols: vec![("range".into(), Bytes::from_static(b"other topics"))],
        ..request(&ids[0], "range")
    };
    let Joining::Wait(first) = groups.join("g", other, true) else { panic!("the member is refused") };
    let third = id_of_new_member(&groups);
    let third = join(&groups, &third, "range").expect("the second member has not joined");
    assert_eq!(join(&groups, &ids[1], "range").map(is_formed), Err(ErrorCode::GroupMaxSizeReached));
    assert!(is_formed(first) && is_formed(third));
}
