//! A single connection to a broker, with one request at a time and no retries.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::Config;
use ottla_client::probe::{Handshake, HandshakeError, SecurityProbe, TlsStream, is_tls};
use ottla_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::{ApiKey, ErrorCode, Message, Request, decode_response, encode_request, frame_size};

use super::network::Reachable;
use super::peer::OtherProtocol;
use crate::failure::{Failure, sentence};

/// Versions of ApiVersions: one that also names the client, and one that every broker supports.
const FIRST_REQUEST_VERSIONS: [i16; 2] = [3, 0];

/// Timeouts, limits and security of a connection.
#[derive(Clone, Debug)]
pub(super) struct ProbeSettings {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
    pub(super) client_id: String,
    pub(super) security: Rc<SecurityProbe>,
    response_bytes_max: usize,
}

impl ProbeSettings {
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            connect: config.socket_connection_setup_timeout,
            answer: config.socket_timeout,
            client_id: config.client_id.clone(),
            security: Rc::new(SecurityProbe::new(config)?),
            response_bytes_max: config.receive_message_max_bytes,
        })
    }

    /// The time limit that requests pass to the broker: half of an answer's, so that the error of a
    /// broker that reaches it still arrives.
    pub(super) fn broker_ms(&self) -> i32 {
        i32::try_from(self.answer.as_millis() / 2).unwrap_or(i32::MAX)
    }
}

/// Measures elapsed time.
#[derive(Debug)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The reason for a missing answer.
#[derive(Debug)]
pub(super) enum ProbeError {
    /// The connection could not be made, or failed.
    Io(io::Error),
    /// The peer did not answer in time.
    Timeout(Duration),
    /// The peer closed the connection instead of answering.
    Closed,
    /// The peer speaks another protocol.
    OtherProtocol(OtherProtocol),
    /// The answer is not a valid Kafka response.
    InvalidResponse(String),
    /// The broker supports no version of this request that we support.
    UnsupportedVersion(ApiKey),
    /// The TLS handshake failed.
    Tls(HandshakeError),
    /// SASL authentication failed.
    Authentication(ottla_client::Error),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => f.write_str(&sentence(error)),
            Self::Timeout(after) => write!(f, "no answer within {} ms", after.as_millis()),
            Self::Closed => f.write_str("the connection was closed instead of an answer"),
            Self::OtherProtocol(protocol) => write!(f, "the peer speaks {protocol}, not Kafka"),
            Self::InvalidResponse(text) => f.write_str(text),
            Self::UnsupportedVersion(api) => {
                write!(f, "the broker supports no version of {} that this client supports", api.name())
            }
            Self::Tls(refused) => write!(f, "{refused}"),
            Self::Authentication(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Closed
            }
            _ if is_tls(&error) => Self::Tls(HandshakeError::from_read(&error)),
            _ => Self::Io(error),
        }
    }
}

/// The stream of a connection: TCP, or TLS over TCP.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    settings: ProbeSettings,
    versions: BTreeMap<i16, (i16, i16)>,
    correlation_id: i32,
    /// Acknowledges received data at once (Linux only), which rules out our delayed acknowledgements.
    pub(super) quick_acks: bool,
    /// Writes each request in two pieces, like programs that write the size first.
    pub(super) in_pieces: bool,
}

impl Connection {
    /// Connects and, if configured, performs the TLS handshake.
    pub(super) fn open(peer: &Reachable, settings: &ProbeSettings) -> Result<Self, ProbeError> {
        let (mut connection, _) = Self::connect(peer.address, settings)?;
        if settings.security.uses_tls() {
            connection.secure(&peer.host, settings)?;
        }
        Ok(connection)
    }

    /// Connects, requests API versions and authenticates.
    pub(super) fn open_authenticated(peer: &Reachable, settings: &ProbeSettings) -> Result<Self, ProbeError> {
        let mut connection = Self::open(peer, settings)?;
        connection.request_api_versions()?;
        super::security::authenticate(&mut connection, peer, settings)?;
        Ok(connection)
    }

    /// Connects with Nagle's algorithm disabled, as our client does.
    pub(super) fn connect(
        address: SocketAddr,
        settings: &ProbeSettings,
    ) -> Result<(Self, Duration), ProbeError> {
        let watch = Stopwatch::start();
        let stream =
            TcpStream::connect_timeout(&address, settings.connect).map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ProbeError::Timeout(settings.connect),
                _ => ProbeError::Io(error),
            })?;
        let took = watch.elapsed();
        stream.set_nodelay(true).map_err(ProbeError::Io)?;
        let connection = Self {
            stream: Stream::Plain(stream),
            settings: settings.clone(),
            versions: BTreeMap::new(),
            correlation_id: 0,
            quick_acks: false,
            in_pieces: false,
        };
        Ok((connection, took))
    }

    /// Performs the TLS handshake.
    pub(super) fn secure(
        &mut self,
        host: &str,
        settings: &ProbeSettings,
    ) -> Result<(Handshake, Duration), ProbeError> {
        let tcp = self.stream.tcp();
        tcp.set_read_timeout(Some(settings.answer))?;
        tcp.set_write_timeout(Some(settings.answer))?;
        let tcp = tcp.try_clone()?;
        let watch = Stopwatch::start();
        let (tls, handshake) = settings.security.handshake(host, tcp).map_err(ProbeError::Tls)?;
        let took = watch.elapsed();
        self.stream = Stream::Tls(Box::new(tls));
        Ok((handshake, took))
    }

    /// Enables or disables Nagle's algorithm.
    pub(super) fn set_nagle(&self, on: bool) -> Result<(), ProbeError> {
        self.stream.tcp().set_nodelay(!on).map_err(ProbeError::Io)
    }

    /// Requests and stores the broker's API versions.
    pub(super) fn request_api_versions(&mut self) -> Result<(ApiVersionsResponse, Duration), ProbeError> {
        let request = ApiVersionsRequest {
            client_software_name: "ottla-doctor".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        let watch = Stopwatch::start();
        let mut last = ErrorCode::None;
        for version in FIRST_REQUEST_VERSIONS {
            let frame = self.exchange(&request, version)?;
            // Brokers that do not support the version answer in version 0.
            let answer = decode_response::<ApiVersionsRequest>(frame.clone(), version)
                .or_else(|_| decode_response::<ApiVersionsRequest>(frame, 0));
            let (_, answer) = answer.map_err(|error| ProbeError::InvalidResponse(error.to_string()))?;
            last = answer.error_code;
            if last == ErrorCode::None {
                let ranges = answer.api_keys.iter();
                self.versions = ranges.map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
                return Ok((answer, watch.elapsed()));
            }
        }
        Err(ProbeError::InvalidResponse(format!("ApiVersions: {last}")))
    }

    /// `true` if the broker supports this version of a request.
    pub(super) fn supports(&self, api: ApiKey, version: i16) -> bool {
        self.versions.get(&api.code()).is_some_and(|(_, max)| *max >= version)
    }

    /// Sends a request in the newest common version, at most `newest`, and waits for the response.
    pub(super) fn request<R: Request>(
        &mut self,
        request: &R,
        newest: i16,
    ) -> Result<(R::Response, Duration), ProbeError> {
        let version = self.version_of::<R>(newest)?;
        self.request_in(request, version)
    }

    /// The newest common version of a request, at most `newest`.
    pub(super) fn version_of<R: Request>(&self, newest: i16) -> Result<i16, ProbeError> {
        let (min, max) = *self.versions.get(&R::KEY.code()).ok_or(ProbeError::UnsupportedVersion(R::KEY))?;
        let version = max.min(newest).min(*R::STABLE_VERSIONS.end());
        if version < min.max(*<R as Message>::VERSIONS.start()) {
            return Err(ProbeError::UnsupportedVersion(R::KEY));
        }
        Ok(version)
    }

    /// Sends a request in this version and waits for the response.
    pub(super) fn request_in<R: Request>(
        &mut self,
        request: &R,
        version: i16,
    ) -> Result<(R::Response, Duration), ProbeError> {
        let watch = Stopwatch::start();
        let frame = self.exchange(request, version)?;
        let took = watch.elapsed();
        let (correlation_id, answer) = decode_response::<R>(frame, version)
            .map_err(|error| ProbeError::InvalidResponse(error.to_string()))?;
        if correlation_id != self.correlation_id {
            return Err(ProbeError::InvalidResponse(format!(
                "the response to request {} has the correlation id {correlation_id}",
                self.correlation_id
            )));
        }
        Ok((answer, took))
    }

    fn exchange<R: Request>(&mut self, request: &R, version: i16) -> Result<Bytes, ProbeError> {
        self.correlation_id += 1;
        let frame = encode_request(self.correlation_id, Some(&self.settings.client_id), version, request)
            .map(|chain| chain.to_bytes().unwrap_or_default())
            .map_err(|error| ProbeError::InvalidResponse(error.to_string()))?;
        self.exchange_frame(&frame)
    }

    /// Sends a frame that has no response.
    pub(super) fn send_frame(&mut self, frame: &[u8]) -> Result<(), ProbeError> {
        self.stream.tcp().set_write_timeout(Some(self.settings.answer))?;
        let pieces = if self.in_pieces { frame.split_at(4) } else { (&[][..], frame) };
        for piece in [pieces.0, pieces.1] {
            self.stream.write_all(piece)?;
        }
        Ok(())
    }

    /// Sends a frame and waits for a frame.
    pub(super) fn exchange_frame(&mut self, frame: &[u8]) -> Result<Bytes, ProbeError> {
        self.send_frame(frame)?;
        let deadline = Instant::now() + self.settings.answer;
        let mut prefix = [0; 4];
        self.fill(&mut prefix, deadline)?;
        if let Some(protocol) = OtherProtocol::from_first_bytes(prefix) {
            return Err(ProbeError::OtherProtocol(protocol));
        }
        let size = frame_size(prefix, self.settings.response_bytes_max)
            .map_err(|error| ProbeError::InvalidResponse(error.to_string()))?;
        let mut answer = vec![0; size];
        self.fill(&mut answer, deadline)?;
        Ok(answer.into())
    }

    fn fill(&mut self, mut rest: &mut [u8], deadline: Instant) -> Result<(), ProbeError> {
        while !rest.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ProbeError::Timeout(self.settings.answer));
            }
            self.stream.tcp().set_read_timeout(Some(left))?;
            self.acknowledge_at_once();
            match self.stream.read(rest) {
                Ok(0) => return Err(ProbeError::Closed),
                Ok(read) => rest = &mut rest[read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(ProbeError::Timeout(self.settings.answer));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn acknowledge_at_once(&self) {
        if self.quick_acks {
            // The setting lasts only until the kernel resets it: hence before each read. If it fails, the measurement
            // shows the delay.
            let _ = rustix::net::sockopt::set_tcp_quickack(self.stream.tcp(), true);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn acknowledge_at_once(&self) {}
}
