//! What brokers speak, and where they say that they listen.

use ottla_protocol::ApiKey;
use ottla_protocol::messages::api_versions::ApiVersion;
use ottla_protocol::messages::metadata::MetadataResponseBroker;
use ottla_protocol::messages::{MetadataRequest, MetadataResponse, REQUESTS};

use super::network::{self, Reachable, is_local};
use super::report::{Report, Status, Step};
use super::wire::{Stopwatch, Terms, Trouble, Wire};
use super::{peer, security};
use crate::failure::Failure;

/// From which version of Apache Kafka on a broker takes this version of Produce.
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

/// Without these nothing works.
const NEEDED: &[ApiKey] = &[ApiKey::Metadata, ApiKey::Produce, ApiKey::Fetch, ApiKey::ListOffsets];

/// Topics that metadata may name: a cluster with more is described by what it says of these.
const NAMES_SHOWN_MAX: usize = 5;

/// The cluster as its first broker sees it, with an address that leads to each broker.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) metadata: MetadataResponse,
    /// Brokers that can be reached where they say.
    pub(super) reachable: Vec<(i32, Reachable)>,
}

/// Greets the addresses in turn; gives the first that answers as a broker.
pub(super) fn greet(
    reachable: &[Reachable],
    terms: &Terms,
    report: &mut Report,
) -> Result<Option<Reachable>, Failure> {
    let mut first = None;
    for peer in reachable {
        let step = Step::new("api-versions", peer.address.to_string());
        let watch = Stopwatch::start();
        let greeted = Wire::open(peer, terms).and_then(|mut wire| wire.greet());
        let step = match greeted {
            Ok((answer, took)) => {
                first = first.or_else(|| Some(peer.clone()));
                versions(step.took(took), &answer.api_keys)
            }
            Err(trouble) => {
                let mut step = step.took(watch.elapsed()).status(Status::Fail).fact(trouble.to_string());
                for advice in peer::diagnose(peer, terms, &trouble) {
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
        None => format!("{} requests, none of which says how old the broker is", apis.len()),
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
                .fact(format!("no version of {} that we have", key.name()))
                .advice("this is no broker for clients (a controller?), or it is older than 0.11");
        }
    }
    step
}

/// Asks for the cluster, and tries every broker where it says that it listens.
pub(super) fn examine(
    first: &Reachable,
    terms: &Terms,
    report: &mut Report,
) -> Result<Option<Cluster>, Failure> {
    let step = Step::new("metadata", first.address.to_string());
    let watch = Stopwatch::start();
    let (metadata, took) = match ask(first, terms) {
        Ok(answer) => answer,
        Err(trouble) => {
            let advice = peer::diagnose_after_greeting(first, terms, ApiKey::Metadata, &trouble);
            let step = step.took(watch.elapsed()).status(Status::Fail);
            report.add(step.fact(trouble.to_string()).advice(advice))?;
            return Ok(None);
        }
    };
    report.add(summary(step.took(took), &metadata))?;
    let mut reachable = Vec::new();
    for broker in &metadata.brokers {
        if let Some(peer) = advertised(broker, first, metadata.cluster_id.as_deref(), terms, report)? {
            reachable.push((broker.node_id, peer));
        }
    }
    Ok(Some(Cluster { metadata, reachable }))
}

fn ask(peer: &Reachable, terms: &Terms) -> Result<(MetadataResponse, std::time::Duration), Trouble> {
    let mut wire = Wire::greeted(peer, terms)?;
    let all = MetadataRequest { topics: None, allow_auto_topic_creation: true, ..Default::default() };
    wire.ask(&all, i16::MAX)
}

fn summary(step: Step, metadata: &MetadataResponse) -> Step {
    let brokers = metadata.brokers.len();
    let step = step.fact(format!(
        "{brokers} {}, {} topics, cluster id {}",
        if brokers == 1 { "broker" } else { "brokers" },
        metadata.topics.len(),
        metadata.cluster_id.as_deref().unwrap_or("unknown")
    ));
    if metadata.controller_id >= 0 {
        return step;
    }
    step.status(Status::Warn)
        .fact("no controller")
        .advice("topics cannot be created or changed now: look at the controllers' logs")
}

/// Connects where a broker says that it listens, and sees that it is of the same cluster.
fn advertised(
    broker: &MetadataResponseBroker,
    first: &Reachable,
    cluster_id: Option<&str>,
    terms: &Terms,
    report: &mut Report,
) -> Result<Option<Reachable>, Failure> {
    let target = format!("{}:{}", broker.host, broker.port);
    let step = Step::new("advertised", format!("node {} {target}", broker.node_id));
    let Ok(port) = u16::try_from(broker.port) else {
        let step = step.status(Status::Fail).fact(format!("{} is no port", broker.port));
        report.add(step.advice(LISTENERS))?;
        return Ok(None);
    };
    let Some(addresses) = network::resolve("advertised-dns", &broker.host, port, report)? else {
        let step = step.status(Status::Fail).fact("the name that it advertises does not resolve here");
        report.add(step.advice(LISTENERS))?;
        return Ok(None);
    };
    let looped = addresses.iter().all(|address| is_local(address.ip())) && !is_local(first.address.ip());
    let watch = Stopwatch::start();
    let mut last = None;
    for address in addresses {
        let peer = Reachable { host: broker.host.clone(), address };
        match ask_cluster(&peer, terms) {
            Ok(id) => {
                let step = step.took(watch.elapsed());
                let step = match (cluster_id, id.as_deref()) {
                    (Some(expected), Some(other)) if expected != other => step
                        .status(Status::Fail)
                        .fact(format!("a broker of another cluster ({other}) answers there"))
                        .advice(LISTENERS),
                    _ => step.fact("answers"),
                };
                let failed = step.is_failed();
                report.add(step)?;
                return Ok((!failed).then_some(peer));
            }
            Err(trouble) => last = Some((address, trouble)),
        }
    }
    let mut step = step.took(watch.elapsed()).status(Status::Fail);
    if looped {
        step = step.fact(format!(
            "it advertises this machine's own loopback address, and we reached it at {}",
            first.address
        ));
    }
    if let Some((address, trouble)) = last {
        if !matches!(trouble, Trouble::Tls(_)) {
            step = step.fact(trouble.to_string());
        }
        if let Trouble::Tls(refused) = &trouble {
            step = security::refused(step, &broker.host, refused);
        } else if !looped {
            step = step.advice(network::connect_advice(address, &trouble));
        }
    }
    report.add(step.advice(LISTENERS))?;
    Ok(None)
}

/// The id of the cluster that the broker at an address belongs to.
fn ask_cluster(peer: &Reachable, terms: &Terms) -> Result<Option<String>, Trouble> {
    let mut wire = Wire::greeted(peer, terms)?;
    let no_topics =
        MetadataRequest { topics: Some(Vec::new()), allow_auto_topic_creation: true, ..Default::default() };
    Ok(wire.ask(&no_topics, i16::MAX)?.0.cluster_id)
}

const LISTENERS: &str = "clients use the bootstrap server once, and then connect where brokers say that they listen: set advertised.listeners (ottla broker --advertise) to a host and port that lead there from here";

/// A list that ends where it becomes long.
pub(super) fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
