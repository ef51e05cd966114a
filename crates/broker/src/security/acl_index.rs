//! All ACLs, arranged so that those of one resource and one principal are found at once.
//!
//! A literal pattern is found by its name. Of the prefixes, the greatest one that is not above the name is found by a binary
//! search: it matches, or one of its own prefixes does, or none does.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::iter::{once, successors};
use std::ops::Bound;

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

/// The operations that ACLs allow and deny to one principal at one host.
#[derive(Debug, Default)]
struct HostRule {
    /// One for each ACL. Two ACLs can be equal here if they write the host differently.
    of_acls: Vec<(Operation, Permission)>,
    allowed: i32,
    denied: i32,
}

/// The ACLs of one principal, by host.
#[derive(Debug, Default)]
struct HostRules {
    everywhere: HostRule,
    by_host: FxHashMap<String, HostRule>,
}

/// The ACLs of one pattern, by principal.
#[derive(Debug, Default)]
struct Rules {
    /// The ACLs of `User:*`.
    of_everyone: HostRules,
    by_principal: FxHashMap<Principal, HostRules>,
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
    #[cfg(test)]
    links: usize,
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

    /// The ACLs after one of them in the order of [`Self::iter`], from the first one without it.
    pub(crate) fn after<'a>(&'a self, acl: Option<&Acl>) -> impl Iterator<Item = &'a Acl> {
        let from = acl.map_or(Bound::Unbounded, Bound::Excluded);
        self.acls.range::<Acl, _>((from, Bound::Unbounded))
    }

    /// Adds ACLs that [`Acl::check`] accepts. Adding one again changes nothing.
    ///
    /// It costs as much as there are prefixes of the type, once, and little for each ACL.
    pub(crate) fn add_all(&mut self, acls: impl IntoIterator<Item = Acl>) {
        let mut new_prefixes: [FxHashMap<String, Rules>; ResourceType::COUNT] = Default::default();
        for acl in acls {
            let Some(principal) = acl.parsed_principal().filter(|_| !self.acls.contains(&acl)) else {
                continue;
            };
            let at = acl.pattern.resource_type as usize;
            let rules = match self.types[at].rules_of(&acl.pattern) {
                Some(rules) => rules,
                None => new_prefixes[at].entry(acl.pattern.name.clone()).or_default(),
            };
            rules.of_mut(principal).at_mut(&acl).add(&acl);
            self.acls.insert(acl);
            self.version += 1;
        }
        for (of_type, new) in self.types.iter_mut().zip(new_prefixes).filter(|(_, new)| !new.is_empty()) {
            let entry = |(prefix, rules)| PrefixRules { prefix, rules, parent: None };
            of_type.prefixed.extend(new.into_iter().map(entry));
            of_type.prefixed.sort_unstable_by(|one, other| one.prefix.cmp(&other.prefix));
            of_type.link();
        }
    }

    /// Removes ACLs, at the cost of [`Self::add_all`]. Removing one that there is not changes nothing.
    pub(crate) fn remove_all<'a>(&mut self, acls: impl IntoIterator<Item = &'a Acl>) {
        let mut has_lost_prefixes = [false; ResourceType::COUNT];
        for acl in acls {
            let Some(principal) = acl.parsed_principal().filter(|_| self.acls.remove(acl)) else { continue };
            self.version += 1;
            let at = acl.pattern.resource_type as usize;
            let of_type = &mut self.types[at];
            let Some(rules) = of_type.rules_of(&acl.pattern) else { continue };
            rules.remove(principal, acl);
            if rules.is_empty() {
                match acl.pattern.pattern_type {
                    PatternType::Literal => drop(of_type.literal.remove(&acl.pattern.name)),
                    PatternType::Prefixed => has_lost_prefixes[at] = true,
                }
            }
        }
        for (of_type, _) in self.types.iter_mut().zip(has_lost_prefixes).filter(|(_, has_lost)| *has_lost) {
            of_type.prefixed.retain(|entry| !entry.rules.is_empty());
            of_type.link();
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
        for rules in of_type.literal.get(name).into_iter().chain(of_type.covering(name)) {
            rules.apply(principal, host, &mut found);
        }
        found
    }

    /// Returns `true` if the operation is allowed on at least one resource of the type, whatever its name.
    ///
    /// A permission does not count if a denial covers all names that it has. Every ACL of the type is compared, as in Kafka.
    pub(crate) fn is_allowed_on_any(
        &self,
        principal: &Principal,
        host: &str,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool {
        let of_type = &self.types[resource_type as usize];
        let is_denied = |rules: &Rules| {
            let mut found = Found::default();
            rules.apply(principal, host, &mut found);
            found.denied & operation.bit() != 0
        };
        if is_denied(&of_type.wildcard) {
            return false;
        }
        let is_covered = |pattern: &ResourcePattern| match pattern.pattern_type {
            PatternType::Literal if pattern.name == WILDCARD => false,
            PatternType::Literal => {
                of_type.literal.get(&pattern.name).is_some_and(is_denied)
                    || of_type.covering(&pattern.name).any(is_denied)
            }
            PatternType::Prefixed => of_type.covering(&pattern.name).any(is_denied),
        };
        let allows = |acl: &&Acl| {
            acl.pattern.resource_type == resource_type
                && acl.permission == Permission::Allow
                && acl.operation.mask(acl.permission) & operation.bit() != 0
                && (principal.is_written(&acl.principal) || Principal::everyone().is_written(&acl.principal))
                && (acl.host == WILDCARD || acl.host == host || host_of(acl) == host)
        };
        self.acls.iter().filter(allows).any(|acl| !is_covered(&acl.pattern))
    }
}

impl OfType {
    /// The rules of a pattern; `None` if it is a prefix without ACLs.
    fn rules_of(&mut self, pattern: &ResourcePattern) -> Option<&mut Rules> {
        match pattern.pattern_type {
            PatternType::Literal if pattern.name == WILDCARD => Some(&mut self.wildcard),
            PatternType::Literal => Some(self.literal.entry(pattern.name.clone()).or_default()),
            PatternType::Prefixed => {
                let at = self.prefixed.binary_search_by(|entry| entry.prefix.cmp(&pattern.name)).ok()?;
                Some(&mut self.prefixed[at].rules)
            }
        }
    }

    /// The rules of the patterns with all names that begin with this one: those of `*`, and of its prefixes.
    fn covering<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Rules> {
        let entry = |at: Option<usize>| at.and_then(|at| self.prefixed.get(at));
        let prefixed = successors(entry(self.last_prefix_up_to(name)), move |at| entry(at.parent));
        let of_prefixes = prefixed.filter(|at| name.starts_with(&at.prefix)).map(|at| &at.rules);
        once(&self.wildcard).chain(of_prefixes)
    }

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
        #[cfg(test)]
        {
            self.links += 1;
        }
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

impl HostRule {
    fn add(&mut self, acl: &Acl) {
        self.of_acls.push((acl.operation, acl.permission));
        self.combine();
    }

    fn remove(&mut self, acl: &Acl) {
        let of_acl = (acl.operation, acl.permission);
        if let Some(at) = self.of_acls.iter().position(|known| *known == of_acl) {
            self.of_acls.swap_remove(at);
        }
        self.combine();
    }

    fn combine(&mut self) {
        let of = |permission| {
            let of_permission = self.of_acls.iter().filter(|known| known.1 == permission);
            of_permission.fold(0, |mask, (operation, _)| mask | operation.mask(permission))
        };
        (self.allowed, self.denied) = (of(Permission::Allow), of(Permission::Deny));
    }

    fn apply(&self, found: &mut Found) {
        found.allowed |= self.allowed;
        found.denied |= self.denied;
    }
}

impl HostRules {
    fn at_mut(&mut self, acl: &Acl) -> &mut HostRule {
        let host = host_of(acl);
        if host == WILDCARD { &mut self.everywhere } else { self.by_host.entry(host).or_default() }
    }

    fn remove(&mut self, acl: &Acl) {
        let host = host_of(acl);
        if host == WILDCARD {
            self.everywhere.remove(acl);
        } else if let Entry::Occupied(mut known) = self.by_host.entry(host) {
            known.get_mut().remove(acl);
            if known.get().of_acls.is_empty() {
                known.remove();
            }
        }
    }

    fn apply(&self, host: &str, found: &mut Found) {
        self.everywhere.apply(found);
        // Without an entry, the host is not hashed.
        if let Some(rule) = (!self.by_host.is_empty()).then(|| self.by_host.get(host)).flatten() {
            rule.apply(found);
        }
    }

    fn is_empty(&self) -> bool {
        self.everywhere.of_acls.is_empty() && self.by_host.is_empty()
    }
}

impl Rules {
    fn of_mut(&mut self, principal: Principal) -> &mut HostRules {
        if principal == *Principal::everyone() {
            &mut self.of_everyone
        } else {
            self.by_principal.entry(principal).or_default()
        }
    }

    fn remove(&mut self, principal: Principal, acl: &Acl) {
        if principal == *Principal::everyone() {
            self.of_everyone.remove(acl);
        } else if let Entry::Occupied(mut known) = self.by_principal.entry(principal) {
            known.get_mut().remove(acl);
            if known.get().is_empty() {
                known.remove();
            }
        }
    }

    fn apply(&self, principal: &Principal, host: &str, found: &mut Found) {
        found.has_acls |= !self.is_empty();
        // Without an entry, the principal is not hashed.
        let known = (!self.by_principal.is_empty()).then(|| self.by_principal.get(principal)).flatten();
        if let Some(known) = known {
            known.apply(host, found);
        }
        self.of_everyone.apply(host, found);
    }

    fn is_empty(&self) -> bool {
        self.of_everyone.is_empty() && self.by_principal.is_empty()
    }
}

#[cfg(test)]
#[path = "acl_index_tests.rs"]
mod tests;
