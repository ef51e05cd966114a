//! Clients over TLS that decide when they send and read.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::certificates::{Authority, Certificate};
use crate::common::PATIENCE;

/// The certificate of the brokers, and the configuration of clients that trust it.
struct Trust {
    server: Certificate,
    client: Arc<ClientConfig>,
}

static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    let authority = Authority::new("hostile");
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("a certificate");
    roots.add(certificate).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    Trust { server: authority.sign(&["127.0.0.1"]), client: Arc::new(client) }
});

/// The broker's certificate.
pub(crate) fn certificate() -> &'static Certificate {
    &TRUST.server
}

/// Connects with so much room for bytes that are not read.
pub(crate) fn connect(broker: SocketAddr, receive_bytes: usize) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(receive_bytes).expect("a socket");
    socket.connect(&broker.into()).expect("the broker listens");
    socket.into()
}

/// The bytes that the broker has taken at a push.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pushed {
    Some,
    Nothing,
    /// It has closed the connection.
    Closed,
}

/// A connection over TLS.
pub(crate) struct TlsClient {
    session: ClientConnection,
    stream: TcpStream,
}

impl TlsClient {
    /// Connects and shakes hands; `None` if the broker closes the connection. From then on, no call waits.
    pub(crate) fn connect(broker: SocketAddr, receive_bytes: usize) -> Option<Self> {
        let mut stream = connect(broker, receive_bytes);
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let name = ServerName::from(broker.ip());
        let mut session = ClientConnection::new(TRUST.client.clone(), name).expect("a session");
        session.set_buffer_limit(None);
        while session.is_handshaking() {
            session.complete_io(&mut stream).ok()?;
        }
        stream.set_nonblocking(true).expect("a socket");
        Some(Self { session, stream })
    }

    /// Sends requests if all earlier ones were taken.
    pub(crate) fn push(&mut self, requests: &[u8]) -> Pushed {
        if !self.session.wants_write() {
            self.session.writer().write_all(requests).expect("no limit");
        }
        let mut pushed = Pushed::Nothing;
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.stream) {
                Ok(_) => pushed = Pushed::Some,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Pushed::Closed,
            }
        }
        pushed
    }

    /// Shakes hands, and sends the end of the handshake together with a record of these bytes without its last byte.
    pub(crate) fn connect_with_unfinished(broker: SocketAddr, receive_bytes: usize, bytes: &[u8]) -> Self {
        let mut stream = connect(broker, receive_bytes);
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut session =
            ClientConnection::new(TRUST.client.clone(), ServerName::from(broker.ip())).expect("a session");
        session.set_buffer_limit(None);
        while session.is_handshaking() {
            while session.wants_write() {
                session.write_tls(&mut stream).expect("sent");
            }
            session.read_tls(&mut stream).expect("an answer");
            session.process_new_packets().expect("a handshake");
        }
        stream.set_nonblocking(true).expect("a socket");
        let mut client = Self { session, stream };
        client.push_unfinished(bytes);
        client
    }

    /// Sends a record of these bytes without its last byte.
    pub(crate) fn push_unfinished(&mut self, bytes: &[u8]) {
        self.session.writer().write_all(bytes).expect("no limit");
        let mut record = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut record).expect("memory");
        }
        record.pop();
        // A peer that has closed already is noticed by the next push.
        let _ = self.stream.write(&record);
    }

    /// Sends a request and waits for its response.
    pub(crate) fn exchange(&mut self, request: &[u8]) {
        self.stream.set_nonblocking(false).expect("a socket");
        let mut stream = rustls::Stream::new(&mut self.session, &mut self.stream);
        stream.write_all(request).expect("sent");
        let mut size = [0; 4];
        stream.read_exact(&mut size).expect("a response");
        let mut response = vec![0; u32::from_be_bytes(size) as usize];
        stream.read_exact(&mut response).expect("a whole response");
        self.stream.set_nonblocking(true).expect("a socket");
    }
}
