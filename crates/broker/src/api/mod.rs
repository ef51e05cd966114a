//! The requests that a broker answers: a table, and one file per request.

mod acls;
mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod api_versions;
mod authorization;
mod authorized_operations;
mod client_metrics;
mod client_quotas;
mod configs;
mod consumer_groups;
mod delegation_tokens;
mod delete_records;
mod describe_cluster;
mod describe_configs;
mod describe_producers;
mod describe_topic_partitions;
mod describe_transactions;
mod elect_leaders;
mod end_txn;
mod fetch;
mod find_coordinator;
mod groups;
mod init_producer_id;
mod list_groups;
mod list_offsets;
mod list_transactions;
mod log_dirs;
mod metadata;
mod named_topics;
mod offset_for_leader_epoch;
mod offsets;
mod pace;
mod produce;
mod produce_rules;
mod quorum;
mod reader;
mod reassignments;
mod rejected_records;
mod repeats;
mod sasl;
mod scram_credentials;
mod share_acknowledge;
mod share_fetch;
mod share_group_offsets;
mod share_group_state;
mod share_groups;
mod share_sessions;
mod throttling;
mod topics;
mod transactional;
mod txn_offset_commit;
mod unregister_broker;
mod update_features;
mod write_txn_markers;

pub(crate) use self::log_dirs::space;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::messages as m;
use ottla_protocol::{ApiKey, Decoder, ErrorCode, ErrorTally, RequestHeader, frame};
use ottla_wire::Chain;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::cluster::nodes::Node;
use crate::intercept::{Fault, Intercepted};
use crate::kafka_level::KafkaLevel;
use crate::memory::ClientHost;
use crate::peer::Peer;
use crate::quotas::Mute;
use crate::request_observer::AnsweredRequest;
use crate::security::Principal;
use crate::security::active_listener::ActiveListener;
use crate::security::sasl::SaslConnection;
use authorization::Authorize;
use named_topics::names_topic;
use throttling::handle_within_quotas;

/// The connection that a request has arrived on.
#[derive(Debug)]
pub(crate) struct ConnectionContext {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) node: i32,
    pub(crate) peer: Peer,
    /// Set once the client is authenticated. Later authentications of the connection may not change it (KIP-368).
    pub(crate) principal: OnceLock<Principal>,
    pub(crate) listener: Arc<ActiveListener>,
    /// The state of the authentication, if the listener has SASL.
    pub(crate) sasl: Option<SaslConnection>,
    /// The pause of a client that has used up a quota.
    pub(crate) mute: Mute,
    /// The number of the connection among those with share sessions, if it has one.
    pub(crate) share_connection: OnceLock<u64>,
    /// Held by the produce request that appends. The next ones append after it, in the order of arrival.
    pub(crate) appends: tokio::sync::Mutex<()>,
    /// The faults of tests that hold the connection: no later request is started.
    pub(crate) holds: AtomicUsize,
    /// `true` if a fault of a test leaves the last request that was started without a response.
    pub(crate) hangs: AtomicBool,
    /// The requests whose responses are complete and wait for the lag of the node, which tests set.
    pub(crate) lagging: AtomicUsize,
}

/// A count of a connection, for the faults of tests. It is one higher until this is dropped.
struct Hold<'a>(&'a AtomicUsize);

impl Hold<'_> {
    /// The connection is held until its end.
    fn forever(self) {
        std::mem::forget(self);
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionContext {
    /// Keeps later requests of the connection from being started: they would be handled before this one, or although it is cut off.
    fn hold(&self) -> Hold<'_> {
        self.holds.fetch_add(1, Ordering::Relaxed);
        Hold(&self.holds)
    }

    /// Returns `true` while a fault holds the connection.
    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if the last request that was started gets no response, and later ones are not started.
    pub(crate) fn hangs(&self) -> bool {
        self.hangs.load(Ordering::Relaxed)
    }

    /// The number of requests whose responses wait only for the lag of the node.
    pub(crate) fn lagging(&self) -> usize {
        self.lagging.load(Ordering::Relaxed)
    }

    /// Waits until a response that is complete now may be sent: for its own delay and the lag of the node. With `lets_next_start` later
    /// requests of the connection are started meanwhile.
    async fn delay_response(&self, delay: Duration, lets_next_start: bool) {
        let _lagging = lets_next_start.then(|| {
            self.lagging.fetch_add(1, Ordering::Relaxed);
            Hold(&self.lagging)
        });
        self.cluster.overrides.delay_response(self.node, delay).await;
    }

    /// The client, as far as shares of memory tell clients apart.
    pub(crate) fn client_host(&self) -> ClientHost {
        ClientHost::new(self.peer.ip())
    }

    /// The client: `User:ANONYMOUS` unless it is authenticated.
    fn principal(&self) -> &Principal {
        self.principal.get().unwrap_or(Principal::anonymous())
    }

    /// Logs once per client software, API and version that a request cannot be answered.
    fn warn_unsupported(&self, api: ApiKey, version: i16) {
        self.cluster.warnings.warn(&self.peer, &format!("{api} version {version}"));
    }
}

/// A request's connection, version, client and frame.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) connection: Arc<ConnectionContext>,
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) client_id: Arc<str>,
    /// The frame of the request: the records of its message are slices of it.
    pub(crate) frame: Bytes,
}

impl RequestContext {
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.connection.cluster
    }

    pub(crate) fn node(&self) -> i32 {
        self.connection.node
    }

    /// The address at which this client reaches a node: that of the listener to which it is connected.
    pub(crate) fn address_of(&self, node: &Node) -> (String, u16) {
        node.address_at(self.connection.listener.index)
    }

    /// The client: `User:ANONYMOUS` unless it is authenticated.
    pub(crate) fn principal(&self) -> &Principal {
        self.connection.principal()
    }
}

/// The action of a connection after a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Sends this response, which has these error codes.
    Answer(Chain, ErrorTally),
    /// Sends this response and closes the connection for this reason.
    AnswerAndClose(Chain, ErrorTally, String),
    /// Sends the first bytes of this response, which has these error codes, and closes the connection.
    AnswerPart(Chain, ErrorTally, usize),
    /// Sends nothing (`acks=0`).
    Nothing,
    /// Closes the connection.
    Close(String),
}

impl Reply {
    /// The response, if one is sent.
    pub(crate) fn chain(&self) -> Option<&Chain> {
        match self {
            Self::Answer(chain, _) | Self::AnswerAndClose(chain, ..) | Self::AnswerPart(chain, ..) => {
                Some(chain)
            }
            Self::Nothing | Self::Close(_) => None,
        }
    }

    /// Returns `true` if the connection is closed after it.
    fn closes(&self) -> bool {
        match self {
            Self::Answer(..) | Self::Nothing => false,
            Self::AnswerAndClose(..) | Self::AnswerPart(..) | Self::Close(_) => true,
        }
    }

    /// The error codes that the client receives; `None` if it receives no whole response.
    fn sent(&self) -> Option<ErrorTally> {
        match self {
            Self::Answer(_, errors) | Self::AnswerAndClose(_, errors, _) => Some(*errors),
            Self::AnswerPart(chain, errors, bytes) => (*bytes >= chain.len()).then_some(*errors),
            Self::Nothing | Self::Close(_) => None,
        }
    }
}

/// The results of one response that have a copy of the message of their error.
const MESSAGES_MAX: usize = 1000;

/// A request in progress.
pub(crate) type Replying = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A request that the broker answers.
pub(crate) trait Api: Authorize + Default + Send + 'static {
    /// The versions that are advertised.
    const ADVERTISED: (i16, i16) = (*Self::STABLE_VERSIONS.start(), *Self::STABLE_VERSIONS.end());

    /// Handles the request. Steps that depend on the order of arrival run before the first suspension.
    fn handle(self, context: RequestContext) -> impl Future<Output = Self::Response> + Send;

    /// Returns a response with this error for every requested item.
    fn refuse(self, context: &RequestContext, code: ErrorCode) -> Self::Response;

    /// Returns `true` if a response is sent.
    fn is_answered(&self) -> bool {
        true
    }

    /// Returns `true` if this response contains or acknowledges records; `false` for APIs without records.
    fn moved_records(_response: &Self::Response) -> bool {
        false
    }

    /// Returns the reason to close the connection instead of sending this response, if there is one.
    fn closes(_answered: bool, _response: &Self::Response) -> Option<String> {
        None
    }

    /// Returns the reason to close the connection after this response, if there is one.
    fn closes_after(_response: &Self::Response) -> Option<String> {
        None
    }
}

macro_rules! table {
    ($($key:ident => $request:ty),* $(,)?) => {
        /// Key and advertised versions of each supported request, sorted by key.
        pub(crate) fn advertised() -> Vec<(ApiKey, (i16, i16))> {
            let mut all = vec![$((ApiKey::$key, <$request as Api>::ADVERTISED)),*];
            all.sort_by_key(|(key, _)| key.code());
            all
        }

        /// Starts a request. An error contains the reason for closing the connection.
        pub(crate) fn start(
            context: Arc<ConnectionContext>,
            header: RequestHeader,
            input: Decoder,
            frame: Bytes,
        ) -> Result<Replying, String> {
            match header.api_key {
                $(ApiKey::$key => start_one::<$request>(context, header, input, frame),)*
                other => {
                    context.warn_unsupported(other, header.api_version);
                    Err(format!("{other} is not answered here"))
                }
            }
        }
    };
}

table! {
    AddOffsetsToTxn => m::add_offsets_to_txn::AddOffsetsToTxnRequest,
    AddPartitionsToTxn => m::add_partitions_to_txn::AddPartitionsToTxnRequest,
    AddRaftVoter => m::add_raft_voter::AddRaftVoterRequest,
    AlterClientQuotas => m::alter_client_quotas::AlterClientQuotasRequest,
    AlterConfigs => m::alter_configs::AlterConfigsRequest,
    AlterPartitionReassignments => m::alter_partition_reassignments::AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirs => m::alter_replica_log_dirs::AlterReplicaLogDirsRequest,
    AlterShareGroupOffsets => m::alter_share_group_offsets::AlterShareGroupOffsetsRequest,
    AlterUserScramCredentials => m::alter_user_scram_credentials::AlterUserScramCredentialsRequest,
    ApiVersions => m::api_versions::ApiVersionsRequest,
    ConsumerGroupDescribe => m::consumer_group_describe::ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeat => m::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest,
    CreateAcls => m::create_acls::CreateAclsRequest,
    CreateDelegationToken => m::create_delegation_token::CreateDelegationTokenRequest,
    CreatePartitions => m::create_partitions::CreatePartitionsRequest,
    CreateTopics => m::create_topics::CreateTopicsRequest,
    DeleteAcls => m::delete_acls::DeleteAclsRequest,
    DeleteGroups => m::delete_groups::DeleteGroupsRequest,
    DeleteRecords => m::delete_records::DeleteRecordsRequest,
    DeleteShareGroupOffsets => m::delete_share_group_offsets::DeleteShareGroupOffsetsRequest,
    DeleteShareGroupState => m::delete_share_group_state::DeleteShareGroupStateRequest,
    DeleteTopics => m::delete_topics::DeleteTopicsRequest,
    DescribeAcls => m::describe_acls::DescribeAclsRequest,
    DescribeClientQuotas => m::describe_client_quotas::DescribeClientQuotasRequest,
    DescribeCluster => m::describe_cluster::DescribeClusterRequest,
    DescribeConfigs => m::describe_configs::DescribeConfigsRequest,
    DescribeDelegationToken => m::describe_delegation_token::DescribeDelegationTokenRequest,
    DescribeGroups => m::describe_groups::DescribeGroupsRequest,
    DescribeLogDirs => m::describe_log_dirs::DescribeLogDirsRequest,
    DescribeProducers => m::describe_producers::DescribeProducersRequest,
    DescribeQuorum => m::describe_quorum::DescribeQuorumRequest,
    DescribeShareGroupOffsets => m::describe_share_group_offsets::DescribeShareGroupOffsetsRequest,
    DescribeTopicPartitions => m::describe_topic_partitions::DescribeTopicPartitionsRequest,
    DescribeTransactions => m::describe_transactions::DescribeTransactionsRequest,
    DescribeUserScramCredentials => m::describe_user_scram_credentials::DescribeUserScramCredentialsRequest,
    ElectLeaders => m::elect_leaders::ElectLeadersRequest,
    EndTxn => m::end_txn::EndTxnRequest,
    ExpireDelegationToken => m::expire_delegation_token::ExpireDelegationTokenRequest,
    Fetch => m::fetch::FetchRequest,
    FindCoordinator => m::find_coordinator::FindCoordinatorRequest,
    GetTelemetrySubscriptions => m::get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest,
    Heartbeat => m::heartbeat::HeartbeatRequest,
    IncrementalAlterConfigs => m::incremental_alter_configs::IncrementalAlterConfigsRequest,
    InitProducerId => m::init_producer_id::InitProducerIdRequest,
    InitializeShareGroupState => m::initialize_share_group_state::InitializeShareGroupStateRequest,
    JoinGroup => m::join_group::JoinGroupRequest,
    LeaveGroup => m::leave_group::LeaveGroupRequest,
    ListConfigResources => m::list_config_resources::ListConfigResourcesRequest,
    ListGroups => m::list_groups::ListGroupsRequest,
    ListOffsets => m::list_offsets::ListOffsetsRequest,
    ListPartitionReassignments => m::list_partition_reassignments::ListPartitionReassignmentsRequest,
    ListTransactions => m::list_transactions::ListTransactionsRequest,
    Metadata => m::metadata::MetadataRequest,
    OffsetCommit => m::offset_commit::OffsetCommitRequest,
    OffsetDelete => m::offset_delete::OffsetDeleteRequest,
    OffsetFetch => m::offset_fetch::OffsetFetchRequest,
    OffsetForLeaderEpoch => m::offset_for_leader_epoch::OffsetForLeaderEpochRequest,
    Produce => m::produce::ProduceRequest,
    PushTelemetry => m::push_telemetry::PushTelemetryRequest,
    ReadShareGroupState => m::read_share_group_state::ReadShareGroupStateRequest,
    ReadShareGroupStateSummary => m::read_share_group_state_summary::ReadShareGroupStateSummaryRequest,
    RemoveRaftVoter => m::remove_raft_voter::RemoveRaftVoterRequest,
    RenewDelegationToken => m::renew_delegation_token::RenewDelegationTokenRequest,
    SaslAuthenticate => m::sasl_authenticate::SaslAuthenticateRequest,
    SaslHandshake => m::sasl_handshake::SaslHandshakeRequest,
    ShareAcknowledge => m::share_acknowledge::ShareAcknowledgeRequest,
    ShareFetch => m::share_fetch::ShareFetchRequest,
    ShareGroupDescribe => m::share_group_describe::ShareGroupDescribeRequest,
    ShareGroupHeartbeat => m::share_group_heartbeat::ShareGroupHeartbeatRequest,
    SyncGroup => m::sync_group::SyncGroupRequest,
    TxnOffsetCommit => m::txn_offset_commit::TxnOffsetCommitRequest,
    UnregisterBroker => m::unregister_broker::UnregisterBrokerRequest,
    UpdateFeatures => m::update_features::UpdateFeaturesRequest,
    WriteShareGroupState => m::write_share_group_state::WriteShareGroupStateRequest,
    WriteTxnMarkers => m::write_txn_markers::WriteTxnMarkersRequest,
}

/// The APIs that a broker of this level answers, with the lowest and the highest version.
pub fn advertised_apis(level: KafkaLevel) -> Vec<(ApiKey, (i16, i16))> {
    let of_level = |(key, versions)| (key, level.versions(key, versions));
    advertised().into_iter().map(of_level).filter(|(_, (min, max))| min <= max).collect()
}

impl Cluster {
    /// The versions of an API that are answered; no version at all where the first is above the second.
    fn versions(&self, api: ApiKey, all: (i16, i16)) -> (i16, i16) {
        self.overrides.versions(api, self.config.as_version.versions(api, all))
    }

    /// Returns `true` if an API is answered in any version.
    pub(crate) fn answers(&self, api: ApiKey) -> bool {
        let known = advertised().into_iter().find(|(key, _)| *key == api);
        known.map(|(_, all)| self.versions(api, all)).is_some_and(|(min, max)| min <= max)
    }
}

fn start_one<R: Api>(
    context: Arc<ConnectionContext>,
    header: RequestHeader,
    input: Decoder,
    frame: Bytes,
) -> Result<Replying, String> {
    let RequestHeader { api_key, api_version: requested, correlation_id, client_id } = header;
    let (min, max) = context.cluster.versions(api_key, R::ADVERTISED);
    let is_supported = (min..=max).contains(&requested) && R::VERSIONS.contains(&requested);
    let (request, version, refusal): (R, _, _) = if is_supported {
        let request = frame::decode_request(input, requested).map_err(|error| error.to_string())?;
        (request, requested, None)
    } else if api_key == ApiKey::ApiVersions {
        // The client learns the versions from a response of version 0 (KIP-511).
        (R::default(), 0, Some(ErrorCode::UnsupportedVersion))
    } else {
        context.warn_unsupported(api_key, requested);
        return Err(format!("{api_key} v{requested} is not among the advertised {min} to {max}"));
    };
    let overrides = &context.cluster.overrides;
    overrides.track(context.node, api_key);
    let node = context.node;
    let observed = overrides.observers().map(|observers| (observers, Instant::now(), client_id.clone()));
    let is_observed = observed.is_some();
    let observe = move |moved_records: bool, sent: Option<ErrorTally>| {
        let Some((observers, began, client_id)) = observed else { return };
        let request = AnsweredRequest {
            node,
            api: api_key,
            version: requested,
            client_id: client_id.as_deref().unwrap_or_default(),
            took: began.elapsed(),
            moved_records,
            errors: sent.unwrap_or_default(),
            is_sent: sent.is_some(),
        };
        for observer in &observers {
            observer.on_answered(request);
        }
    };
    let fault = context.cluster.intercepts.take(&Intercepted {
        api: api_key,
        node,
        client_id: client_id.as_deref().unwrap_or_default(),
        names_topic: &|topic| names_topic(&request, version, &context.cluster, node, topic),
    });
    let delay = match fault {
        Some(Fault::AnswerAfter(time)) => time,
        _ => Duration::ZERO,
    };
    let connection = context.clone();
    let context = RequestContext {
        connection: context,
        api: api_key,
        version: version_of_response(api_key, version, fault),
        client_id: client_id.unwrap_or_default().into(),
        frame,
    };
    Ok(Box::pin(async move {
        // Called here: a future that the block captured would be stored twice.
        let outcome = Outcome { fault, refusal };
        let (reply, moved_records) = answer_one(request, context, outcome, correlation_id, is_observed).await;
        let Some(reply) = reply else {
            connection.hangs.store(true, Ordering::Relaxed);
            observe(moved_records, None);
            return std::future::pending().await;
        };
        let sent = reply.sent();
        if !delay.is_zero() || connection.cluster.overrides.lag(node).is_some() {
            let report = move |is_due: bool| observe(moved_records, sent.filter(|_| is_due));
            let lets_next_start = delay.is_zero() && !reply.closes();
            // Boxed: other requests do not need its memory.
            Box::pin(report_after(connection.delay_response(delay, lets_next_start), report)).await;
        } else {
            observe(moved_records, sent);
        }
        reply
    }))
}

/// The version of a response. The one in which ApiVersions is refused for its version has version 0 (KIP-511), also if that is the fault
/// of a test: clients read it as such.
fn version_of_response(api: ApiKey, version: i16, fault: Option<Fault>) -> i16 {
    let code = match fault {
        Some(Fault::Fail(code) | Fault::FailAfter(code, _)) => code,
        _ => ErrorCode::None,
    };
    if api == ApiKey::ApiVersions && code == ErrorCode::UnsupportedVersion { 0 } else { version }
}

/// Waits, and then reports `true`; `false` if it is dropped before, because the client is gone.
async fn report_after(wait: impl Future<Output = ()>, report: impl FnOnce(bool)) {
    let mut unreported = Unreported(Some(report));
    wait.await;
    if let Some(report) = unreported.0.take() {
        report(true);
    }
}

/// A report of `false` when it is dropped.
struct Unreported<F: FnOnce(bool)>(Option<F>);

impl<F: FnOnce(bool)> Drop for Unreported<F> {
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            report(false);
        }
    }
}

/// The causes of another response than the usual one.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    fault: Option<Fault>,
    /// The error of a request whose version is not supported. It has no content.
    refusal: Option<ErrorCode>,
}

async fn handle_unless_refused<R: Api>(
    request: R,
    context: RequestContext,
    refusal: Option<ErrorCode>,
) -> R::Response {
    match refusal {
        Some(code) => request.refuse(&context, code),
        None => handle_within_quotas(request, context).await,
    }
}

/// Handles a request, unless a test has set a fault for it, and encodes the response. Returns no reply if the client waits for good, and
/// `true` if an observed request has moved records.
async fn answer_one<R: Api>(
    request: R,
    context: RequestContext,
    Outcome { fault, refusal }: Outcome,
    correlation_id: i32,
    is_observed: bool,
) -> (Option<Reply>, bool) {
    let version = context.version;
    let answered = request.is_answered();
    let connection = context.connection.clone();
    let response = match fault {
        Some(Fault::Cut) => {
            connection.hold().forever();
            return (Some(Reply::Close("cut by an intercept".into())), false);
        }
        Some(Fault::Fail(code)) => request.refuse(&context, code),
        Some(Fault::FailAfter(code, time)) => {
            let _hold = connection.hold();
            tokio::time::sleep(time).await;
            request.refuse(&context, code)
        }
        Some(Fault::Delay(time)) => {
            let hold = connection.hold();
            tokio::time::sleep(time).await;
            drop(hold);
            handle_unless_refused(request, context, refusal).await
        }
        Some(Fault::Hang) => {
            connection.hold().forever();
            return (None, false);
        }
        Some(Fault::CutAfter | Fault::HangAfter) => {
            connection.hold().forever();
            handle_unless_refused(request, context, refusal).await
        }
        Some(Fault::AnswerAfter(_) | Fault::CutAt(_)) | None => {
            handle_unless_refused(request, context, refusal).await
        }
    };
    // The response is inspected only for an observer, because a fetch can have thousands of partitions.
    let moved_records = is_observed && R::moved_records(&response);
    let reply = match fault {
        Some(Fault::CutAfter) => Some(Reply::Close("cut by an intercept after the fact".into())),
        Some(Fault::HangAfter) => None,
        _ => Some(reply_with::<R>(&response, answered, correlation_id, version, fault)),
    };
    (reply, moved_records)
}

/// Encodes a response, unless the connection is closed instead or the client wants none.
fn reply_with<R: Api>(
    response: &R::Response,
    answered: bool,
    correlation_id: i32,
    version: i16,
    fault: Option<Fault>,
) -> Reply {
    if let Some(reason) = R::closes(answered, response) {
        return Reply::Close(reason);
    }
    if !answered {
        return match fault {
            Some(Fault::CutAt(_)) => Reply::Close("cut by an intercept instead of a response".into()),
            _ => Reply::Nothing,
        };
    }
    match frame::encode_response_with_errors::<R>(correlation_id, version, response) {
        Ok((chain, errors)) => match fault {
            Some(Fault::CutAt(bytes)) => Reply::AnswerPart(chain, errors, bytes),
            _ => match R::closes_after(response) {
                Some(reason) => Reply::AnswerAndClose(chain, errors, reason),
                None => Reply::Answer(chain, errors),
            },
        },
        Err(error) => {
            tracing::error!(%error, api = %R::KEY, version, "an answer cannot be encoded: please report this");
            Reply::Close(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A request of a client that did not wait for its delayed response was reported as answered.
    #[tokio::test]
    async fn a_delayed_response_whose_client_is_gone_is_reported_as_not_sent() {
        let reported = Cell::new(None);
        report_after(std::future::ready(()), |is_due| reported.set(Some(is_due))).await;
        assert_eq!(reported.take(), Some(true));
        let mut waits = Box::pin(report_after(std::future::pending(), |is_due| reported.set(Some(is_due))));
        assert!(tokio::time::timeout(Duration::ZERO, waits.as_mut()).await.is_err());
        assert_eq!(reported.get(), None);
        drop(waits);
        assert_eq!(reported.take(), Some(false));
    }
}
