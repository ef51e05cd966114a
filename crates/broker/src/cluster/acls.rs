//! The ACLs of an authorizer. The journal keeps them.

use std::collections::BTreeSet;

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use crate::cluster::{Cluster, OpenError, Refusal, json, lock};
use crate::coordinator::consumer_group::patterns::PatternVersions;
use crate::data_dir;
use crate::security::Authorizer;
use crate::security::acl::{Acl, AclFilter};

/// Keys of the journal: `acls/<ACL as JSON>`. Their values are empty objects.
const ACLS_KEY: &str = "acls/";
/// ACLs of a cluster: each takes memory for good.
const ACLS_MAX: usize = 100_000;
/// ACLs in the response to one deletion. Each filter has a copy of every ACL that it selects.
const DELETED_MAX: usize = ACLS_MAX;
/// Comparisons of filters with ACLs for one deletion: about a second, in which nothing else can change.
const COMPARISONS_MAX: usize = 100_000_000;
/// ACLs that change in one step: requests wait for a step, which takes a few milliseconds.
const CHANGED_AT_ONCE: usize = 2000;

impl Cluster {
    /// Reads the ACLs from the journal. A broker without an authorizer leaves them there.
    pub(crate) fn load_acls(&self) -> Result<(), OpenError> {
        let Some(authorizer) = &self.authorizer else { return Ok(()) };
        let mut acls = Vec::new();
        for (key, _) in lock(&self.journal).iter_prefix(ACLS_KEY.as_bytes()) {
            let bad = |error: serde_json::Error| OpenError::Record {
                journal: data_dir::META_DIR,
                key: String::from_utf8_lossy(key).into_owned(),
                reason: error.to_string(),
            };
            acls.push(serde_json::from_slice(&key[ACLS_KEY.len()..]).map_err(bad)?);
        }
        authorizer.acls_mut().add_all(acls);
        Ok(())
    }

    /// The versions of the topics and ACLs that patterns are matched with.
    pub(crate) fn pattern_versions(&self) -> PatternVersions {
        let acls = self.authorizer.as_ref().map_or(0, |authorizer| authorizer.acls().version());
        PatternVersions { topics: self.topics_version(), acls }
    }

    /// Creates ACLs. They are durable and apply when this returns: it waits for a sync. An ACL that exists is no error.
    pub(crate) fn create_acls(
        &self,
        authorizer: &Authorizer,
        acls: Vec<Result<Acl, Refusal>>,
    ) -> Vec<Result<(), Refusal>> {
        let _change = lock(&self.topic_changes);
        let mut new: BTreeSet<Acl> = BTreeSet::new();
        let known = authorizer.acls().len();
        let checked = acls.into_iter().map(|acl| {
            let acl = acl?;
            if authorizer.acls().contains(&acl) {
                return Ok(());
            }
            if known + new.len() >= ACLS_MAX && !new.contains(&acl) {
                return Err((
                    ErrorCode::PolicyViolation,
                    format!("there are {ACLS_MAX} ACLs: delete some first"),
                ));
            }
            new.insert(acl);
            Ok(())
        });
        let checked: Vec<Result<(), Refusal>> = checked.collect();
        let written = self.write_acls(&new, Some(&Bytes::from_static(b"{}")));
        if written.is_ok() {
            let mut new = new.into_iter();
            while new.len() > 0 {
                authorizer.acls_mut().add_all(new.by_ref().take(CHANGED_AT_ONCE));
            }
        }
        checked.into_iter().map(|checked| checked.and(written.clone())).collect()
    }

    /// Deletes the ACLs that filters select, and returns them by filter. An ACL that several filters select is in the result of
    /// each, as in Kafka.
    pub(crate) fn delete_acls(
        &self,
        authorizer: &Authorizer,
        filters: Vec<Result<AclFilter, Refusal>>,
    ) -> Vec<Result<Vec<Acl>, Refusal>> {
        let _change = lock(&self.topic_changes);
        let known = authorizer.acls().len();
        let (mut comparisons_left, mut deleted_left) = (COMPARISONS_MAX, DELETED_MAX);
        let selected = filters.into_iter().map(|filter| {
            let filter = filter?;
            comparisons_left = comparisons_left.checked_sub(known).ok_or_else(too_many)?;
            let acls = authorizer.acls();
            let all = || acls.iter().filter(|acl| filter.selects(acl));
            deleted_left =
                deleted_left.checked_sub(all().take(deleted_left + 1).count()).ok_or_else(too_many)?;
            Ok(all().cloned().collect())
        });
        let selected: Vec<Result<Vec<Acl>, Refusal>> = selected.collect();
        let gone: BTreeSet<Acl> = selected.iter().flatten().flatten().cloned().collect();
        let written = self.write_acls(&gone, None);
        if written.is_ok() {
            let mut gone = gone.iter();
            while gone.len() > 0 {
                authorizer.acls_mut().remove_all(gone.by_ref().take(CHANGED_AT_ONCE));
            }
        }
        selected.into_iter().map(|selected| written.clone().and(selected)).collect()
    }

    fn write_acls(&self, acls: &BTreeSet<Acl>, value: Option<&Bytes>) -> Result<(), Refusal> {
        let record = |acl: &Acl| {
            let key = Bytes::from([ACLS_KEY.as_bytes(), &json(acl)?].concat());
            Ok((key, value.cloned()))
        };
        let records: Vec<_> = acls.iter().map(record).collect::<Result<_, Refusal>>()?;
        if records.is_empty() { Ok(()) } else { self.put_durably(&records) }
    }
}

fn too_many() -> Refusal {
    let reason = format!(
        "the filters of the request select more than {DELETED_MAX} ACLs, or make more than {COMPARISONS_MAX} comparisons: use \
         fewer filters"
    );
    (ErrorCode::PolicyViolation, reason)
}
