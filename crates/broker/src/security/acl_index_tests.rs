use super::*;

const NAMES: [&str; 7] = ["a", "ab", "abc", "abd", "b", "ba", "*"];
const HOSTS: [&str; 3] = ["*", "10.0.0.1", "10.0.0.2"];
const PRINCIPALS: [&str; 3] = ["User:*", "User:anna", "User:bo"];
const OPERATIONS: [Operation; 8] = [
    Operation::All,
    Operation::Read,
    Operation::Write,
    Operation::Alter,
    Operation::Describe,
    Operation::AlterConfigs,
    Operation::DescribeConfigs,
    Operation::Create,
];

fn acl(pattern_type: PatternType, name: &str, principal: &str, host: &str) -> Acl {
    let pattern = ResourcePattern { resource_type: ResourceType::Topic, pattern_type, name: name.to_owned() };
    Acl {
        pattern,
        principal: principal.to_owned(),
        host: host.to_owned(),
        operation: Operation::Read,
        permission: Permission::Allow,
    }
}

fn random_acl(rng: &mut fastrand::Rng) -> Acl {
    let pattern_type = if rng.bool() { PatternType::Literal } else { PatternType::Prefixed };
    let choose = |rng: &mut fastrand::Rng, from: &[&'static str]| from[rng.usize(..from.len())];
    let (name, principal, host) = (choose(rng, &NAMES), choose(rng, &PRINCIPALS), choose(rng, &HOSTS));
    Acl {
        operation: OPERATIONS[rng.usize(..OPERATIONS.len())],
        permission: if rng.u8(..4) == 0 { Permission::Deny } else { Permission::Allow },
        ..acl(pattern_type, name, principal, host)
    }
}

/// The rules of Kafka's StandardAuthorizer, one ACL after the other.
fn naive(acls: &[Acl], principal: &str, host: &str, operation: Operation, name: &str) -> Decision {
    let mut decision = Decision::NoAcls;
    for acl in acls {
        let of_resource = match acl.pattern.pattern_type {
            PatternType::Literal => acl.pattern.name == name || acl.pattern.name == "*",
            PatternType::Prefixed => name.starts_with(&acl.pattern.name),
        };
        if !of_resource {
            continue;
        }
        if decision == Decision::NoAcls {
            decision = Decision::Denied;
        }
        let implies = |implying: &[Operation]| implying.contains(&acl.operation);
        let of_operation = acl.operation == Operation::All
            || match (acl.permission, operation) {
                (Permission::Allow, Operation::Describe) => implies(&[
                    Operation::Describe,
                    Operation::Read,
                    Operation::Write,
                    Operation::Delete,
                    Operation::Alter,
                ]),
                (Permission::Allow, Operation::DescribeConfigs) => {
                    implies(&[Operation::DescribeConfigs, Operation::AlterConfigs])
                }
                _ => acl.operation == operation,
            };
        let of_client = (acl.principal == principal || acl.principal == "User:*")
            && (acl.host == host || acl.host == "*");
        if of_operation && of_client {
            match acl.permission {
                Permission::Deny => return Decision::Denied,
                Permission::Allow => decision = Decision::Allowed,
            }
        }
    }
    decision
}

#[test]
fn the_index_decides_like_one_acl_after_the_other() {
    let mut seen = [0_u32; 3];
    for seed in 0..2000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut acls: Vec<Acl> = Vec::new();
        let mut index = AclIndex::default();
        for _ in 0..rng.usize(..12) {
            let acl = random_acl(&mut rng);
            index.add_all([acl.clone()]);
            if !acls.contains(&acl) {
                acls.push(acl);
            }
            if rng.u8(..4) == 0 {
                index.remove_all([&acls.swap_remove(rng.usize(..acls.len()))]);
            }
        }
        assert_eq!(index.len(), acls.len(), "seed {seed}");
        for name in ["a", "ab", "abc", "abcd", "abe", "b", "c", "*"] {
            for operation in [Operation::Read, Operation::Describe, Operation::DescribeConfigs] {
                for (user, host) in [("anna", "10.0.0.1"), ("bo", "10.0.0.2"), ("chris", "10.0.0.3")] {
                    let principal = Principal::user(user);
                    let expected = naive(&acls, &principal.to_string(), host, operation, name);
                    let decided = index.decide(&principal, host, operation, ResourceType::Topic, name);
                    assert_eq!(decided, expected, "seed {seed} {user} {host} {operation:?} {name} {acls:#?}");
                    seen[decided as usize] += 1;
                    assert_eq!(
                        index.allowed_operations(
                            &principal,
                            host,
                            (ResourceType::Topic, name),
                            operation.bit(),
                            true
                        ) != 0,
                        expected != Decision::Denied,
                        "seed {seed}"
                    );
                }
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 1000), "{seen:?}");
}

#[test]
fn a_permission_counts_for_any_resource_unless_a_denial_covers_it() {
    let anna = Principal::user("anna");
    let mut index = AclIndex::default();
    let any = |index: &AclIndex, operation| {
        index.is_allowed_on_any(&anna, "10.0.0.1", operation, ResourceType::Topic)
    };
    assert!(!any(&index, Operation::Read));
    index.add_all([acl(PatternType::Literal, "orders", "User:anna", "*")]);
    assert!(any(&index, Operation::Read) && !any(&index, Operation::Write));
    let deny = |pattern_type, name| Acl {
        permission: Permission::Deny,
        ..acl(pattern_type, name, "User:*", "10.0.0.1")
    };
    index.add_all([deny(PatternType::Literal, "others")]);
    assert!(any(&index, Operation::Read));
    index.add_all([deny(PatternType::Prefixed, "ord")]);
    assert!(!any(&index, Operation::Read));
    index.add_all([acl(PatternType::Literal, "*", "User:*", "*")]);
    assert!(any(&index, Operation::Read));
    index.add_all([deny(PatternType::Literal, "*")]);
    assert!(!any(&index, Operation::Read));
}

/// A client's address has Java's form. The host of an ACL can be written in any other.
#[test]
fn hosts_of_ipv6_match_however_they_are_written() {
    let anna = Principal::user("anna");
    for (host, client) in [
        ("2001:db8::1", "2001:db8:0:0:0:0:0:1"),
        ("2001:0DB8:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ] {
        let mut index = AclIndex::default();
        index.add_all([acl(PatternType::Literal, "orders", "User:anna", host)]);
        let decide = |index: &AclIndex, host: &str| {
            index.decide(&anna, host, Operation::Read, ResourceType::Topic, "orders")
        };
        assert_eq!(decide(&index, client), Decision::Allowed, "{host}");
        assert_eq!(decide(&index, "2001:db8:0:0:0:0:0:2"), Decision::Denied, "{host}");
        index.remove_all([&acl(PatternType::Literal, "orders", "User:anna", host)]);
        assert_eq!(decide(&index, client), Decision::NoAcls, "{host}");
    }
}

/// Each removed ACL made the rules of its pattern again, and each new prefix linked all others: with 100,000 ACLs, no client was
/// served for minutes.
#[test]
fn many_acls_are_linked_once_for_each_change() {
    const COUNT: usize = 20_000;
    let prefixes = (0..COUNT).map(|i| acl(PatternType::Prefixed, &format!("p{i}."), "User:anna", "*"));
    let users = (0..COUNT).map(|i| acl(PatternType::Literal, "orders", &format!("User:u{i}"), "*"));
    let hosts = (0..COUNT)
        .map(|i| acl(PatternType::Literal, "*", "User:bo", &format!("10.0.{}.{}", i / 256, i % 256)));
    let all: Vec<Acl> = prefixes.chain(users).chain(hosts).collect();
    let mut index = AclIndex::default();
    index.add_all(all.iter().cloned());
    let links = |index: &AclIndex| index.types[ResourceType::Topic as usize].links;
    assert_eq!((index.len(), links(&index)), (3 * COUNT, 1));
    let decide = |index: &AclIndex, user: &str, host: &str, name: &str| {
        index.decide(&Principal::user(user), host, Operation::Read, ResourceType::Topic, name)
    };
    assert_eq!(decide(&index, "anna", "10.1.0.1", "p19999.x"), Decision::Allowed);
    assert_eq!(decide(&index, "u19999", "10.1.0.1", "orders"), Decision::Allowed);
    assert_eq!(decide(&index, "bo", "10.0.78.31", "others"), Decision::Allowed);
    assert_eq!(decide(&index, "bo", "10.1.0.1", "others"), Decision::Denied);
    index.remove_all(&all);
    assert_eq!((index.len(), links(&index)), (0, 2));
    let of_type = &index.types[ResourceType::Topic as usize];
    assert!(of_type.wildcard.is_empty() && of_type.literal.is_empty() && of_type.prefixed.is_empty());
}

/// Two ACLs that write one host differently are two ACLs: the end of one leaves what the other allows.
#[test]
fn a_removed_acl_leaves_another_one_of_the_same_host() {
    let anna = Principal::user("anna");
    let of = |host| acl(PatternType::Literal, "orders", "User:anna", host);
    let mut index = AclIndex::default();
    index.add_all([of("2001:db8::1"), of("2001:0db8::1")]);
    for (removed, expected) in [("2001:db8::1", Decision::Allowed), ("2001:0db8::1", Decision::NoAcls)] {
        index.remove_all([&of(removed)]);
        let client = "2001:db8:0:0:0:0:0:1";
        assert_eq!(
            index.decide(&anna, client, Operation::Read, ResourceType::Topic, "orders"),
            expected,
            "{removed}"
        );
    }
}
