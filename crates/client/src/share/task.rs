//! The task of one share consumer. It awaits, calls the core and performs the core's actions.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::share_acknowledge::ShareAcknowledgeResponse;
use ottla_protocol::messages::share_fetch::ShareFetchResponse;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::acknowledgements::{AckRange, TopicIdPartition};
use super::commands::{CommitResults, ShareCommand};
use super::core::{ShareAction, ShareCore, ShareSettings, ShareView};
use super::kept_connections::KeptConnections;
use super::links::ShareLinks;
use super::member::Member;
use super::queue::{AckOutcome, ShareItem, ShareQueue};
use super::requests::{ShareIdentity, send_acknowledge, send_fetch, while_listed};
use super::watch::ShareWatch;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::group::membership_status::MembershipStep;
use crate::log::Context;
use crate::loop_timer::LoopTimer;
use crate::stats::Observer;
use crate::stats::share::ShareCounters;
use crate::types::{AcknowledgeType, AcknowledgementResult, TopicPartition};

/// The result of a request.
enum Event {
    Fetched(i32, Result<ShareFetchResponse, Error>),
    Acknowledged(i32, Result<ShareAcknowledgeResponse, Error>),
}

/// A commit that waits for its acknowledgements.
struct WaitingCommit {
    /// The first acknowledgements whose results it reports.
    from: u64,
    up_to: u64,
    /// The time of the reply with the results so far.
    reply_at: Option<Instant>,
    results: CommitResults,
    reply: oneshot::Sender<Result<CommitResults, Error>>,
}

impl WaitingCommit {
    /// Returns `true` if all of its acknowledgements are settled, or if its caller waits no longer for them.
    fn is_due(&self, now: Instant, core: &ShareCore) -> bool {
        self.reply_at.is_some_and(|at| at <= now) || !core.has_unsettled(&(self.from..=self.up_to))
    }

    /// Returns `true` if it was to report all results and its caller has stopped waiting.
    fn is_given_up(&self) -> bool {
        self.from == 0 && self.reply.is_closed()
    }
}

/// Adds the result of a partition. The first error of a partition is kept.
fn add_result(results: &mut CommitResults, at: &TopicPartition, result: &Result<(), Error>) {
    match results.get_mut(at) {
        Some(Err(_)) => {}
        Some(known) => known.clone_from(result),
        None => drop(results.insert(at.clone(), result.clone())),
    }
}

fn add_results(results: &mut CommitResults, others: &CommitResults) {
    for (at, result) in others {
        add_result(results, at, result);
    }
}

struct ShareTask {
    core: ShareCore,
    member: Rc<Member>,
    connections: KeptConnections,
    links: ShareLinks,
    view: View,
    identity: ShareIdentity,
    requests: FuturesUnordered<Pin<Box<dyn Future<Output = Event>>>>,
    commits: Vec<WaitingCommit>,
    /// The requests to leave the group after an unsubscribe.
    leaving: JoinSet<()>,
    /// The results of acknowledgements that no commit has reported.
    results: CommitResults,
    /// The errors of assigned topics that the application knows.
    unavailable: BTreeMap<Arc<str>, ErrorCode>,
    /// The time of the last log line about a poll that cannot get records.
    stall_logged_at: Option<Instant>,
}

/// The interval of log lines about polls that cannot get records.
const STALL_LOGGED_EVERY: Duration = Duration::from_secs(5);

struct View {
    cluster: Rc<Cluster>,
    queue: Arc<ShareQueue>,
}

impl ShareView for View {
    fn leader(&self, key: TopicIdPartition, at: &TopicPartition) -> Option<i32> {
        let info = self.cluster.leader_info(&at.topic, at.partition)?;
        (info.topic_id == key.topic_id).then_some(info.leader)
    }

    fn room(&self) -> usize {
        self.queue.budget.room()
    }
}

/// Serves one share consumer until it is closed or dropped.
pub(crate) async fn run(
    cluster: Rc<Cluster>,
    group: String,
    links: ShareLinks,
    mut control: mpsc::UnboundedReceiver<ShareCommand>,
) {
    let member = Member::new(cluster.clone(), group.clone(), links.queue.clone(), links.polls.clone());
    let identity = ShareIdentity { group, member_id: member.member_id() };
    let observer = cluster.observer.clone();
    let _notice = FailureNotice { observer: observer.clone(), queue: links.queue.clone() };
    let (mut changes, mut watch) = (cluster.changes(), ShareWatch::new(&cluster, &links));
    let mut task = ShareTask {
        core: ShareCore::new(ShareSettings::new(&cluster.config)),
        member: member.clone(),
        connections: KeptConnections::new(cluster.clone()),
        view: View { cluster, queue: links.queue.clone() },
        links: links.clone(),
        identity,
        requests: FuturesUnordered::new(),
        commits: Vec::new(),
        leaving: JoinSet::new(),
        results: CommitResults::new(),
        unavailable: BTreeMap::new(),
        stall_logged_at: None,
    };
    let (mut membership, mut timer) = (JoinSet::new(), LoopTimer::new());
    loop {
        let now = Instant::now();
        task.update(now);
        let watch_at = watch.look(now, &task.core, &task.member);
        timer.set(earliest(earliest(task.core.wake_at(), watch_at), task.next_reply()));
        tokio::select! {
            biased;
            command = control.recv() => match command {
                Some(ShareCommand::Close { acks, timeout, reply }) => {
                    drop(membership);
                    task.links.queue.acknowledge(acks);
                    task.close(timeout).await;
                    let _ = reply.send(Ok(()));
                    return;
                }
                Some(ShareCommand::Subscribe(topics, done)) if topics.is_empty() => {
                    // `abort_all` would leave the task in the set for a while, and the next subscription would start none.
                    membership = JoinSet::new();
                    task.unsubscribe(done);
                }
                Some(ShareCommand::Subscribe(topics, done)) => {
                    task.unavailable.clear();
                    member.subscribe(topics);
                    while membership.try_join_next().is_some() {}
                    if membership.is_empty() {
                        membership.spawn_local(observer.clone().watched("share member", member.clone().live()));
                    }
                    let _ = done.send(Ok(()));
                }
                Some(ShareCommand::Commit { acks, from, up_to, reply_at, reply }) => {
                    let results = match from {
                        Some(_) => CommitResults::new(),
                        None => task.take_unreported(),
                    };
                    let from = from.unwrap_or_default();
                    task.commits.push(WaitingCommit { from, up_to, reply_at, results, reply });
                    task.links.queue.acknowledge(acks);
                    task.core.commit();
                }
                Some(ShareCommand::Assignment(reply)) => {
                    let _ = reply.send(Ok(task.core.assigned().values().cloned().collect()));
                }
                // The consumer was dropped without close: the session times out.
                None => return,
            },
            Some(event) = task.requests.next() => task.on_event(event),
            Some(ended) = task.leaving.join_next() => observer.joined("leaving", ended),
            () = member.changed.notified() => task.core.assign(member.assigned()),
            () = links.queue.demand.notified() => {}
            () = changes.changed() => task.report_unavailable_topics(),
            () = timer.expired() => {}
        }
    }
}

/// Gives the consumer an error if a panic ends the client: a poll would wait for records for ever.
struct FailureNotice {
    observer: Arc<Observer>,
    queue: Arc<ShareQueue>,
}

impl Drop for FailureNotice {
    fn drop(&mut self) {
        // The panic may be the consumer's own, which is noted when its task has unwound.
        if self.observer.failure.is_set() || std::thread::panicking() {
            self.queue.push(ShareItem::Error(Error::Closed));
        }
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

impl ShareTask {
    /// Leaves the group. The coordinator may answer late, and acknowledgements continue meanwhile.
    fn unsubscribe(&mut self, done: oneshot::Sender<Result<(), Error>>) {
        self.core.assign(BTreeMap::default());
        let leaving = self.member.unsubscribe();
        self.leaving.spawn_local(async move {
            leaving.await;
            let _ = done.send(Ok(()));
        });
    }

    fn update(&mut self, now: Instant) {
        let demand = self.links.queue.take_demand();
        if demand.is_waiting && self.core.assigned().is_empty() {
            self.log_stall(now, || "no partitions are assigned".to_owned());
        }
        self.core.update(now, demand, &self.view);
        self.perform_actions();
        self.answer_commits(now);
        self.connections.keep(self.core.leaders_with_session());
    }

    fn log_stall(&mut self, now: Instant, reason: impl FnOnce() -> String) {
        if self.stall_logged_at.is_none_or(|at| now >= at + STALL_LOGGED_EVERY) {
            self.stall_logged_at = Some(now);
            let log = &self.view.cluster.observer.log;
            log.debug(Context::Consumer, "FETCHMORE", || format!("Fetch stalled: {}", reason()));
        }
    }

    /// Reports the errors of assigned topics, each once until it changes.
    fn report_unavailable_topics(&mut self) {
        let View { cluster, queue } = &self.view;
        let mut current = BTreeMap::new();
        for at in self.core.assigned().values() {
            let code = cluster.lasting_error(&at.topic).filter(|code| {
                matches!(code, ErrorCode::InvalidTopicException | ErrorCode::TopicAuthorizationFailed)
            });
            if let Some(code) = code {
                current.insert(at.topic.clone(), code);
            }
        }
        for (topic, code) in &current {
            if self.unavailable.get(topic) != Some(code) {
                let what = format!("reading the subscribed topic {topic}");
                queue.push(ShareItem::Error(Error::Broker { what, code: *code }));
            }
        }
        self.unavailable = current;
    }

    fn on_event(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Fetched(node, result) => {
                match &result {
                    Ok(response) => {
                        self.stall_logged_at = None;
                        self.view.cluster.observer.throttled(node, response.throttle_time_ms);
                        self.links.counters.set_lock_timeout(response.acquisition_lock_timeout_ms);
                        for node in &response.node_endpoints {
                            self.view.cluster.brokers.learn(node.node_id, &node.host, node.port as u16);
                        }
                    }
                    Err(error) => {
                        self.log_stall(now, || format!("no eligible broker: node {node}: {error}"));
                    }
                }
                self.core.on_fetched(node, result, now);
            }
            Event::Acknowledged(node, result) => {
                if let Ok(response) = &result {
                    self.view.cluster.observer.throttled(node, response.throttle_time_ms);
                    self.links.counters.set_lock_timeout(response.acquisition_lock_timeout_ms);
                    for node in &response.node_endpoints {
                        self.view.cluster.brokers.learn(node.node_id, &node.host, node.port as u16);
                    }
                }
                self.core.on_acknowledged(node, result, now);
            }
        }
        self.perform_actions();
    }

    fn perform_actions(&mut self) {
        while let Some(action) = self.core.poll_action() {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: ShareAction) {
        let View { cluster, queue } = &self.view;
        match action {
            ShareAction::Fetch(request) => {
                let (cluster, identity, node) = (cluster.clone(), self.identity.clone(), request.node);
                let reservation = Rc::new(queue.budget.reserve(request.bytes));
                self.requests.push(Box::pin(async move {
                    let fetched = send_fetch(&cluster, identity, request, reservation);
                    Event::Fetched(node, while_listed(&cluster, node, fetched).await)
                }));
            }
            ShareAction::Acknowledge(request) => {
                let (cluster, identity, node) = (cluster.clone(), self.identity.clone(), request.node);
                self.requests.push(Box::pin(async move {
                    let acknowledged = send_acknowledge(&cluster, identity, request);
                    Event::Acknowledged(node, while_listed(&cluster, node, acknowledged).await)
                }));
            }
            ShareAction::Deliver(chunks) => queue.push_chunks(chunks),
            ShareAction::Settle(outcome) => self.settle(outcome),
            ShareAction::DropChunks { node } => {
                let expired = queue.drop_chunks_of(node);
                ShareCounters::add(&self.links.counters.expired, expired);
            }
            ShareAction::LearnLeader { at, named_by, leader, leader_epoch } => {
                if !cluster.learn_leader(&at.topic, at.partition, named_by, leader, leader_epoch) {
                    cluster.forget_leader(&at.topic, at.partition);
                }
            }
            ShareAction::RefreshMetadata => cluster.refresh(),
            ShareAction::Report(error) => {
                cluster.observer.log.debug(Context::Fetch, "SHAREFETCH", || error.to_string());
                queue.push(ShareItem::Error(error));
            }
        }
    }

    /// Records a result for the next commit, the statistics and the application.
    fn settle(&mut self, outcome: AckOutcome) {
        let AckOutcome { at, ranges, result, .. } = &outcome;
        let offsets = ranges.iter().map(AckRange::len).sum();
        let counters = &self.links.counters;
        ShareCounters::add(if result.is_ok() { &counters.acknowledged } else { &counters.failed }, offsets);
        let id = outcome.id;
        let waiting = self.commits.iter_mut().find(|commit| (commit.from..=commit.up_to).contains(&id));
        let results = waiting.map_or(&mut self.results, |commit| &mut commit.results);
        add_result(results, at, result);
        let make = || {
            Some(AcknowledgementResult {
                at: at.clone(),
                ranges: ranges.iter().map(|range| range.first..=range.last).collect(),
                result: result.clone(),
            })
        };
        self.links.results.push_with(make);
        if result.is_err() {
            self.links.refusals.push_with(make);
        }
        if ranges.iter().any(|range| range.types.contains(&AcknowledgeType::Renew.code())) {
            self.links.queue.push(ShareItem::Renewed(outcome));
        }
    }

    /// The time of the next reply to a commit whose results are not complete.
    fn next_reply(&self) -> Option<Instant> {
        self.commits.iter().filter_map(|commit| commit.reply_at).min()
    }

    fn answer_commits(&mut self, now: Instant) {
        let core = &self.core;
        for commit in self.commits.extract_if(.., |commit| commit.is_due(now, core)) {
            let WaitingCommit { from, up_to, mut results, reply, .. } = commit;
            for at in core.unsettled(&(from..=up_to)) {
                // An error is final: the first one of a partition counts.
                if results.get(at).is_some_and(Result::is_ok) {
                    results.remove(at);
                }
            }
            // The next commit reports the results that no caller has received.
            if let Err(Ok(results)) = reply.send(Ok(results))
                && from == 0
            {
                add_results(&mut self.results, &results);
            }
        }
    }

    /// Takes the results that no commit has reported, for a commit that reports all. It replaces those whose callers have stopped waiting.
    fn take_unreported(&mut self) -> CommitResults {
        let mut results = CommitResults::new();
        for commit in self.commits.extract_if(.., |commit| commit.is_given_up()) {
            add_results(&mut results, &commit.results);
        }
        add_results(&mut results, &std::mem::take(&mut self.results));
        results
    }

    /// Sends the pending acknowledgements, closes the sessions and leaves the group, within `timeout`. One does not wait for the other,
    /// as in librdkafka: a silent leader would keep this member in the group until its session times out.
    async fn close(&mut self, timeout: Duration) {
        let (member, observer) = (self.member.clone(), self.view.cluster.observer.clone());
        let mut earlier = std::mem::take(&mut self.leaving);
        // Boxed: futures within futures have a limit of depth.
        let leaving = Box::pin(async {
            while let Some(ended) = earlier.join_next().await {
                observer.joined("leaving", ended);
            }
            member.leave().await;
        });
        let closing = Box::pin(self.close_sessions());
        let both = async { tokio::join!(closing, leaving) };
        if tokio::time::timeout(timeout, both).await.is_err() {
            tracing::debug!("closing a share consumer: no answer in time");
        }
        member.status.step(MembershipStep::Out, Some(&member.coordinator));
    }

    /// Sends the pending acknowledgements and closes the sessions.
    async fn close_sessions(&mut self) {
        self.core.close();
        loop {
            self.update(Instant::now());
            if self.core.is_closed() {
                return;
            }
            let wake_at = self.core.wake_at();
            let pause = async {
                match wake_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(event) = self.requests.next() => self.on_event(event),
                () = pause => {}
            }
        }
    }
}
