//! All ACLs, arranged so that those of one resource and one principal are found at once.
//!
//! A literal pattern is found by its name. Of the prefixes, the greatest one that is not above the name is found by a binary
//! search: it matches, or one of its own prefixes does, or none does.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::Principal;
use super::acl::{Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType, WILDCARD};

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
    literal: FxHashMap<String, Rules>,
    /// Sorted by prefix.
    prefixed: Vec<PrefixRules>,
}

/// All ACLs of a cluster.
#[derive(Debug, Default)]
pub(crate) struct AclIndex {
    acls: BTreeSet<Acl>,
    types: FxHashMap<ResourceType, OfType>,
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
        }
    }

    pub(crate) fn remove(&mut self, acl: &Acl) {
        if !self.acls.remove(acl) {
            return;
        }
        let pattern = &acl.pattern;
        let mut rules = Rules::default();
        let first = Acl { principal: String::new(), host: String::new(), ..acl.clone() };
        for left in self.acls.range(first..).take_while(|left| left.pattern == *pattern) {
            if let Some(principal) = left.parsed_principal() {
                rules.add(principal, left);
            }
        }
        let is_empty = rules.by_principal.is_empty();
        *self.rules_of(pattern) = rules;
        let Some(of_type) = self.types.get_mut(&pattern.resource_type).filter(|_| is_empty) else { return };
        match pattern.pattern_type {
            PatternType::Literal => drop(of_type.literal.remove(&pattern.name)),
            PatternType::Prefixed => {
                of_type.prefixed.retain(|entry| entry.prefix != pattern.name);
                of_type.link();
            }
        }
    }

    fn rules_of(&mut self, pattern: &ResourcePattern) -> &mut Rules {
        let of_type = self.types.entry(pattern.resource_type).or_default();
        match pattern.pattern_type {
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
        let Some(of_type) = self.types.get(&resource_type) else { return found };
        for literal in [name, WILDCARD] {
            if let Some(rules) = of_type.literal.get(literal) {
                rules.apply(principal, host, &mut found);
            }
        }
        let mut next = of_type.prefixed.partition_point(|entry| entry.prefix.as_str() <= name).checked_sub(1);
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
                && (acl.host == WILDCARD || acl.host == host)
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
    /// Sets the parents of the prefixes.
    fn link(&mut self) {
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

impl Rules {
    fn add(&mut self, principal: Principal, acl: &Acl) {
        let host = Some(acl.host.clone()).filter(|host| host != WILDCARD);
        let of_principal = self.by_principal.entry(principal).or_default();
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
        found.has_acls |= !self.by_principal.is_empty();
        for principal in [principal, Principal::everyone()] {
            let rules = self.by_principal.get(principal).into_iter().flatten();
            for rule in rules.filter(|rule| rule.host.as_deref().is_none_or(|of| of == host)) {
                found.allowed |= rule.allowed;
                found.denied |= rule.denied;
            }
        }
    }
}

#[cfg(test)]
#[path = "acl_index_tests.rs"]
mod tests;
