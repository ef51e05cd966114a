//! The faults of the disk that requests have set.

use std::time::Duration;

use ottla_log::storage::faulty::{DiskCall, DiskEffect, DiskFiles, DiskRule};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Control;
use super::routes::{Refusal, found};

/// The longest delay of a call: it can hold up the thread that serves clients, signals and the control address.
const SLOW_MS_MAX: u64 = 10_000;

/// A fault of the disk and the calls that have it: the body of `POST /disk-faults`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiskFaultBody {
    call: CallName,
    action: Action,
    delay_ms: Option<u64>,
    topic: Option<String>,
    partition: Option<i32>,
    count: Option<u32>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CallName {
    Read,
    Write,
    Sync,
}

/// The effect, by its name in `ottla fault disk add`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Fail,
    Full,
    Slow,
}

impl DiskFaultBody {
    /// Returns the rule, or the reason why there is none.
    fn rule(self) -> Result<DiskRule, String> {
        let Self { call, action, delay_ms, topic, partition, count } = self;
        let call = match call {
            CallName::Read => DiskCall::Read,
            CallName::Write => DiskCall::Write,
            CallName::Sync => DiskCall::Sync,
        };
        let effect = match (action, delay_ms) {
            (Action::Full, None) if call == DiskCall::Read => {
                return Err("`full` is for `write` and `sync`: a full disk can be read".into());
            }
            (Action::Fail, None) => DiskEffect::Fail,
            (Action::Full, None) => DiskEffect::Full,
            (Action::Slow, Some(ms)) if ms > SLOW_MS_MAX => {
                return Err(format!("`delay_ms` of `slow` is at most {SLOW_MS_MAX}, not {ms}"));
            }
            (Action::Slow, Some(ms)) => DiskEffect::Slow(Duration::from_millis(ms)),
            (Action::Slow, None) => return Err("`slow` needs `delay_ms`".into()),
            (Action::Fail | Action::Full, Some(_)) => {
                return Err("only `slow` takes `delay_ms`".into());
            }
        };
        let files = match (topic, partition) {
            (None, None) => DiskFiles::All,
            (Some(topic), None) => DiskFiles::Topic(topic),
            (Some(_), Some(partition)) if partition < 0 => {
                return Err(format!("`partition` is 0 or above, not {partition}"));
            }
            (Some(topic), Some(partition)) => DiskFiles::Directory(format!("{topic}-{partition}")),
            (None, Some(_)) => return Err("`partition` needs `topic`".into()),
        };
        let count = match count {
            Some(0) => return Err("a fault of 0 calls has no effect: the count is at least 1".into()),
            count => count.unwrap_or(u32::MAX),
        };
        Ok(DiskRule { files, count, ..DiskRule::new(call, effect) })
    }
}

/// The JSON of a rule, with the keys of [`DiskFaultBody`]; the directory of one partition is `directory`.
fn rule_json(id: u64, rule: &DiskRule) -> Value {
    let call = match rule.call {
        DiskCall::Read => "read",
        DiskCall::Write => "write",
        DiskCall::Sync => "sync",
    };
    let mut json = match rule.effect {
        DiskEffect::Fail => json!({ "action": "fail" }),
        DiskEffect::Full => json!({ "action": "full" }),
        DiskEffect::Slow(time) => {
            json!({ "action": "slow", "delay_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX) })
        }
    };
    json["id"] = json!(id);
    json["call"] = json!(call);
    match &rule.files {
        DiskFiles::All => {}
        DiskFiles::Topic(topic) => json["topic"] = json!(topic),
        DiskFiles::Directory(directory) => json["directory"] = json!(directory),
    }
    if rule.count < u32::MAX {
        json["count"] = json!(rule.count);
    }
    json
}

impl Control {
    pub(super) fn disk_faults(&self) -> Vec<Value> {
        self.cluster().disk_faults().iter().map(|(id, rule)| rule_json(*id, rule)).collect()
    }

    pub(super) fn add_disk_fault(&self, body: DiskFaultBody) -> Result<Value, Refusal> {
        let rule = body.rule().map_err(Refusal::Invalid)?;
        Ok(json!({ "id": self.cluster().add_disk_fault(rule) }))
    }

    pub(super) fn remove_disk_fault(&self, id: u64) -> Result<Value, Refusal> {
        found(self.cluster().remove_disk_fault(id), || {
            format!("there is no fault {id} of the disk: its last call may have come")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(body: Value) -> Result<DiskRule, String> {
        serde_json::from_value::<DiskFaultBody>(body).map_err(|error| error.to_string())?.rule()
    }

    #[test]
    fn every_fault_of_the_disk_is_read_as_it_is_written() {
        for call in [DiskCall::Read, DiskCall::Write, DiskCall::Sync] {
            let slow = DiskEffect::Slow(Duration::from_millis(7));
            let effects = [DiskEffect::Fail, slow].into_iter();
            for effect in effects.chain((call != DiskCall::Read).then_some(DiskEffect::Full)) {
                let of_all = DiskRule::new(call, effect);
                let files = DiskFiles::Topic("orders".to_owned());
                let of_topic = DiskRule { files, count: 3, ..of_all.clone() };
                for wanted in [of_all, of_topic] {
                    let mut body = rule_json(1, &wanted);
                    body.as_object_mut().expect("an object").remove("id");
                    assert_eq!(rule(body), Ok(wanted));
                }
            }
        }
    }

    #[test]
    fn a_body_about_the_disk_that_says_too_little_or_too_much_is_explained() {
        let refused = |body| rule(body).expect_err("no rule");
        assert!(refused(json!({ "call": "sync", "action": "slow" })).contains("needs `delay_ms`"));
        let slow = json!({ "call": "write", "action": "slow", "delay_ms": 10_001 });
        assert_eq!(refused(slow), "`delay_ms` of `slow` is at most 10000, not 10001");
        let late = json!({ "call": "sync", "action": "fail", "delay_ms": 1 });
        assert!(refused(late).contains("only `slow`"));
        assert!(
            refused(json!({ "call": "sync", "action": "fail", "partition": 1 })).contains("needs `topic`")
        );
        assert!(refused(json!({ "call": "sync", "action": "fail", "count": 0 })).contains("at least 1"));
        assert!(refused(json!({ "call": "sink", "action": "fail" })).contains("sink"));
        assert!(refused(json!({ "call": "read", "action": "full" })).contains("can be read"));
        let below = json!({ "call": "write", "action": "fail", "topic": "orders", "partition": -1 });
        assert_eq!(refused(below), "`partition` is 0 or above, not -1");
    }
}
