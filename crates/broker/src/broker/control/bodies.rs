//! The JSON of requests to a control address.

use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::intercept::{Fault, FaultRule};

/// A wait without `within_ms` takes at most this long.
const WAIT_DEFAULT_MS: u64 = 30_000;
/// The longest wait: a test that needs more has a defect.
const WAIT_MS_MAX: u64 = 600_000;

/// A fault and the requests that have it: the body of `POST /faults`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultBody {
    api: String,
    action: Action,
    error: Option<String>,
    delay_ms: Option<u64>,
    bytes: Option<usize>,
    node: Option<i32>,
    client_id: Option<String>,
    topic: Option<String>,
    count: Option<u32>,
}

/// The fault, by its name in `ottla fault add`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Fail,
    Delay,
    AnswerLate,
    Cut,
    CutAfter,
    CutAt,
    Hang,
    HangAfter,
}

impl FaultBody {
    /// Returns the rule, or the reason why there is none.
    pub(super) fn rule(self) -> Result<FaultRule, String> {
        let api = api_of(&self.api)?;
        let fault = self.fault()?;
        let Self { node, client_id, topic, count, .. } = self;
        Ok(FaultRule { node, client_id, topic, count: count.unwrap_or(1), ..FaultRule::new(api, fault) })
    }

    fn fault(&self) -> Result<Fault, String> {
        let delay = self.delay_ms.map(Duration::from_millis);
        let fault = match (self.action, delay, &self.error, self.bytes) {
            (Action::Fail, None, Some(error), None) => Fault::Fail(error_of(error)?),
            (Action::Fail, Some(delay), Some(error), None) => Fault::FailAfter(error_of(error)?, delay),
            (Action::Fail, ..) => return Err("`fail` needs `error`, takes `delay_ms` and no `bytes`".into()),
            (Action::Delay, Some(delay), None, None) => Fault::Delay(delay),
            (Action::AnswerLate, Some(delay), None, None) => Fault::AnswerAfter(delay),
            (Action::Delay | Action::AnswerLate, ..) => {
                return Err("`delay` and `answer-late` need `delay_ms` alone".into());
            }
            (Action::CutAt, None, None, Some(bytes)) => Fault::CutAt(bytes),
            (Action::CutAt, ..) => return Err("`cut-at` needs `bytes` alone".into()),
            (Action::Cut, None, None, None) => Fault::Cut,
            (Action::CutAfter, None, None, None) => Fault::CutAfter,
            (Action::Hang, None, None, None) => Fault::Hang,
            (Action::HangAfter, None, None, None) => Fault::HangAfter,
            (Action::Cut | Action::CutAfter | Action::Hang | Action::HangAfter, ..) => {
                return Err(
                    "`cut`, `cut-after`, `hang` and `hang-after` take no `error`, `delay_ms` or `bytes`"
                        .into(),
                );
            }
        };
        Ok(fault)
    }
}

/// The JSON of a rule, with the keys of [`FaultBody`].
pub(super) fn rule_json(id: u64, rule: &FaultRule) -> Value {
    let delay = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut json = match rule.fault {
        Fault::Fail(error) => json!({ "action": "fail", "error": error.name() }),
        Fault::FailAfter(error, time) => {
            json!({ "action": "fail", "error": error.name(), "delay_ms": delay(time) })
        }
        Fault::Delay(time) => json!({ "action": "delay", "delay_ms": delay(time) }),
        Fault::AnswerAfter(time) => json!({ "action": "answer-late", "delay_ms": delay(time) }),
        Fault::Cut => json!({ "action": "cut" }),
        Fault::CutAfter => json!({ "action": "cut-after" }),
        Fault::CutAt(bytes) => json!({ "action": "cut-at", "bytes": bytes }),
        Fault::Hang => json!({ "action": "hang" }),
        Fault::HangAfter => json!({ "action": "hang-after" }),
    };
    let filters = [
        ("id", Some(json!(id))),
        ("api", Some(json!(rule.api.to_string()))),
        ("node", rule.node.map(|node| json!(node))),
        ("client_id", rule.client_id.as_ref().map(|id| json!(id))),
        ("topic", rule.topic.as_ref().map(|topic| json!(topic))),
        ("count", Some(json!(rule.count))),
    ];
    for (key, value) in filters {
        if let Some(value) = value {
            json[key] = value;
        }
    }
    json
}

/// The change of a node: the body of `POST /nodes/ID`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeBody {
    /// `false` stops the node: its connections end, and other replicas lead its partitions.
    pub(super) up: Option<bool>,
    /// `false` cuts the node off: its connections end, and it stays leader.
    pub(super) reachable: Option<bool>,
    /// `true` pauses the node, as SIGSTOP pauses a process, and `false` resumes it.
    pub(super) paused: Option<bool>,
    /// Every response of the node is sent after this time; 0 ends that.
    pub(super) lag_ms: Option<u64>,
}

/// The body of `POST /snapshots`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotBody {
    pub(super) name: String,
}

/// The body of `POST /forks`: the broker as it is now without a snapshot's name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkBody {
    pub(super) snapshot: Option<String>,
}

/// A node to add: the body of `POST /nodes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewNodeBody {
    pub(super) id: i32,
}

/// The body of `POST /leaders`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaderBody {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// -1: the partition has no leader.
    pub(super) node: i32,
}

/// The body of `POST /followers`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FollowerBody {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// -1: consumers read at the leader again.
    pub(super) node: i32,
    /// The first offset that the follower has, if it is not the leader's.
    pub(super) low: Option<i64>,
    /// The high watermark that it knows of, if it is not the leader's.
    pub(super) high: Option<i64>,
}

/// The body of `POST /coordinators`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CoordinatorBody {
    pub(super) group: Option<String>,
    pub(super) transactional_id: Option<String>,
    pub(super) node: i32,
}

/// The body of `POST /now`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NowBody {
    pub(super) action: Work,
    pub(super) topic: Option<String>,
}

/// Periodic work of a broker.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Work {
    ApplyRetention,
    Roll,
    Compact,
    ExpireOffsets,
    AbortTimedOutTransactions,
}

/// The body of `POST /wait`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitBody {
    pub(super) group: Option<String>,
    pub(super) transactional_id: Option<String>,
    pub(super) state: Option<String>,
    pub(super) api: Option<String>,
    pub(super) count: Option<u64>,
    within_ms: Option<u64>,
}

impl WaitBody {
    pub(super) fn within(&self) -> Result<Duration, String> {
        match self.within_ms.unwrap_or(WAIT_DEFAULT_MS) {
            ms if ms <= WAIT_MS_MAX => Ok(Duration::from_millis(ms)),
            ms => Err(format!("`within_ms` is at most {WAIT_MS_MAX}, not {ms}")),
        }
    }
}

/// An API by its name in Kafka's protocol.
pub(super) fn api_of(name: &str) -> Result<ApiKey, String> {
    let found = ApiKey::KNOWN.iter().copied().find(|api| api.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        format!("`{name}` is no API of Kafka's protocol; `Produce` and `Fetch` are two of them")
    })
}

fn error_of(name: &str) -> Result<ErrorCode, String> {
    let found = ErrorCode::KNOWN.iter().copied().find(|code| code.name() == name);
    found.filter(|code| *code != ErrorCode::None).ok_or_else(|| {
        format!("`{name}` is no error of Kafka's protocol; `NOT_LEADER_OR_FOLLOWER` is one of them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(body: Value) -> Result<FaultRule, String> {
        serde_json::from_value::<FaultBody>(body).map_err(|error| error.to_string())?.rule()
    }

    #[test]
    fn every_fault_is_read_as_it_is_written() {
        for fault in [
            Fault::Fail(ErrorCode::NotEnoughReplicas),
            Fault::FailAfter(ErrorCode::RequestTimedOut, Duration::from_millis(5)),
            Fault::Delay(Duration::from_millis(7)),
            Fault::AnswerAfter(Duration::from_secs(1)),
            Fault::Cut,
            Fault::CutAfter,
            Fault::CutAt(12),
            Fault::Hang,
            Fault::HangAfter,
        ] {
            let of_all = FaultRule::new(ApiKey::Produce, fault);
            let of_one = of_all.clone().node(2).client_id("till").topic("orders").times(3);
            for wanted in [of_all, of_one] {
                let mut body = rule_json(1, &wanted);
                body.as_object_mut().expect("an object").remove("id");
                assert_eq!(rule(body), Ok(wanted));
            }
        }
    }

    #[test]
    fn a_body_that_says_too_little_or_too_much_is_explained() {
        let refused = |body| rule(body).expect_err("no rule");
        assert!(refused(json!({ "api": "Produce", "action": "fail" })).contains("needs `error`"));
        assert!(refused(json!({ "api": "Produce", "action": "cut", "bytes": 1 })).contains("take no"));
        assert!(refused(json!({ "api": "Produze", "action": "cut" })).contains("`Produze` is no API"));
        let error = json!({ "api": "Produce", "action": "fail", "error": "BAD" });
        assert!(refused(error).contains("`BAD` is no error"));
        assert!(refused(json!({ "api": "Produce", "action": "cut", "toppic": "t" })).contains("toppic"));
    }
}
