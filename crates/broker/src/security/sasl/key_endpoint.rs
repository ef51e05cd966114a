//! The public keys that an issuer publishes under a URL. A thread of its own reads them again and again.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::jwk::{Key, keys_of};
use super::key_source::JWKS_BYTES_MAX;
use crate::config::KeyEndpointSettings;
use crate::security::tls::certificates;

/// The start of the broker waits so long for the first keys.
const START_WITHIN: Duration = Duration::from_secs(5);
/// The longest time of one read.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// The keys of a URL as they were read last.
#[derive(Debug)]
pub(super) struct KeyEndpoint {
    known: Arc<Mutex<Arc<[Key]>>>,
    /// Asks for another read. The thread ends when this is dropped.
    unknown: mpsc::Sender<()>,
}

impl KeyEndpoint {
    /// Starts to read the keys, and waits for the first ones for [`START_WITHIN`]. An issuer that does not answer may start
    /// later than the broker: its tokens are refused until then.
    ///
    /// # Errors
    /// If the settings cannot work.
    pub(super) fn open(settings: &KeyEndpointSettings) -> Result<Self, String> {
        let source = Source::new(settings)?;
        let known: Arc<Mutex<Arc<[Key]>>> = Arc::new(Mutex::new(Arc::new([])));
        let (unknown, asked) = mpsc::channel(1);
        let (done, first) = std::sync::mpsc::channel();
        let reader =
            Reader { source, settings: settings.clone(), known: known.clone(), asked, first: Some(done) };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("reading public keys: {error}"))?;
        std::thread::Builder::new()
            .name("ottla-jwks".into())
            .spawn(move || runtime.block_on(reader.run()))
            .map_err(|error| format!("reading public keys: {error}"))?;
        if first.recv_timeout(START_WITHIN) == Err(RecvTimeoutError::Timeout) {
            let url = &settings.url;
            tracing::warn!(
                url,
                "no public keys within {START_WITHIN:?}: tokens are refused until there are some"
            );
        }
        Ok(Self { known, unknown })
    }

    pub(super) fn keys(&self) -> Arc<[Key]> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the keys read again soon: none of them verifies a token.
    pub(super) fn note_unknown_key(&self) {
        // A read that was asked for already is as good.
        let _ = self.unknown.try_send(());
    }
}

/// The thread's part.
struct Reader {
    source: Source,
    settings: KeyEndpointSettings,
    known: Arc<Mutex<Arc<[Key]>>>,
    asked: mpsc::Receiver<()>,
    /// Dropped with the first keys.
    first: Option<std::sync::mpsc::Sender<()>>,
}

impl Reader {
    async fn run(mut self) {
        let mut backoff = self.settings.retry_backoff;
        let mut is_failing = false;
        loop {
            let began = Instant::now();
            let pause = match self.source.read().await {
                Ok(keys) => {
                    *self.known.lock().unwrap_or_else(PoisonError::into_inner) = keys.into();
                    self.first = None;
                    backoff = self.settings.retry_backoff;
                    is_failing = false;
                    self.settings.refresh
                }
                Err(error) => {
                    let url = &self.settings.url;
                    // One line until it works again: a read is tried every few seconds.
                    if is_failing {
                        tracing::debug!(url, error, "the public keys of OAUTHBEARER still cannot be read");
                    } else {
                        tracing::warn!(url, error, "the public keys of OAUTHBEARER cannot be read");
                    }
                    is_failing = true;
                    let pause = backoff;
                    backoff = backoff.saturating_mul(2).min(self.settings.retry_backoff_max);
                    pause
                }
            };
            if !self.pause(began, pause, is_failing).await {
                return;
            }
        }
    }

    /// Waits for the next read. Returns `false` if the listener is gone, which needs the keys.
    async fn pause(&mut self, began: Instant, pause: Duration, is_failing: bool) -> bool {
        let next = tokio::time::sleep(pause);
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = &mut next => return true,
                asked = self.asked.recv() => {
                    if asked.is_none() {
                        return false;
                    }
                    // A failed read has its own time.
                    let soon = began.checked_add(self.settings.retry_backoff_max);
                    if let Some(soon) = soon.filter(|soon| !is_failing && *soon < next.deadline()) {
                        next.as_mut().reset(soon);
                    }
                }
            }
        }
    }
}

/// A URL that can be read.
struct Source {
    uri: Uri,
    host: String,
    port: u16,
    /// `None` for `http`.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Source {
    fn new(settings: &KeyEndpointSettings) -> Result<Self, String> {
        let property = "sasl.oauthbearer.jwks.endpoint.url";
        let refuse = |text: &str| format!("{property}=`{}`: {text}", settings.url);
        let uri: Uri = settings.url.parse().map_err(|_| refuse("not a URL"))?;
        let authority = uri.authority().ok_or_else(|| refuse("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(format!("{property}: must not carry a user or password"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, usual_port) = match uri.scheme_str() {
            Some("https") => {
                let name =
                    ServerName::try_from(host.clone()).map_err(|_| refuse("not the name of a host"))?;
                (Some((TlsConnector::from(Arc::new(client_config(settings)?)), name)), 443)
            }
            Some("http") => {
                tracing::warn!(url = settings.url, "on the way, the keys can be replaced: use https");
                (None, 80)
            }
            _ => return Err(refuse("must be https, http, or a file as file:///PATH")),
        };
        // `port_u16` is `None` also for a number that is no port.
        let port = authority.as_str().strip_prefix(authority.host()).and_then(|rest| rest.strip_prefix(':'));
        let port = match port {
            None | Some("") => usual_port,
            Some(port) => {
                port.parse::<u16>().map_err(|_| refuse("the number behind the host is not a port"))?
            }
        };
        Ok(Self { uri, host, port, tls })
    }

    async fn read(&self) -> Result<Vec<Key>, String> {
        let reading = async {
            let tcp =
                TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|it| it.to_string())?;
            match &self.tls {
                None => self.ask(tcp).await,
                Some((tls, name)) => {
                    let tls =
                        tls.connect(name.clone(), tcp).await.map_err(|error| format!("TLS: {error}"))?;
                    self.ask(tls).await
                }
            }
        };
        let body = tokio::time::timeout(READ_WITHIN, reading).await;
        let body = body.map_err(|_| format!("no answer within {READ_WITHIN:?}"))??;
        keys_of(&body)
    }

    async fn ask(&self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Bytes, String> {
        let http = hyper::client::conn::http1::handshake(TokioIo::new(io)).await;
        let (mut sender, connection) = http.map_err(|error| error.to_string())?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, self.uri.authority().map_or("", |authority| authority.as_str()))
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let asking = async {
            let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let status = response.status();
            if status != StatusCode::OK {
                let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
                let to = to.map(|to| format!(": use {to}")).unwrap_or_default();
                return Err(format!("the server answers {status}{to}"));
            }
            let body = Limited::new(response.into_body(), JWKS_BYTES_MAX as usize).collect().await;
            Ok(body.map_err(|error| error.to_string())?.to_bytes())
        };
        tokio::pin!(asking);
        tokio::select! {
            biased;
            answer = &mut asking => answer,
            // The server closed the connection after the response, which is read to its end.
            _ = connection => asking.await,
        }
    }
}

fn client_config(settings: &KeyEndpointSettings) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if let Some(trusted) = &settings.trusted {
        for certificate in certificates("ssl.truststore", trusted)? {
            roots.add(certificate).map_err(|error| format!("ssl.truststore: {error}"))?;
        }
    } else {
        let system = rustls_native_certs::load_native_certs();
        if roots.add_parsable_certificates(system.certs).0 == 0 {
            return Err("the system has no certificates to trust: set ssl.truststore.location in \
                        oauthbearer.sasl.jaas.config"
                .to_owned());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread panicked: the keys were never read again, and no token with a new key was accepted.
    #[tokio::test]
    async fn an_unknown_key_does_not_end_the_reads_if_two_may_be_far_apart() {
        let mut settings = KeyEndpointSettings::new("http://issuer.test/jwks");
        settings.retry_backoff_max = Duration::MAX;
        let source = Source::new(&settings).expect("a URL");
        let known: Arc<Mutex<Arc<[Key]>>> = Arc::new(Mutex::new(Arc::new([])));
        let (unknown, asked) = mpsc::channel(1);
        let mut reader = Reader { source, settings, known, asked, first: None };
        unknown.try_send(()).expect("room for one");
        drop(unknown);
        let continues = reader.pause(Instant::now(), Duration::MAX, false).await;
        assert!(!continues, "it has waited until the listener was gone");
    }

    /// It became 80 or 443, and the broker took the keys of another server.
    #[test]
    fn a_number_that_is_no_port_is_refused() {
        let port_of = |url: &str| Source::new(&KeyEndpointSettings::new(url)).map(|source| source.port);
        for url in ["http://issuer.test:80800/jwks", "http://[::1]:65536"] {
            let error = port_of(url).expect_err(url);
            assert!(error.contains("not a port"), "{error}");
        }
        assert_eq!(port_of("http://issuer.test/jwks"), Ok(80));
        assert_eq!(port_of("http://[::1]:65535/jwks"), Ok(65_535));
    }
}
