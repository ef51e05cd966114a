//! Faulty peers: proxies that delay, listeners of other protocols, an incomplete broker.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ottla_protocol::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use ottla_protocol::messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use ottla_protocol::{ApiKey, Decoder, ErrorCode, RequestHeader, encode_response};

/// Runs `serve` for each connection, in threads that end with the test process.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// A listener that reads something, sends this and closes. With `only_to` it answers only peers that start with this
/// byte.
pub(crate) fn says(answer: &[u8], only_to: u8) -> String {
    let answer = answer.to_vec();
    listen(move |mut stream| {
        let mut heard = [0; 1024];
        let count = stream.read(&mut heard).unwrap_or(0);
        if count > 0 && (only_to == 0 || heard[0] == only_to) {
            let _ = stream.write_all(&answer);
        }
    })
}

/// A proxy between the doctor and a broker.
pub(crate) struct Proxy {
    pub(crate) address: String,
}

impl Proxy {
    /// Delays every answer.
    pub(crate) fn delaying(to: SocketAddr, delay: Duration) -> Self {
        Self::new(to, move |stream, answer| {
            stream.set_nodelay(true)?;
            thread::sleep(delay);
            stream.write_all(answer)
        })
    }

    /// Writes answers in two pieces, with Nagle's algorithm on.
    pub(crate) fn in_pieces(to: SocketAddr) -> Self {
        Self::new(to, |stream, answer| {
            let (size, rest) = answer.split_at(4);
            stream.write_all(size)?;
            stream.write_all(rest)
        })
    }

    fn new(
        to: SocketAddr,
        answer: impl Fn(&mut TcpStream, &[u8]) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let address = listen(move |mut here| {
            let Ok(mut there) = TcpStream::connect(to) else { return };
            // One request, one answer: the order of requests in the doctor, and in a client that waits.
            while let Some(request) = frame(&mut here) {
                if there.write_all(&request).is_err() {
                    return;
                }
                let Some(frame) = frame(&mut there) else { return };
                if answer(&mut here, &frame).is_err() {
                    return;
                }
            }
        });
        Self { address }
    }
}

/// A frame with its size.
fn frame(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).ok()?;
    let size = u32::from_be_bytes(frame[..4].try_into().ok()?) as usize;
    frame.resize(4 + size, 0);
    from.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

/// An incomplete broker: it answers ApiVersions, and Metadata with a fixed cluster.
pub(crate) struct Answers {
    pub(crate) address: String,
}

impl Answers {
    /// Metadata has one topic, `orders`, with these partitions.
    pub(crate) fn with(partitions: Vec<MetadataResponsePartition>) -> Self {
        Self { address: listen(move |stream| serve(stream, Some(&partitions), &[])) }
    }

    /// Closes connections whose next request is not a SASL handshake.
    pub(crate) fn only_after_sasl(mechanisms: &[&str]) -> Self {
        let mechanisms: Vec<String> = mechanisms.iter().map(|&name| name.to_owned()).collect();
        Self { address: listen(move |stream| serve(stream, None, &mechanisms)) }
    }
}

fn serve(mut stream: TcpStream, partitions: Option<&[MetadataResponsePartition]>, mechanisms: &[String]) {
    let own = stream.local_addr().expect("connected");
    while let Some(request) = frame(&mut stream) {
        let header =
            RequestHeader::decode(&mut Decoder::new(request[4..].to_vec().into())).expect("a header");
        let (id, version) = (header.correlation_id, header.api_version);
        let answer = match (header.api_key, partitions) {
            (ApiKey::ApiVersions, _) => encode_response::<ApiVersionsRequest>(id, version, &greeting()),
            (ApiKey::SaslHandshake, _) => {
                let refusal = SaslHandshakeResponse {
                    error_code: ErrorCode::UnsupportedSaslMechanism,
                    mechanisms: mechanisms.to_vec(),
                };
                encode_response::<SaslHandshakeRequest>(id, version, &refusal)
            }
            (ApiKey::Metadata, Some(partitions)) => {
                encode_response::<MetadataRequest>(id, version, &cluster(own, partitions))
            }
            _ => return,
        };
        let bytes = answer.expect("encodable").to_bytes().expect("in memory");
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn greeting() -> ApiVersionsResponse {
    let ranges = [
        (ApiKey::Produce, 3, 11),
        (ApiKey::Fetch, 4, 12),
        (ApiKey::ListOffsets, 1, 7),
        (ApiKey::Metadata, 0, 12),
        (ApiKey::SaslHandshake, 0, 1),
        (ApiKey::ApiVersions, 0, 3),
    ];
    let api = |(key, min_version, max_version): (ApiKey, i16, i16)| ApiVersion {
        api_key: key.code(),
        min_version,
        max_version,
    };
    ApiVersionsResponse { api_keys: ranges.map(api).to_vec(), ..Default::default() }
}

fn cluster(own: SocketAddr, partitions: &[MetadataResponsePartition]) -> MetadataResponse {
    let broker = MetadataResponseBroker {
        node_id: 1,
        host: own.ip().to_string(),
        port: own.port().into(),
        ..Default::default()
    };
    let topic = MetadataResponseTopic {
        name: Some("orders".into()),
        partitions: partitions.to_vec(),
        ..Default::default()
    };
    MetadataResponse {
        brokers: vec![broker],
        cluster_id: Some("half".into()),
        controller_id: 1,
        topics: vec![topic],
        ..Default::default()
    }
}
