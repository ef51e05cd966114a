//! API versions and advertised listeners of the brokers.

use ottla_protocol::ApiKey;
use ottla_protocol::messages::api_versions::ApiVersion;
use ottla_protocol::messages::metadata::MetadataResponseBroker;
use ottla_protocol::messages::{MetadataRequest, MetadataResponse, REQUESTS};

use super::connection::{Connection, ProbeError, ProbeSettings, Stopwatch};
use super::network::{self, Reachable, is_local};
use super::report::{Report, Status, Step};
use super::{peer, security};
use crate::failure::Failure;
use crate::output::counted;

/// The oldest Apache Kafka release whose brokers support each version of Produce.
const RELEASES: &[(i16, &str)] = &[
    (13, "4.1"),
    (12, "4.0"),
    (11, "3.8"),
    (10, "3.7"),
    (9, "2.8"),
    (8, "2.4"),
    (7, "2.1"),
    (6, "2.0"),
    (5, "1.0"),
    (3, "0.11"),
];

/// Requests without which no client works.
const NEEDED: &[ApiKey] = &[ApiKey::Metadata, ApiKey::Produce, ApiKey::Fetch, ApiKey::ListOffsets];

/// Maximum number of topic names in a message; the others are counted.
const NAMES_SHOWN_MAX: usize = 5;

/// The cluster as its first broker describes it, with an address of each broker.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) metadata: MetadataResponse,
    /// Brokers that can be reached at their advertised addresses.
    pub(super) reachable: Vec<(i32, Reachable)>,
}

/// Requests API versions from the addresses in turn. Returns the first that answers as a broker.
pub(super) fn find_broker(
    reachable: &[Reachable],
    settings: &ProbeSettings,
    report: &mut Report,
) -> Result<Option<Reachable>, Failure> {
    let mut first = None;
    for peer in reachable {
        let step = Step::new("api-versions", peer.address.to_string());
        let watch = Stopwatch::start();
        let greeted =
            Connection::open(peer, settings).and_then(|mut connection| connection.request_api_versions());
        let step = match greeted {
            Ok((answer, took)) => {
                first = first.or_else(|| Some(peer.clone()));
                versions(step.took(took), &answer.api_keys)
            }
            Err(probe_error) => {
                let mut step = step.took(watch.elapsed()).status(Status::Fail).fact(probe_error.to_string());
                for advice in peer::diagnose(peer, settings, &probe_error) {
                    step = step.advice(advice);
                }
                step
            }
        };
        report.add(step)?;
    }
    Ok(first)
}

fn versions(step: Step, apis: &[ApiVersion]) -> Step {
    let range = |key: ApiKey| apis.iter().find(|api| api.api_key == key.code());
    let release = range(ApiKey::Produce).and_then(|produce| {
        RELEASES.iter().find(|(version, _)| *version <= produce.max_version).map(|(_, release)| *release)
    });
    let mut step = step.fact(match release {
        Some(release) => format!("speaks as Apache Kafka {release} or newer, {} requests", apis.len()),
        None => format!("{} requests, which do not indicate the broker's release", apis.len()),
    });
    let shown =
        |key: ApiKey| range(key).map(|api| format!("{} {}-{}", key.name(), api.min_version, api.max_version));
    let list: Vec<String> = NEEDED.iter().copied().filter_map(shown).collect();
    step = step.fact(list.join(", "));
    for key in NEEDED.iter().copied() {
        let ours = REQUESTS.iter().find(|api| api.key == key).map(|api| api.versions);
        let usable = match (range(key), ours) {
            (Some(api), Some(ours)) => api.min_version <= ours.max && ours.min <= api.max_version,
            _ => false,
        };
        if !usable {
            step = step
                .status(Status::Fail)
                .fact(format!("no common version of {}", key.name()))
                .advice("this broker does not serve clients (is it a controller?) or is older than 0.11");
        }
    }
    step
}

/// Requests the metadata and connects to every broker at its advertised address.
pub(super) fn examine(
    first: &Reachable,
    settings: &ProbeSettings,
    report: &mut Report,
) -> Result<Option<Cluster>, Failure> {
    let step = Step::new("metadata", first.address.to_string());
    let watch = Stopwatch::start();
    let (metadata, took) = match request_metadata(first, settings) {
        Ok(answer) => answer,
        Err(probe_error) => {
            let advice = peer::diagnose_after_greeting(first, settings, ApiKey::Metadata, &probe_error);
            let step = step.took(watch.elapsed()).status(Status::Fail);
            report.add(step.fact(probe_error.to_string()).advice(advice))?;
            return Ok(None);
        }
    };
    report.add(summary(step.took(took), &metadata))?;
    let mut reachable = Vec::new();
    for broker in &metadata.brokers {
        if let Some(peer) = advertised(broker, first, metadata.cluster_id.as_deref(), settings, report)? {
            reachable.push((broker.node_id, peer));
        }
    }
    Ok(Some(Cluster { metadata, reachable }))
}

fn request_metadata(
    peer: &Reachable,
    settings: &ProbeSettings,
) -> Result<(MetadataResponse, std::time::Duration), ProbeError> {
    let mut connection = Connection::open_authenticated(peer, settings)?;
    let all = MetadataRequest { topics: None, allow_auto_topic_creation: true, ..Default::default() };
    connection.request(&all, i16::MAX)
}

fn summary(step: Step, metadata: &MetadataResponse) -> Step {
    let step = step.fact(format!(
        "{}, {}, cluster id {}",
        counted(metadata.brokers.len() as u64, "broker"),
        counted(metadata.topics.len() as u64, "topic"),
        metadata.cluster_id.as_deref().unwrap_or("unknown")
    ));
    if metadata.controller_id >= 0 {
        return step;
    }
    step.status(Status::Warn)
        .fact("no controller")
        .advice("topics cannot be created or changed now: check the controllers' logs")
}

/// Connects to a broker's advertised address and checks that it belongs to the same cluster.
fn advertised(
    broker: &MetadataResponseBroker,
    first: &Reachable,
    cluster_id: Option<&str>,
    settings: &ProbeSettings,
    report: &mut Report,
) -> Result<Option<Reachable>, Failure> {
    let target = format!("{}:{}", broker.host, broker.port);
    let step = Step::new("advertised", format!("node {} {target}", broker.node_id));
    let Ok(port) = u16::try_from(broker.port) else {
        let step = step.status(Status::Fail).fact(format!("{} is not a port", broker.port));
        report.add(step.advice(LISTENERS))?;
        return Ok(None);
    };
    let Some(addresses) = network::resolve("advertised-dns", &broker.host, port, report)? else {
        let step = step.status(Status::Fail).fact("its advertised name does not resolve on this machine");
        report.add(step.advice(LISTENERS))?;
        return Ok(None);
    };
    let looped = addresses.iter().all(|address| is_local(address.ip())) && !is_local(first.address.ip());
    let watch = Stopwatch::start();
    let mut last = None;
    for address in addresses {
        let peer = Reachable { host: broker.host.clone(), address };
        match request_cluster_id(&peer, settings) {
            Ok(id) => {
                let step = step.took(watch.elapsed());
                let step = match (cluster_id, id.as_deref()) {
                    (Some(expected), Some(other)) if expected != other => step
                        .status(Status::Fail)
                        .fact(format!("a broker of another cluster ({other}) answers at this address"))
                        .advice(LISTENERS),
                    _ => step.fact("answers"),
                };
                let failed = step.is_failed();
                report.add(step)?;
                return Ok((!failed).then_some(peer));
            }
            Err(probe_error) => last = Some((address, probe_error)),
        }
    }
    let mut step = step.took(watch.elapsed()).status(Status::Fail);
    if looped {
        step = step.fact(format!(
            "it advertises this machine's own loopback address, but was reached at {}",
            first.address
        ));
    }
    if let Some((address, probe_error)) = last {
        if !matches!(probe_error, ProbeError::Tls(_)) {
            step = step.fact(probe_error.to_string());
        }
        if let ProbeError::Tls(refused) = &probe_error {
            step = security::refused(step, &broker.host, refused);
        } else if !looped {
            step = step.advice(network::connect_advice(address, &probe_error));
        }
    }
    report.add(step.advice(LISTENERS))?;
    Ok(None)
}

/// The cluster id of the broker at an address.
fn request_cluster_id(peer: &Reachable, settings: &ProbeSettings) -> Result<Option<String>, ProbeError> {
    let mut connection = Connection::open_authenticated(peer, settings)?;
    let no_topics =
        MetadataRequest { topics: Some(Vec::new()), allow_auto_topic_creation: true, ..Default::default() };
    Ok(connection.request(&no_topics, i16::MAX)?.0.cluster_id)
}

const LISTENERS: &str = "clients connect to the bootstrap server once and then to the advertised addresses: set advertised.listeners (ottla broker --advertise) to a host and port that reach the broker from this machine";

/// The names, up to a limit, and the number of the others.
pub(super) fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
