//! Members of groups without a client: the load of `cargo xtask bench groups`.
//!
//! ```text
//! group_load ADDRESS topic NAME PARTITIONS         creates a topic, and the coordinator's topic
//! group_load ADDRESS converge GROUP TOPIC MEMBERS  members of the new protocol join until each has its part
//! group_load ADDRESS leave GROUP MEMBERS           they leave
//! group_load ADDRESS commit COUNT                  groups without members commit an offset
//! group_load ADDRESS join COUNT FILE               classic groups of one member each; FILE gets the ids of the members
//! group_load ADDRESS heartbeats COUNT FILE         Heartbeat of these members, in random order
//! group_load ADDRESS rejoins COUNT FILE            JoinGroup of these members, in random order
//! group_load ADDRESS list COUNT                    ListGroups, when the broker listens, has so many groups
//! ```
//!
//! Each command prints one line of JSON.

#![allow(clippy::disallowed_methods, reason = "a measurement")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use std::{env, fs};

use bytes::Bytes;
use ottla_protocol::messages::consumer_group_describe::ConsumerGroupDescribeRequest;
use ottla_protocol::messages::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use ottla_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_protocol::messages::list_groups::ListGroupsRequest;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use ottla_protocol::{ErrorCode, Request, frame};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const CONNECTIONS: usize = 20;
const WITHIN: Duration = Duration::from_secs(120);
/// Members that send nothing for so long stay members: `group.max.session.timeout.ms`.
const SESSION_MS: i32 = 1_800_000;
const TOPIC: &str = "reach";

fn main() -> Outcome<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut report = "{}".to_owned();
    match args[..] {
        [address, "topic", name, partitions] => create_topic(address, name, partitions.parse()?)?,
        [address, "converge", group, topic, members] => {
            report = converge(address, group, topic, members.parse()?)?;
        }
        [address, "leave", group, members] => leave(address, group, members.parse()?)?,
        [address, "commit", count] => drop(in_parallel(address, count.parse()?, commit)?),
        [address, "join", count, file] => {
            let ids = in_parallel(address, count.parse()?, join)?;
            fs::write(file, ids.join("\n"))?;
        }
        [address, "heartbeats", count, file] => of_members(address, count.parse()?, file, heartbeat)?,
        [address, "rejoins", count, file] => of_members(address, count.parse()?, file, rejoin)?,
        [address, "list", count] => list(address, count.parse()?)?,
        _ => return Err("usage: the commands are at the start of group_load.rs".into()),
    }
    println!("{report}");
    Ok(())
}

struct Connection(TcpStream);

impl Connection {
    fn new(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WITHIN))?;
        Ok(Self(stream))
    }

    fn request<R: Request>(&mut self, version: i16, request: &R) -> Outcome<R::Response> {
        let request = frame::encode_request(1, Some("load"), version, request)?;
        self.0.write_all(&request.to_bytes()?)?;
        let mut size = [0; frame::SIZE_BYTES];
        self.0.read_exact(&mut size)?;
        let mut response = vec![0; frame::frame_size(size, 1 << 28)?];
        self.0.read_exact(&mut response)?;
        Ok(frame::decode_response::<R>(Bytes::from(response), version)?.1)
    }
}

fn checked(code: ErrorCode) -> Outcome<()> {
    if code == ErrorCode::None { Ok(()) } else { Err(code.to_string().into()) }
}

fn create_topic(address: &str, name: &str, num_partitions: i32) -> Outcome<()> {
    let mut connection = Connection::new(address)?;
    let topic =
        CreatableTopic { name: name.into(), num_partitions, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    checked(connection.request(5, &request)?.topics[0].error_code)?;
    let end = Instant::now() + WITHIN;
    loop {
        let request = FindCoordinatorRequest { key: "any".into(), ..Default::default() };
        match connection.request(3, &request)?.error_code {
            ErrorCode::None => return Ok(()),
            code if Instant::now() > end => return checked(code),
            _ => sleep(Duration::from_millis(50)),
        }
    }
}

/// The state of a member of the new protocol.
#[derive(Clone, Default)]
struct Member {
    epoch: i32,
    owned: Vec<TopicPartitions>,
}

impl Member {
    fn partitions(&self) -> usize {
        self.owned.iter().map(|topic| topic.partitions.len()).sum()
    }
}

fn member_id(number: usize) -> String {
    format!("member-{number:06}")
}

/// Members send heartbeats as Java's client does: at the broker's interval, and at once when they have applied an assignment.
fn converge(address: &str, group: &str, topic: &str, count: usize) -> Outcome<String> {
    let members = vec![Member::default(); count];
    let (members, started) = (Mutex::new(members), Instant::now());
    let mut beats = 0;
    scope(|scope| -> Outcome<()> {
        let run = |from| keep_members(address, group, topic, &members, from, started + WITHIN);
        let threads: Vec<_> = (0..CONNECTIONS).map(|from| scope.spawn(move || run(from))).collect();
        for thread in threads {
            beats += thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    let ms = started.elapsed().as_millis();
    let mut connection = Connection::new(address)?;
    let request = ConsumerGroupDescribeRequest { group_ids: vec![group.into()], ..Default::default() };
    let described = connection.request(0, &request)?.groups.remove(0);
    checked(described.error_code)?;
    let epoch = described.group_epoch;
    let is_final = described.group_state == "Stable"
        && described.assignment_epoch == epoch
        && described.members.iter().all(|member| member.member_epoch == epoch);
    if !is_final {
        return Err(format!("the group is {} in epoch {epoch}", described.group_state).into());
    }
    Ok(format!("{{\"ms\": {ms}, \"heartbeats\": {beats}, \"epoch\": {epoch}}}"))
}

/// Sends the heartbeats of every `CONNECTIONS`th member until the group has converged. Returns their number.
fn keep_members(
    address: &str,
    group: &str,
    topic: &str,
    members: &Mutex<Vec<Member>>,
    from: usize,
    end: Instant,
) -> Outcome<usize> {
    let mut connection = Connection::new(address)?;
    let lock = || members.lock().expect("no thread panics with it");
    let mut due: Vec<(Instant, usize)> =
        (from..lock().len()).step_by(CONNECTIONS).map(|number| (Instant::now(), number)).collect();
    let mut beats = 0;
    loop {
        if has_converged(&lock()) {
            return Ok(beats);
        }
        if Instant::now() > end {
            return Err("the group does not converge".into());
        }
        let Some(next) = due.iter_mut().min() else { return Ok(beats) };
        let wait = next.0.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            sleep(wait.min(Duration::from_millis(2)));
            continue;
        }
        let (number, mut member) = (next.1, lock()[next.1].clone());
        let response = connection.request(0, &beat(group, topic, number, &member))?;
        checked(response.error_code)?;
        beats += 1;
        let interval = Duration::from_millis(response.heartbeat_interval_ms.max(0) as u64);
        let must_acknowledge = apply(&mut member, response);
        next.0 = if must_acknowledge { Instant::now() } else { Instant::now() + interval };
        lock()[number] = member;
    }
}

fn beat(group: &str, topic: &str, number: usize, member: &Member) -> ConsumerGroupHeartbeatRequest {
    let joins = member.epoch == 0;
    ConsumerGroupHeartbeatRequest {
        group_id: group.into(),
        member_id: member_id(number),
        member_epoch: member.epoch,
        rebalance_timeout_ms: if joins { 300_000 } else { -1 },
        subscribed_topic_names: joins.then(|| vec![topic.into()]),
        topic_partitions: Some(member.owned.clone()),
        ..Default::default()
    }
}

/// Returns whether the member has another assignment than before.
fn apply(member: &mut Member, response: ConsumerGroupHeartbeatResponse) -> bool {
    member.epoch = response.member_epoch;
    let Some(assignment) = response.assignment else { return false };
    let owned: Vec<TopicPartitions> = assignment
        .topic_partitions
        .into_iter()
        .map(|topic| TopicPartitions { topic_id: topic.topic_id, partitions: topic.partitions })
        .collect();
    std::mem::replace(&mut member.owned, owned) != member.owned
}

/// Each member has one partition, each another one, in the same epoch.
fn has_converged(members: &[Member]) -> bool {
    let epoch = members[0].epoch;
    let is_ready = |member: &Member| member.epoch == epoch && member.partitions() == 1;
    if epoch == 0 || !members.iter().all(is_ready) {
        return false;
    }
    let mut all: Vec<i32> =
        members.iter().flat_map(|member| &member.owned).map(|topic| topic.partitions[0]).collect();
    all.sort_unstable();
    all.dedup();
    all.len() == members.len()
}

fn leave(address: &str, group: &str, count: usize) -> Outcome<()> {
    let mut connection = Connection::new(address)?;
    for number in 0..count {
        let leaving = Member { epoch: -1, owned: Vec::new() };
        let request =
            ConsumerGroupHeartbeatRequest { topic_partitions: None, ..beat(group, "", number, &leaving) };
        checked(connection.request(0, &request)?.error_code)?;
    }
    Ok(())
}

/// Calls `act` with each number below `count`, on several connections. Returns the results in that order.
fn in_parallel<T: Send>(
    address: &str,
    count: usize,
    act: impl Fn(&mut Connection, usize) -> Outcome<T> + Sync,
) -> Outcome<Vec<T>> {
    let act = &act;
    scope(|scope| {
        let share = count.div_ceil(CONNECTIONS);
        let run = move |from: usize| -> Outcome<Vec<T>> {
            let mut connection = Connection::new(address)?;
            (from..count.min(from + share)).map(|number| act(&mut connection, number)).collect()
        };
        let threads: Vec<_> = (0..CONNECTIONS).map(|at| scope.spawn(move || run(at * share))).collect();
        let mut all = Vec::with_capacity(count);
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(all)
    })
}

fn group_id(number: usize) -> String {
    format!("group-{number:06}")
}

fn commit(connection: &mut Connection, number: usize) -> Outcome<()> {
    let partition = OffsetCommitRequestPartition {
        committed_offset: 7,
        committed_metadata: Some(String::new()),
        ..Default::default()
    };
    let topic =
        OffsetCommitRequestTopic { name: TOPIC.into(), partitions: vec![partition], ..Default::default() };
    let request =
        OffsetCommitRequest { group_id: group_id(number), topics: vec![topic], ..Default::default() };
    checked(connection.request(8, &request)?.topics[0].partitions[0].error_code)
}

/// A member joins a classic group, and commits an offset. Returns its id.
fn join(connection: &mut Connection, number: usize) -> Outcome<String> {
    commit(connection, number)?;
    let joined = join_as(connection, number, "")?;
    let assignment = SyncGroupRequestAssignment {
        member_id: joined.member_id.clone(),
        assignment: Bytes::from_static(&[0; 30]),
    };
    let request = SyncGroupRequest {
        group_id: group_id(number),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: vec![assignment],
        ..Default::default()
    };
    checked(connection.request(3, &request)?.error_code)?;
    Ok(joined.member_id)
}

/// Version 3 is the last one in which a member joins with one request.
fn join_as(connection: &mut Connection, number: usize, member_id: &str) -> Outcome<JoinGroupResponse> {
    // Version 0 of a subscription: the topic and no data of the user.
    let metadata = Bytes::from_static(b"\0\0\0\0\0\x01\0\x05reach\xff\xff\xff\xff");
    let request = JoinGroupRequest {
        group_id: group_id(number),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: SESSION_MS,
        member_id: member_id.into(),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata }],
        ..Default::default()
    };
    let joined = connection.request(3, &request)?;
    checked(joined.error_code)?;
    Ok(joined)
}

/// Calls `act` `count` times with a group's number and its member.
fn of_members(
    address: &str,
    count: usize,
    file: &str,
    act: impl Fn(&mut Connection, usize, &str) -> Outcome<()>,
) -> Outcome<()> {
    let ids = fs::read_to_string(file)?;
    let ids: Vec<&str> = ids.lines().collect();
    let mut connection = Connection::new(address)?;
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..count {
        let number = rng.usize(..ids.len());
        act(&mut connection, number, ids[number])?;
    }
    Ok(())
}

/// Heartbeats come before rejoins: all members are in generation 1.
fn heartbeat(connection: &mut Connection, number: usize, member_id: &str) -> Outcome<()> {
    let request = HeartbeatRequest {
        group_id: group_id(number),
        generation_id: 1,
        member_id: member_id.into(),
        ..Default::default()
    };
    checked(connection.request(3, &request)?.error_code)
}

/// The only member of a group joins again: the group has a new generation at once.
fn rejoin(connection: &mut Connection, number: usize, member_id: &str) -> Outcome<()> {
    join_as(connection, number, member_id).map(drop)
}

fn list(address: &str, count: usize) -> Outcome<()> {
    let started = Instant::now();
    let listed = loop {
        let listed = Connection::new(address)
            .and_then(|mut connection| connection.request(4, &ListGroupsRequest::default()));
        match listed {
            Ok(listed) if listed.error_code == ErrorCode::None => break listed,
            Err(error) if started.elapsed() > WITHIN => return Err(error),
            _ => sleep(Duration::from_millis(1)),
        }
    };
    if listed.groups.len() != count {
        return Err(format!("{} groups instead of {count}", listed.groups.len()).into());
    }
    Ok(())
}
