//! All ACLs, arranged so that those of one resource and one principal are found at once.
//!
//! A literal pattern is found by its name. Of the prefixes, the greatest one that is not above the name is found by a binary
//! search: it matches, or one of its own prefixes does, or none does.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::Principal;
use super::acl::{Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType, WILDCARD};
use crate::peer::java_address;

/// The decision of the ACLs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Decision {
    Allowed,
    Denied,
    /// No ACL, of whatever principal, is for this resource.
    NoAcls,
}

/// The operations that ACLs allow and deny at one host.
#[derive(Debug)]
struct HostRule {
    /// `None` for every host.
    host: Option<String>,
    allowed: i32,
    denied: i32,
}

/// The ACLs of one pattern, by principal.
#[derive(Debug, Default)]
struct Rules {
    /// The ACLs of `User:*`.
    of_everyone: Vec<HostRule>,
    by_principal: FxHashMap<Principal, Vec<HostRule>>,
}

/// The rules of a prefix.
#[derive(Debug)]
struct PrefixRules {
    prefix: String,
    rules: Rules,
    /// The position of the longest other prefix that is a prefix of this one.
    parent: Option<usize>,
}

/// The patterns of one type of resource.
#[derive(Debug, Default)]
struct OfType {
    /// The pattern for all names, `*`.
    wildcard: Rules,
    literal: FxHashMap<String, Rules>,
    /// Sorted by prefix.
    prefixed: Vec<PrefixRules>,
    /// All prefixes, one after the other, and their ends: a search reads less memory than in `prefixed`.
    prefixes: String,
    prefix_ends: Vec<usize>,
}

/// All ACLs of a cluster.
#[derive(Debug, Default)]
pub(crate) struct AclIndex {
    acls: BTreeSet<Acl>,
    /// The number of changes.
    version: u64,
    /// By the number of the type.
    types: [OfType; ResourceType::COUNT],
}

/// The allowed and the denied operations that were found so far.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    allowed: i32,
    denied: i32,
    has_acls: bool,
}

impl Found {
    fn decide(self, operation: Operation) -> Decision {
        if self.denied & operation.bit() != 0 {
            Decision::Denied
        } else if self.allowed & operation.bit() != 0 {
            Decision::Allowed
        } else if self.has_acls {
            Decision::Denied
        } else {
            Decision::NoAcls
        }
    }
}

impl AclIndex {
    /// The number of ACLs.
    pub(crate) fn len(&self) -> usize {
        self.acls.len()
    }

    /// A number that changes with every change of the ACLs.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn contains(&self, acl: &Acl) -> bool {
        self.acls.contains(acl)
    }

    /// All ACLs, those of one pattern next to each other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Acl> {
        self.acls.iter()
    }

    /// Adds an ACL that [`Acl::check`] accepts. Adding it again changes nothing.
    pub(crate) fn add(&mut self, acl: Acl) {
        let Some(principal) = acl.parsed_principal() else { return };
        if !self.acls.contains(&acl) {
            self.rules_of(&acl.pattern).add(principal, &acl);
            self.acls.insert(acl);
            self.version += 1;
        }
    }

    pub(crate) fn remove(&mut self, acl: &Acl) {
        if !self.acls.remove(acl) {
            return;
        }
        self.version += 1;
        let pattern = &acl.pattern;
        let mut rules = Rules::default();
        let first = Acl { principal: String::new(), host: String::new(), ..acl.clone() };
        for left in self.acls.range(first..).take_while(|left| left.pattern == *pattern) {
            if let Some(principal) = left.parsed_principal() {
                rules.add(principal, left);
            }
        }
        let is_empty = rules.is_empty();
        *self.rules_of(pattern) = rules;
        let of_type = &mut self.types[pattern.resource_type as usize];
        if !is_empty {
            return;
        }
        match pattern.pattern_type {
            PatternType::Literal => drop(of_type.literal.remove(&pattern.name)),
            PatternType::Prefixed => {
                of_type.prefixed.retain(|entry| entry.prefix != pattern.name);
                of_type.link();
            }
        }
    }

    fn rules_of(&mut self, pattern: &ResourcePattern) -> &mut Rules {
        let of_type = &mut self.types[pattern.resource_type as usize];
        match pattern.pattern_type {
            PatternType::Literal if pattern.name == WILDCARD => &mut of_type.wildcard,
            PatternType::Literal => of_type.literal.entry(pattern.name.clone()).or_default(),
            PatternType::Prefixed => {
                let at = match of_type.prefixed.binary_search_by(|entry| entry.prefix.cmp(&pattern.name)) {
                    Ok(at) => at,
                    Err(at) => {
                        let prefix = pattern.name.clone();
                        let entry = PrefixRules { prefix, rules: Rules::default(), parent: None };
                        of_type.prefixed.insert(at, entry);
                        of_type.link();
                        at
                    }
                };
                &mut of_type.prefixed[at].rules
            }
        }
    }

    /// Decides about one operation. `host` is the address of the client as text.
    pub(crate) fn decide(
        &self,
        principal: &Principal,
        host: &str,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> Decision {
        self.find(principal, host, resource_type, name).decide(operation)
    }

    /// The operations of a mask that are allowed; `default` if the resource has no ACLs.
    pub(crate) fn allowed_operations(
        &self,
        principal: &Principal,
        host: &str,
        (resource_type, name): (ResourceType, &str),
        mask: i32,
        default: bool,
    ) -> i32 {
        let found = self.find(principal, host, resource_type, name);
        if !found.has_acls {
            return if default { mask } else { 0 };
        }
        mask & found.allowed & !found.denied
    }

    fn find(&self, principal: &Principal, host: &str, resource_type: ResourceType, name: &str) -> Found {
        let mut found = Found::default();
        let of_type = &self.types[resource_type as usize];
        of_type.wildcard.apply(principal, host, &mut found);
        if let Some(rules) = of_type.literal.get(name) {
            rules.apply(principal, host, &mut found);
        }
        let mut next = of_type.last_prefix_up_to(name);
        while let Some(entry) = next.and_then(|at| of_type.prefixed.get(at)) {
            if name.starts_with(&entry.prefix) {
                entry.rules.apply(principal, host, &mut found);
            }
            next = entry.parent;
        }
        found
    }

    /// Returns `true` if the operation is allowed on at least one resource of the type, whatever its name.
    ///
    /// A permission does not count if a denial covers all names that it has.
    pub(crate) fn is_allowed_on_any(
        &self,
        principal: &Principal,
        host: &str,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool {
        let applies = |acl: &&Acl| {
            let of = acl.parsed_principal();
            acl.pattern.resource_type == resource_type
                && of.is_some_and(|of| of == *principal || of == *Principal::everyone())
                && (acl.host == WILDCARD || host_of(acl) == host)
                && acl.operation.mask(acl.permission) & operation.bit() != 0
        };
        let (denials, permissions): (Vec<&Acl>, Vec<&Acl>) =
            self.acls.iter().filter(applies).partition(|acl| acl.permission == Permission::Deny);
        permissions
            .iter()
            .any(|allowed| !denials.iter().any(|denied| covers(&denied.pattern, &allowed.pattern)))
    }
}

/// Returns `true` if one pattern has all names of another.
fn covers(pattern: &ResourcePattern, other: &ResourcePattern) -> bool {
    match pattern.pattern_type {
        PatternType::Literal => pattern.name == WILDCARD || pattern == other,
        PatternType::Prefixed => {
            let is_all = other.pattern_type == PatternType::Literal && other.name == WILDCARD;
            !is_all && other.name.starts_with(&pattern.name)
        }
    }
}

impl OfType {
    /// The position of the greatest prefix that is not above a name.
    fn last_prefix_up_to(&self, name: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.prefix_ends.len());
        while low < high {
            let middle = low.midpoint(high);
            let start = middle.checked_sub(1).map_or(0, |before| self.prefix_ends[before]);
            if self.prefixes[start..self.prefix_ends[middle]] <= *name {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Sets the parents of the prefixes, and copies them for searches.
    fn link(&mut self) {
        self.prefixes.clear();
        self.prefix_ends.clear();
        for entry in &self.prefixed {
            self.prefixes.push_str(&entry.prefix);
            self.prefix_ends.push(self.prefixes.len());
        }
        let mut open: Vec<usize> = Vec::new();
        for at in 0..self.prefixed.len() {
            while open
                .last()
                .is_some_and(|up| !self.prefixed[at].prefix.starts_with(&self.prefixed[*up].prefix))
            {
                open.pop();
            }
            self.prefixed[at].parent = open.last().copied();
            open.push(at);
        }
    }
}

/// The host of an ACL in the form in which clients have theirs, however it was written.
fn host_of(acl: &Acl) -> String {
    acl.host.parse().map_or_else(|_| acl.host.clone(), java_address)
}

impl Rules {
    fn add(&mut self, principal: Principal, acl: &Acl) {
        let host = Some(host_of(acl)).filter(|host| host != WILDCARD);
        let of_principal = if principal == *Principal::everyone() {
            &mut self.of_everyone
        } else {
            self.by_principal.entry(principal).or_default()
        };
        let at = of_principal.iter().position(|rule| rule.host == host).unwrap_or_else(|| {
            of_principal.push(HostRule { host, allowed: 0, denied: 0 });
            of_principal.len() - 1
        });
        let mask = acl.operation.mask(acl.permission);
        match acl.permission {
            Permission::Allow => of_principal[at].allowed |= mask,
            Permission::Deny => of_principal[at].denied |= mask,
        }
    }

    fn apply(&self, principal: &Principal, host: &str, found: &mut Found) {
        found.has_acls |= !self.is_empty();
        // Without an entry, the principal is not hashed.
        let known = (!self.by_principal.is_empty()).then(|| self.by_principal.get(principal)).flatten();
        let of_principal = known.map_or(&[][..], Vec::as_slice);
        for rule in of_principal.iter().chain(&self.of_everyone) {
            if rule.host.as_deref().is_none_or(|of| of == host) {
                found.allowed |= rule.allowed;
                found.denied |= rule.denied;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.of_everyone.is_empty() && self.by_principal.is_empty()
    }
}

#[cfg(test)]
#[path = "acl_index_tests.rs"]
mod tests;
