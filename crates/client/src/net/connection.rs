//! One connection to a broker: requests are sent in order, and responses arrive in the same order.
//!
//! Two tasks, one per direction, run as long as the connection is open. Any failure closes it, and every pending
//! request gets the error.

use std::cell::Cell;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::{ApiKey, ErrorCode, Message, Request};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Network;
use super::connector::Io;
use super::link::{
    Link, ResponseMemory, ResponseTarget, Urgency, close_when_idle, read_frames, write_frames,
};
use super::sasl::{self, Authenticator};
use super::versions::{too_old, zstd_refused};
use crate::config::Config;
use crate::error::Error;
use crate::panics;
use crate::stats::{ConnectionFailure, ConnectionObserver, address_of};
use crate::timer::deadline_after;

/// An open connection with known API versions, authenticated if required.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Rc<Link>,
    tasks: JoinSet<()>,
}

/// State of a broker that outlives a connection to it.
#[derive(Debug, Default)]
pub(crate) struct Greeting {
    /// The time until which the broker is assumed to have `broker.version.fallback`, because it did not respond to
    /// ApiVersions.
    skip_until: Cell<Option<Instant>>,
}

impl Connection {
    /// Connects, requests the API versions and authenticates, within `socket.connection.setup.timeout.ms`.
    pub(crate) async fn open(
        network: &Network,
        host: &str,
        port: u16,
        config: &Arc<Config>,
        greeting: &Greeting,
        rng: fastrand::Rng,
    ) -> Result<Self, Error> {
        let address = address_of(host, port);
        let opening = async {
            let io = network
                .connector
                .connect(host, port)
                .await
                .map_err(|error| Error::transport(&address, &error))?;
            let mut connection = Self::start(io, network.observer.connection(&address), config);
            connection.greet(greeting).await?;
            if let Some(authenticator) = &network.authenticator {
                connection.authenticate(authenticator.clone(), rng).await?;
            }
            Ok(connection)
        };
        // Connectors and the sources of credentials are code of others, and the lookup of a name panics if the system has no thread
        // for it. The task that needs the connection continues.
        let opening = panics::caught(opening);
        let opening = async {
            opening.await.unwrap_or_else(|reason| {
                let reason = format!("panic: {reason}").into();
                Err(Error::Transport { address: address.clone(), reason })
            })
        };
        tokio::time::timeout(config.socket_connection_setup_timeout, opening).await.unwrap_or_else(|_| {
            Err(Error::Transport {
                address: address.clone(),
                reason: format!(
                    "Connection setup timed out after {} ms (socket.connection.setup.timeout.ms)",
                    config.socket_connection_setup_timeout.as_millis()
                )
                .into(),
            })
        })
    }

    fn start(io: Box<dyn Io>, observer: ConnectionObserver, config: &Arc<Config>) -> Self {
        let link = Link::new(observer, config.clone());
        let (read_half, write_half) = tokio::io::split(io);
        let mut tasks = JoinSet::new();
        tasks.spawn_local(write_frames(link.clone(), write_half));
        tasks.spawn_local(read_frames(link.clone(), read_half));
        if let Some(max_idle) = config.net.max_idle {
            tasks.spawn_local(close_when_idle(link.clone(), max_idle));
        }
        Self { link, tasks }
    }

    /// Requests the broker's API versions. An old broker responds in version 0 with `UNSUPPORTED_VERSION` (KIP-511).
    async fn greet(&self, greeting: &Greeting) -> Result<(), Error> {
        let net = &self.link.config.net;
        if !net.api_version_request || greeting.skip_until.get().is_some_and(|until| Instant::now() < until) {
            self.link.observer.taken_for(net.version_fallback);
            self.link.versions.borrow_mut().extend(net.version_fallback.requests());
            return Ok(());
        }
        let asking = tokio::time::timeout(net.version_request_timeout, self.ask_versions());
        let within = net.version_request_timeout.as_millis();
        let answer = asking.await.unwrap_or_else(|_| {
            let reason = format!("no answer to ApiVersions within {within} ms").into();
            Err(Error::Transport { address: self.link.address.clone(), reason })
        });
        if matches!(answer, Err(Error::Transport { .. })) && !net.version_fallback_for.is_zero() {
            greeting.skip_until.set(Some(Instant::now() + net.version_fallback_for));
        }
        let ApiVersionsResponse { error_code, api_keys, finalized_features, .. } = answer?;
        if error_code != ErrorCode::None {
            return Err(Error::Broker {
                what: format!("ApiVersions of {}", self.link.address),
                code: error_code,
            });
        }
        self.link.observer.greeted(api_keys.len());
        let mut versions = self.link.versions.borrow_mut();
        versions.extend(api_keys.into_iter().map(|api| (api.api_key, (api.min_version, api.max_version))));
        if let Some(reason) = too_old(&versions) {
            return Err(Error::Unsupported { address: self.link.address.clone(), reason });
        }
        for feature in &finalized_features {
            self.link.observer.has_feature(&feature.name, feature.max_version_level);
        }
        let features =
            finalized_features.into_iter().map(|feature| (feature.name, feature.max_version_level));
        self.link.features.borrow_mut().extend(features);
        Ok(())
    }

    /// Asks in the highest version that the broker knows: from version 3 on, it learns the name and the version of the client.
    async fn ask_versions(&self) -> Result<ApiVersionsResponse, Error> {
        const NAMES_FROM: i16 = 3;
        let request = ApiVersionsRequest {
            client_software_name: "ottla".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        let version = *ApiVersionsRequest::VERSIONS.end();
        let frame = self.link.exchange(&request, version).await?;
        let refused = frame.clone();
        let response = self.link.decode::<ApiVersionsRequest>(frame, version);
        if response.as_ref().is_ok_and(|response| response.error_code != ErrorCode::UnsupportedVersion) {
            return response;
        }
        // The error response has version 0, independently of the request's version. It names the versions of this request (KIP-511).
        let refusal = self.link.decode::<ApiVersionsRequest>(refused, 0).unwrap_or_default();
        let own = refusal.api_keys.iter().find(|api| api.api_key == ApiVersionsRequest::KEY.code());
        let known = own.map_or(0, |api| api.max_version.clamp(0, version - 1));
        let request = if known >= NAMES_FROM { request } else { ApiVersionsRequest::default() };
        let frame = self.link.exchange(&request, known).await?;
        self.link.decode::<ApiVersionsRequest>(frame, known)
    }

    /// Authenticates, and re-authenticates whenever the broker requires it (KIP-368).
    async fn authenticate(
        &mut self,
        authenticator: Arc<Authenticator>,
        mut rng: fastrand::Rng,
    ) -> Result<(), Error> {
        let mut session = sasl::authenticate(&*self.link, &authenticator).await?;
        let link = self.link.clone();
        self.tasks.spawn_local(async move {
            while let Some(lifetime) = session {
                let pause = lifetime.mul_f64(0.85 + 0.10 * rng.f64());
                tokio::time::sleep(pause).await;
                link.observer.secured("authenticating anew");
                link.hold();
                // A throttle, or a request that the broker answers first, can take the rest of the session.
                let within = link.config.socket_connection_setup_timeout.max(lifetime.saturating_sub(pause));
                let again = tokio::time::timeout(within, sasl::authenticate(&*link, &authenticator));
                match again.await {
                    Ok(Ok(lifetime)) => session = lifetime,
                    Ok(Err(error)) => return link.close_with(error),
                    Err(_) => {
                        let ms = within.as_millis();
                        return link.close(format!("not authenticated again within {ms} ms"));
                    }
                }
                link.release();
            }
        });
        Ok(())
    }

    /// Sends a request and waits up to `timeout` for its response. After that, the connection is closed: responses
    /// arrive in order, so the missing one blocks all later ones.
    ///
    /// `make` gets the negotiated version, at most `version_max`. Dropping the future leaves the connection usable:
    /// the response is read and discarded.
    pub(crate) async fn call<R: Request>(
        self: &Rc<Self>,
        version_max: i16,
        timeout: Duration,
        make: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, Error> {
        self.begin(version_max, make)?.answer(timeout).await
    }

    /// [`Self::call`] for a request that can be repeated: it gives up after `patience`, if that is shorter than `timeout`.
    ///
    /// The connection is then closed, unless a request without a patience waits on it: the broker may have been granted more time for that
    /// one.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `patience`, and those of `call`.
    pub(crate) async fn call_within<R: Request>(
        self: &Rc<Self>,
        version_max: i16,
        timeout: Duration,
        patience: Option<Duration>,
        make: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, Error> {
        let response = self.call(version_max, timeout, make);
        let Some(patience) = patience.filter(|patience| *patience < timeout) else {
            return response.await;
        };
        tokio::pin!(response);
        let _waits = PatientWait::begin(&self.link);
        match self.answered_within(patience, response.as_mut()).await {
            Some(result) => result,
            None if self.link.has_only_patient_waiters()
                || self.is_silent(self.link.config.socket_timeout) =>
            {
                Err(self.give_up(R::KEY.name(), patience))
            }
            None => {
                let what = format!("answer to {} from {}", R::KEY, self.address());
                Err(Error::TimedOut { what, waited_ms: patience.as_millis() })
            }
        }
    }

    /// Puts a request in the outbox at once and returns the wait for its response. Requests are sent in the order of
    /// these calls.
    pub(crate) fn begin<R: Request>(
        self: &Rc<Self>,
        version_max: i16,
        make: impl FnOnce(i16) -> R,
    ) -> Result<Pending<R>, Error> {
        self.begin_in(version_max, make, None)
    }

    /// [`Self::begin`] with memory for the response.
    pub(crate) fn begin_in<R: Request>(
        self: &Rc<Self>,
        version_max: i16,
        make: impl FnOnce(i16) -> R,
        room: Option<Rc<dyn ResponseMemory>>,
    ) -> Result<Pending<R>, Error> {
        let version = self.version_of::<R>(version_max)?;
        let (sender, received) = oneshot::channel();
        let answer = ResponseTarget { sender, room };
        self.link.send(&make(version), version, Urgency::InTurn, None, Some(answer))?;
        Ok(Pending { connection: self.clone(), version, received, request: PhantomData })
    }

    /// Sends a request without a response and waits until it is written.
    pub(crate) async fn send_without_response<R: Request>(
        &self,
        version_max: i16,
        timeout: Duration,
        make: impl FnOnce(i16) -> R,
    ) -> Result<(), Error> {
        let version = self.version_of::<R>(version_max)?;
        let (written, done) = oneshot::channel();
        self.link.send(&make(version), version, Urgency::InTurn, Some(written), None)?;
        match tokio::time::timeout(timeout, done).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.link.closed_error()),
            Err(_) => {
                self.link.observer.broken(ConnectionFailure::Timeout);
                self.link.close(format!(
                    "{} v{version} not written within {} ms",
                    R::KEY,
                    timeout.as_millis()
                ));
                Err(self.link.closed_error())
            }
        }
    }

    /// Waits up to `patience` for the response to a request of this connection. Throttling by the broker does not count. After `None`,
    /// the wait can continue.
    pub(crate) async fn answered_within<T>(
        &self,
        patience: Duration,
        mut response: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let mut deadline = deadline_after(patience);
        loop {
            if let Ok(result) = tokio::time::timeout_at(deadline, response.as_mut()).await {
                return Some(result);
            }
            deadline = self.link.deadline_after_throttle(deadline, patience)?;
        }
    }

    /// The end of the last throttle, which may be over.
    pub(crate) fn muted_until(&self) -> Option<Instant> {
        self.link.muted_until()
    }

    /// Returns `true` while the broker throttles it: requests wait for the end of that.
    pub(crate) fn is_muted(&self) -> bool {
        self.muted_until().is_some_and(|until| until > Instant::now())
    }

    /// Closes the connection, because the peer has not responded for too long.
    pub(crate) fn give_up(&self, request: &str, waited: Duration) -> Error {
        let (ms, address) = (waited.as_millis(), self.address());
        let what = format!("answer to {request} from {address}");
        self.link.observer.broken(ConnectionFailure::Timeout);
        self.link.close(format!("no {what} within {ms} ms"));
        Error::TimedOut { what, waited_ms: ms }
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        self.link.closed().await;
    }

    /// Returns `true` while it can carry requests.
    pub(crate) fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// Returns `true` if no request waits on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.link.is_idle()
    }

    /// Returns `true` if requests wait and the broker has not answered any for this long.
    pub(crate) fn is_silent(&self, after: Duration) -> bool {
        self.link.is_silent(after)
    }

    /// Records that the broker does not answer on another connection.
    pub(crate) fn suspect(&self) {
        self.link.suspect();
    }

    /// Returns `true` for the request timeout after [`suspect`](Self::suspect), or until a response comes.
    pub(crate) fn is_suspect(&self) -> bool {
        self.link.is_suspect()
    }

    /// Returns `true` if `requests` or more requests wait to be written; `wake` is then notified when one of them is
    /// written.
    pub(crate) fn is_backed_up(&self, requests: usize, wake: &Arc<Notify>) -> bool {
        self.link.is_backed_up(requests, wake)
    }

    /// The peer's address, as used to connect.
    pub(crate) fn address(&self) -> &str {
        &self.link.address
    }

    /// The level of a cluster feature (KIP-584) when this connection was opened.
    pub(crate) fn feature(&self, name: &str) -> Option<i16> {
        self.link.features.borrow().get(name).copied()
    }

    /// The error for zstd batches, if the broker does not support them.
    pub(crate) fn refuses_zstd(&self) -> Option<Error> {
        let (_, produce) = *self.link.versions.borrow().get(&ApiKey::Produce.code())?;
        zstd_refused(produce).map(|reason| Error::Unsupported { address: self.link.address.clone(), reason })
    }

    /// The highest version of `R` that both sides support.
    pub(crate) fn version_of<R: Request>(&self, version_max: i16) -> Result<i16, Error> {
        self.link.version_of::<R>(version_max)
    }
}

/// A request in progress.
#[derive(Debug)]
#[must_use = "the answer is thrown away"]
pub(crate) struct Pending<R> {
    connection: Rc<Connection>,
    version: i16,
    received: oneshot::Receiver<Bytes>,
    request: PhantomData<R>,
}

impl<R: Request> Pending<R> {
    /// Waits for the response, as [`Connection::call`] does. Throttling by the broker does not count towards the
    /// timeout.
    pub(crate) async fn answer(self, timeout: Duration) -> Result<R::Response, Error> {
        let Self { connection, version, mut received, .. } = self;
        let link = &connection.link;
        let mut deadline = deadline_after(timeout);
        loop {
            match tokio::time::timeout_at(deadline, &mut received).await {
                Ok(Ok(frame)) => {
                    let response = link.decode::<R>(frame, version)?;
                    link.heed_throttle::<R>(version, &response);
                    return Ok(response);
                }
                Ok(Err(_)) => return Err(link.closed_error()),
                Err(_) => {
                    if let Some(later) = link.deadline_after_throttle(deadline, timeout) {
                        deadline = later;
                        continue;
                    }
                    return Err(link.on_unanswered(format!(
                        "no answer to {} v{version} within {} ms",
                        R::KEY,
                        timeout.as_millis()
                    )));
                }
            }
        }
    }
}

/// A caller of [`Connection::call_within`] that waits.
struct PatientWait<'a>(&'a Link);

impl<'a> PatientWait<'a> {
    fn begin(link: &'a Link) -> Self {
        link.patient.set(link.patient.get() + 1);
        Self(link)
    }
}

impl Drop for PatientWait<'_> {
    fn drop(&mut self) {
        self.0.patient.set(self.0.patient.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use ottla_protocol::frame;
    use ottla_protocol::messages::create_topics::{CreateTopicsRequest, CreateTopicsResponse};
    use ottla_protocol::messages::metadata::{MetadataRequest, MetadataResponse};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::LocalSet;

    use super::*;
    use crate::stats::Observer;

    const VERSION_MAX: i16 = 5;
    /// The time for a response to the first request.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Reads a Metadata and a CreateTopics request, and answers both after [`PATIENCE`].
    async fn answer_late(mut io: DuplexStream) -> io::Result<()> {
        let mut headers = Vec::new();
        for _ in 0..2 {
            let size = io.read_i32().await?;
            let mut request = vec![0; size as usize];
            io.read_exact(&mut request).await?;
            let version = i16::from_be_bytes([request[2], request[3]]);
            headers.push((version, i32::from_be_bytes([request[4], request[5], request[6], request[7]])));
        }
        tokio::time::sleep(PATIENCE).await;
        let [(version, id), (later_version, later_id)] = headers[..] else { unreachable!("two requests") };
        let described = frame::encode_response::<MetadataRequest>(id, version, &MetadataResponse::default());
        let created = CreateTopicsResponse::default();
        let created = frame::encode_response::<CreateTopicsRequest>(later_id, later_version, &created);
        for answer in [described, created] {
            io.write_all(&answer.expect("encoded").to_bytes()?).await?;
        }
        io.read_i32().await.map(drop)
    }

    /// The connection was closed, although the broker may create the topics.
    #[tokio::test(start_paused = true)]
    async fn a_request_behind_one_that_is_given_up_keeps_the_connection() {
        let config = Arc::new(Config::new("b"));
        let exchange = async {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(answer_late(theirs));
            let observer = Observer::new(&config, 1).connection("b:9092");
            let connection = Rc::new(Connection::start(Box::new(ours), observer, &config));
            let keys = [ApiKey::Metadata, ApiKey::CreateTopics];
            let versions = keys.map(|key| (key.code(), (0, VERSION_MAX)));
            connection.link.versions.borrow_mut().extend(versions);
            let timeout = config.socket_timeout;
            let request = |_| MetadataRequest::default();
            let described = connection.call_within(VERSION_MAX, timeout, Some(PATIENCE), request);
            let created = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                connection.call(VERSION_MAX, timeout, |_| CreateTopicsRequest::default()).await
            };
            tokio::join!(described, created)
        };
        let (described, created) = LocalSet::new().run_until(exchange).await;
        assert!(matches!(described, Err(Error::TimedOut { .. })), "{described:?}");
        assert!(created.is_ok(), "{created:?}");
    }

    /// Each of the two kept the connection open for the other, and their repetitions did, until the request timeout.
    #[tokio::test(start_paused = true)]
    async fn requests_that_are_given_up_do_not_keep_a_silent_connection_for_each_other() {
        let config = Arc::new(Config::new("b"));
        let exchange = async {
            let (ours, _theirs) = tokio::io::duplex(1 << 16);
            let observer = Observer::new(&config, 1).connection("b:9092");
            let connection = Rc::new(Connection::start(Box::new(ours), observer, &config));
            connection.link.versions.borrow_mut().insert(ApiKey::Metadata.code(), (0, VERSION_MAX));
            let describe = |delay| {
                let request = |_| MetadataRequest::default();
                let connection = &connection;
                let timeout = config.socket_timeout;
                async move {
                    tokio::time::sleep(delay).await;
                    connection.call_within(VERSION_MAX, timeout, Some(PATIENCE), request).await
                }
            };
            let began = Instant::now();
            let both = tokio::join!(describe(Duration::ZERO), describe(Duration::from_secs(1)));
            (both, began.elapsed(), connection.is_open())
        };
        let (both, took, is_open) = LocalSet::new().run_until(exchange).await;
        assert!(both.0.is_err() && both.1.is_err(), "{both:?}");
        assert!(took <= PATIENCE + Duration::from_secs(1) && !is_open, "{took:?}");
    }
}
