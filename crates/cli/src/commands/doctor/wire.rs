//! One connection to a broker, one request at a time: what is seen here is the wire, not a client's retries.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::Config;
use ottla_client::probe::{Handshake, Probe, Refused, TlsStream, is_tls};
use ottla_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::{ApiKey, ErrorCode, Message, Request, decode_response, encode_request, frame_size};

use super::network::Reachable;
use super::peer::Speaks;
use crate::failure::{Failure, sentence};

/// The versions of the first request: the one that also names the client, and the one that every broker knows.
const GREETINGS: [i16; 2] = [3, 0];

/// How long to wait, how much to take, and what is said before the first request.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
    pub(super) client_id: String,
    pub(super) security: Rc<Probe>,
    response_bytes_max: usize,
}

impl Terms {
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            connect: config.connect_timeout,
            answer: config.request_timeout,
            client_id: config.client_id.clone(),
            security: Rc::new(Probe::new(config)?),
            response_bytes_max: config.response_bytes_max,
        })
    }

    /// What a broker is told to take at most.
    pub(super) fn answer_ms(&self) -> i32 {
        i32::try_from(self.answer.as_millis()).unwrap_or(i32::MAX)
    }
}

/// Measures.
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

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection could not be made, or broke.
    Io(io::Error),
    /// Nothing came.
    Silent(Duration),
    /// It was closed instead of an answer.
    Closed,
    /// What came is not Kafka.
    Foreign(Speaks),
    /// What came is nearly Kafka.
    Nonsense(String),
    /// The broker has no version of this request that we have.
    Unknown(ApiKey),
    /// No TLS with the peer.
    Tls(Refused),
    /// The peer does not take us for who we say we are.
    Unproven(ottla_client::Error),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => f.write_str(&sentence(error)),
            Self::Silent(after) => write!(f, "no answer within {} ms", after.as_millis()),
            Self::Closed => f.write_str("the connection was closed instead of an answer"),
            Self::Foreign(speaks) => write!(f, "the peer speaks {speaks}, not Kafka"),
            Self::Nonsense(text) => f.write_str(text),
            Self::Unknown(api) => write!(f, "the broker has no version of {} that we have", api.name()),
            Self::Tls(refused) => write!(f, "{refused}"),
            Self::Unproven(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Closed
            }
            _ if is_tls(&error) => Self::Tls(Refused::later(&error)),
            _ => Self::Io(error),
        }
    }
}

/// What a connection's bytes go through.
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
pub(super) struct Wire {
    stream: Stream,
    terms: Terms,
    versions: BTreeMap<i16, (i16, i16)>,
    correlation_id: i32,
    /// Acknowledges what is received at once (Linux only): takes our half out of a delayed-ACK stall.
    pub(super) quick_acks: bool,
    /// Writes each request in two pieces, as programs do that write the size first.
    pub(super) in_pieces: bool,
}

impl Wire {
    /// Connects, and makes the TLS handshake where the properties ask for it; then it may greet.
    pub(super) fn open(peer: &Reachable, terms: &Terms) -> Result<Self, Trouble> {
        let (mut wire, _) = Self::connect(peer.address, terms)?;
        if terms.security.uses_tls() {
            wire.secure(&peer.host, terms)?;
        }
        Ok(wire)
    }

    /// Connects, greets and proves who we are.
    pub(super) fn greeted(peer: &Reachable, terms: &Terms) -> Result<Self, Trouble> {
        let mut wire = Self::open(peer, terms)?;
        wire.greet()?;
        super::security::authenticate(&mut wire, peer, terms)?;
        Ok(wire)
    }

    /// Connects, with Nagle's algorithm off as our client has it.
    pub(super) fn connect(address: SocketAddr, terms: &Terms) -> Result<(Self, Duration), Trouble> {
        let watch = Stopwatch::start();
        let stream =
            TcpStream::connect_timeout(&address, terms.connect).map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Trouble::Silent(terms.connect),
                _ => Trouble::Io(error),
            })?;
        let took = watch.elapsed();
        stream.set_nodelay(true).map_err(Trouble::Io)?;
        let wire = Self {
            stream: Stream::Plain(stream),
            terms: terms.clone(),
            versions: BTreeMap::new(),
            correlation_id: 0,
            quick_acks: false,
            in_pieces: false,
        };
        Ok((wire, took))
    }

    /// Makes the TLS handshake.
    pub(super) fn secure(&mut self, host: &str, terms: &Terms) -> Result<(Handshake, Duration), Trouble> {
        let tcp = self.stream.tcp();
        tcp.set_read_timeout(Some(terms.answer))?;
        tcp.set_write_timeout(Some(terms.answer))?;
        let tcp = tcp.try_clone()?;
        let watch = Stopwatch::start();
        let (tls, handshake) = terms.security.handshake(host, tcp).map_err(Trouble::Tls)?;
        let took = watch.elapsed();
        self.stream = Stream::Tls(Box::new(tls));
        Ok((handshake, took))
    }

    /// Turns Nagle's algorithm on or off.
    pub(super) fn set_nagle(&self, on: bool) -> Result<(), Trouble> {
        self.stream.tcp().set_nodelay(!on).map_err(Trouble::Io)
    }

    /// Asks what the broker can do, and remembers it.
    pub(super) fn greet(&mut self) -> Result<(ApiVersionsResponse, Duration), Trouble> {
        let request = ApiVersionsRequest {
            client_software_name: "ottla-doctor".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        let watch = Stopwatch::start();
        let mut last = ErrorCode::None;
        for version in GREETINGS {
            let frame = self.exchange(&request, version)?;
            // Brokers that do not know the version answer in version 0.
            let answer = decode_response::<ApiVersionsRequest>(frame.clone(), version)
                .or_else(|_| decode_response::<ApiVersionsRequest>(frame, 0));
            let (_, answer) = answer.map_err(|error| Trouble::Nonsense(error.to_string()))?;
            last = answer.error_code;
            if last == ErrorCode::None {
                let ranges = answer.api_keys.iter();
                self.versions = ranges.map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
                return Ok((answer, watch.elapsed()));
            }
        }
        Err(Trouble::Nonsense(format!("ApiVersions: {last}")))
    }

    /// Whether the broker has this version of a request.
    pub(super) fn knows(&self, api: ApiKey, version: i16) -> bool {
        self.versions.get(&api.code()).is_some_and(|(_, max)| *max >= version)
    }

    /// Sends a request in the newest version that both sides have, but `newest` at most, and waits for the answer.
    pub(super) fn ask<R: Request>(
        &mut self,
        request: &R,
        newest: i16,
    ) -> Result<(R::Response, Duration), Trouble> {
        let version = self.version_of::<R>(newest)?;
        self.ask_in(request, version)
    }

    /// The newest version of a request that both sides have, `newest` at most.
    pub(super) fn version_of<R: Request>(&self, newest: i16) -> Result<i16, Trouble> {
        let (min, max) = *self.versions.get(&R::KEY.code()).ok_or(Trouble::Unknown(R::KEY))?;
        let version = max.min(newest).min(*R::STABLE_VERSIONS.end());
        if version < min.max(*<R as Message>::VERSIONS.start()) {
            return Err(Trouble::Unknown(R::KEY));
        }
        Ok(version)
    }

    /// Sends a request in this version and waits for the answer.
    pub(super) fn ask_in<R: Request>(
        &mut self,
        request: &R,
        version: i16,
    ) -> Result<(R::Response, Duration), Trouble> {
        let watch = Stopwatch::start();
        let frame = self.exchange(request, version)?;
        let took = watch.elapsed();
        let (correlation_id, answer) =
            decode_response::<R>(frame, version).map_err(|error| Trouble::Nonsense(error.to_string()))?;
        if correlation_id != self.correlation_id {
            return Err(Trouble::Nonsense(format!(
                "the answer to request {} says that it answers {correlation_id}",
                self.correlation_id
            )));
        }
        Ok((answer, took))
    }

    fn exchange<R: Request>(&mut self, request: &R, version: i16) -> Result<Bytes, Trouble> {
        self.correlation_id += 1;
        let frame = encode_request(self.correlation_id, Some(&self.terms.client_id), version, request)
            .map(|chain| chain.to_bytes().unwrap_or_default())
            .map_err(|error| Trouble::Nonsense(error.to_string()))?;
        self.exchange_frame(&frame)
    }

    /// Sends what has its length before it, and waits for such an answer.
    pub(super) fn exchange_frame(&mut self, frame: &[u8]) -> Result<Bytes, Trouble> {
        self.stream.tcp().set_write_timeout(Some(self.terms.answer))?;
        let pieces = if self.in_pieces { frame.split_at(4) } else { (&[][..], frame) };
        for piece in [pieces.0, pieces.1] {
            self.stream.write_all(piece)?;
        }
        let deadline = Instant::now() + self.terms.answer;
        let mut prefix = [0; 4];
        self.fill(&mut prefix, deadline)?;
        if let Some(speaks) = Speaks::from_first_bytes(prefix) {
            return Err(Trouble::Foreign(speaks));
        }
        let size = frame_size(prefix, self.terms.response_bytes_max)
            .map_err(|error| Trouble::Nonsense(error.to_string()))?;
        let mut answer = vec![0; size];
        self.fill(&mut answer, deadline)?;
        Ok(answer.into())
    }

    fn fill(&mut self, mut rest: &mut [u8], deadline: Instant) -> Result<(), Trouble> {
        while !rest.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Trouble::Silent(self.terms.answer));
            }
            self.stream.tcp().set_read_timeout(Some(left))?;
            self.acknowledge_at_once();
            match self.stream.read(rest) {
                Ok(0) => return Err(Trouble::Closed),
                Ok(read) => rest = &mut rest[read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(Trouble::Silent(self.terms.answer));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn acknowledge_at_once(&self) {
        if self.quick_acks {
            // Holds until the kernel changes its mind: hence before each read. Where it fails, the measurement shows
            // the stall, which is no worse than not asking.
            let _ = rustix::net::sockopt::set_tcp_quickack(self.stream.tcp(), true);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn acknowledge_at_once(&self) {}
}
