//! Asks a broker on a damaged disk for everything, and compares it with the history: each acknowledged record is
//! served, or an error reports its loss.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use ottla_broker::{Broker, ErrorCode};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::{Request, frame};
use ottla_wire::{Batches, Records};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use crate::checker::{Anomaly, Value};
use crate::host::{Host, NODES};
use crate::topics::GROUPS;
use crate::world::World;

/// After a power cut the loss of records that were acknowledged within this time may go unnoticed: docs/LOG_FORMAT.md.
pub(crate) const UNNOTICED: Duration = Duration::from_millis(1200);
/// A response must arrive within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const FETCH_BYTES: i32 = 1 << 20;
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// The effect of damage.
#[derive(Debug)]
pub(crate) enum Finding {
    /// Everything is served.
    Sound,
    /// The start was refused, or requests for the lost records fail.
    Reported(String),
    /// Clients would see wrong data, or miss some, without an error.
    Silent(Vec<Anomaly>),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound => f.write_str("everything is served"),
            Self::Reported(what) => write!(f, "reported, {what}"),
            Self::Silent(anomalies) => write!(f, "{anomalies:?}"),
        }
    }
}

/// Starts a broker on a copy of `disk`, of which `path` is damaged, and reads everything from it.
pub(crate) async fn probe(
    host: &Host,
    disk: &MemStorage,
    path: &str,
    world: &World,
    power_cut: bool,
    seed: u64,
) -> Finding {
    let mut broker = match host.open(&disk.fork(), seed).await {
        Ok(broker) => broker,
        Err(error) => {
            let text = error.to_string();
            let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
            // The end of a journal that a power cut may remove is no damage. Directories without a topic then stop the
            // start, and the error names them.
            let is_named = text.contains(file) || (!dir.is_empty() && text.contains(dir));
            if is_named || power_cut && text.contains("no topic has it") {
                return Finding::Reported(text);
            }
            let what = format!("{path} is damaged, and the start is refused with: {text}");
            return Finding::Silent(vec![Anomaly::SilentDamage { what }]);
        }
    };
    let mut nodes: Vec<DuplexStream> = (1..=NODES).map(|node| broker.connect(node)).collect();
    let mut reported = None;
    let mut silent = Vec::new();
    for slot in 0..world.options.slots() {
        let known = world.history.borrow().known_log(slot);
        let required = world.history.borrow().required(slot, power_cut.then_some(UNNOTICED));
        let served = read_slot(&mut nodes, world, slot, &known).await;
        if let Some((at, code)) = served.errors.iter().find(|(_, code)| is_report(**code)) {
            reported = Some(format!("slot {slot} at {at}: {code}"));
        }
        silent.extend(compare(path, slot, &known, &required, &served, world));
    }
    if let Some(partition) = broker.cluster().offline_coordinator_partition() {
        reported = Some(format!("partition {partition} of __consumer_offsets is offline"));
    }
    silent.extend(lost_commits(path, &broker, world, power_cut));
    drop(nodes);
    broker.stop().await;
    match (silent.is_empty(), reported) {
        (false, _) => Finding::Silent(silent),
        (true, Some(text)) => Finding::Reported(text),
        (true, None) => Finding::Sound,
    }
}

/// The records and the errors of a slot, by offset.
#[derive(Debug, Default)]
struct Served {
    records: BTreeMap<i64, Bytes>,
    errors: BTreeMap<i64, ErrorCode>,
    /// Batches whose checksum is wrong: a client rejects them, and cannot read on.
    corrupt: BTreeSet<i64>,
}

impl Served {
    /// Returns `true` if clients get the record, or learn that it is lost.
    fn has(&self, offset: i64) -> bool {
        self.records.contains_key(&offset) || self.errors.get(&offset).is_some_and(|code| is_report(*code))
    }
}

/// Returns `true` for an error that reports a loss. A consumer takes OFFSET_OUT_OF_RANGE for a log whose records were deleted, and
/// the others are repeated or are errors of the request.
fn is_report(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::CorruptMessage | ErrorCode::KafkaStorageError)
}

async fn read_slot(
    nodes: &mut [DuplexStream],
    world: &World,
    slot: i32,
    known: &BTreeMap<i64, Value>,
) -> Served {
    let mut served = Served::default();
    let end = known.last_key_value().map_or(0, |(offset, _)| offset + 1);
    if end == 0
        && let Err(code) = fetch(nodes, world, slot, 0).await
    {
        // Nothing is lost, and the partition is offline.
        served.errors.insert(0, code);
    }
    let mut from = 0;
    while from < end {
        match fetch(nodes, world, slot, from).await {
            Ok(bytes) => {
                let next = decode(&bytes, from, world.unchecked, &mut served);
                if next == from {
                    // Nothing is served here although there were records: `compare` reports it.
                    from += 1;
                } else {
                    from = next;
                }
            }
            Err(code) => {
                served.errors.insert(from, code);
                from += 1;
            }
        }
    }
    served
}

/// Takes the records from `from` on, and returns the offset after them.
fn decode(bytes: &Bytes, from: i64, unchecked: bool, served: &mut Served) -> i64 {
    let mut next = from;
    for found in Batches::new(bytes) {
        // A fetch may cut off its last batch.
        let Ok((header, range)) = found else { break };
        if !unchecked && header.verify_crc(&bytes[range.clone()]).is_err() {
            served.corrupt.insert(header.base_offset);
            break;
        }
        let Ok(records) = Records::of_batch(&bytes.slice(range), DECOMPRESSED_BYTES_MAX) else {
            served.corrupt.insert(header.base_offset);
            break;
        };
        for record in &records {
            let Ok(record) = record else {
                served.corrupt.insert(header.base_offset);
                break;
            };
            if record.offset >= next {
                served
                    .records
                    .insert(record.offset, Bytes::copy_from_slice(record.value.unwrap_or_default()));
            }
        }
        next = next.max(header.next_offset());
    }
    next
}

fn compare(
    path: &str,
    slot: i32,
    known: &BTreeMap<i64, Value>,
    required: &BTreeSet<i64>,
    served: &Served,
    world: &World,
) -> Vec<Anomaly> {
    let silent = |text: String| Anomaly::SilentDamage { what: format!("{path} is damaged: {text}") };
    let mut found = Vec::new();
    let mut seen: BTreeMap<Value, i64> = BTreeMap::new();
    for (offset, bytes) in &served.records {
        let value = Value::parse(bytes).filter(|value| value.slot == slot);
        let Some(value) = value.filter(|value| world.history.borrow().is_known(*value)) else {
            found.push(silent(format!("{slot}-{offset} has bytes that were not sent")));
            continue;
        };
        if let Some(before) = seen.insert(value, *offset) {
            found.push(Anomaly::Duplicate { value, offsets: [before, *offset] });
        }
        if let Some(right) = known.get(offset).filter(|right| **right != value) {
            found.push(Anomaly::InconsistentOffsets { slot, offset: *offset, values: [*right, value] });
        }
    }
    for offset in &served.corrupt {
        found.push(silent(format!("{slot}-{offset} is served with a wrong checksum")));
    }
    if let Some(lost) = required.iter().find(|offset| !served.has(**offset)) {
        let (value, error) = (known[lost], served.errors.get(lost));
        found.push(silent(format!("{value} at {slot}-{lost} is neither served nor reported: {error:?}")));
    }
    found
}

/// Acknowledged commits that the broker does not have, of the groups that it serves.
fn lost_commits(path: &str, broker: &Broker, world: &World, power_cut: bool) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let history = world.history.borrow();
    if power_cut {
        // The loss of the last commits may go unnoticed as well.
        return found;
    }
    for ((group, slot), acknowledged) in history.required_commits(Instant::now()) {
        if !broker.cluster().is_group_served(GROUPS[usize::from(group)]) {
            continue;
        }
        let (topic, partition) = world.options.place(slot);
        let committed = broker.cluster().committed_offset(GROUPS[usize::from(group)], topic, partition);
        if committed.unwrap_or(-1) < acknowledged {
            let what = format!(
                "{path} is damaged: group {group} has committed {acknowledged} of {slot}, and finds {committed:?}"
            );
            found.push(Anomaly::SilentDamage { what });
        }
    }
    found
}

async fn fetch(nodes: &mut [DuplexStream], world: &World, slot: i32, from: i64) -> Result<Bytes, ErrorCode> {
    let (topic, partition) = world.options.place(slot);
    let part = FetchPartition {
        partition,
        current_leader_epoch: -1,
        fetch_offset: from,
        last_fetched_epoch: -1,
        partition_max_bytes: FETCH_BYTES,
        ..Default::default()
    };
    let request = FetchRequest {
        replica_id: -1,
        max_bytes: FETCH_BYTES,
        session_epoch: -1,
        topics: vec![FetchTopic { topic: topic.into(), partitions: vec![part], ..Default::default() }],
        ..Default::default()
    };
    let mut last = ErrorCode::NotLeaderOrFollower;
    for node in nodes {
        let answer = ask(node, 12, &request).await;
        let part = &answer.responses[0].partitions[0];
        match part.error_code {
            ErrorCode::None => {
                let bytes =
                    part.records.as_ref().map(|chain| chain.to_bytes().expect("a response is in memory"));
                return Ok(bytes.unwrap_or_default());
            }
            code => last = code,
        }
        if last != ErrorCode::NotLeaderOrFollower {
            break;
        }
    }
    Err(last)
}

/// Sends a request and returns its response.
async fn ask<R: Request>(node: &mut DuplexStream, version: i16, request: &R) -> R::Response {
    let exchange = async {
        let chain = frame::encode_request(1, Some("probe"), version, request).expect("a supported version");
        node.write_all(&chain.to_bytes().expect("a request is in memory")).await?;
        let size = node.read_i32().await?;
        let mut answer = vec![0; size as usize];
        node.read_exact(&mut answer).await?;
        Ok::<_, std::io::Error>(Bytes::from(answer))
    };
    let answer = tokio::time::timeout(ANSWER_WITHIN, exchange).await.expect("a response in time");
    let answer = answer.expect("the broker keeps the connection open");
    frame::decode_response::<R>(answer, version).expect("a sound response").1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any error was a report: a log that lost its records and began again passed.
    #[test]
    fn only_an_error_of_the_disk_or_of_a_batch_reports_a_loss() {
        let with = |code| Served { errors: BTreeMap::from([(3, code)]), ..Served::default() };
        for code in [ErrorCode::KafkaStorageError, ErrorCode::CorruptMessage] {
            assert!(with(code).has(3) && !with(code).has(4));
        }
        for code in
            [ErrorCode::OffsetOutOfRange, ErrorCode::NotLeaderOrFollower, ErrorCode::UnknownTopicOrPartition]
        {
            assert!(!with(code).has(3), "{code}");
        }
        let records = BTreeMap::from([(3, Bytes::new())]);
        assert!(Served { records, ..Served::default() }.has(3));
    }
}
