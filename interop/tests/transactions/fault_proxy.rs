//! A proxy that injects a fault into one request of a transaction.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ottla_client::{Connecting, Connector, ErrorCode, Io};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;

/// The requests of a transaction, by API key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Api {
    Produce = 0,
    InitProducerId = 22,
    AddPartitionsToTxn = 24,
    AddOffsetsToTxn = 25,
    EndTxn = 26,
    TxnOffsetCommit = 28,
}

pub(crate) const TRANSACTIONAL: [Api; 6] = [
    Api::Produce,
    Api::InitProducerId,
    Api::AddPartitionsToTxn,
    Api::AddOffsetsToTxn,
    Api::EndTxn,
    Api::TxnOffsetCommit,
];

/// The fault for the first request of its kind. The broker receives the request in any case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProxyFault {
    /// The connection is cut before the response arrives.
    Cut(Api),
    /// The response has this code: for responses that consist of throttle time and code.
    Answer(Api, ErrorCode),
}

/// A proxy between the client and the brokers.
pub(crate) struct FaultProxy {
    fault: ProxyFault,
    done: AtomicBool,
}

impl FaultProxy {
    pub(crate) fn new(fault: ProxyFault) -> Self {
        Self { fault, done: AtomicBool::new(false) }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// `true` if the fault applies to this request.
    fn takes_request(&self, request: &[u8]) -> bool {
        let (ProxyFault::Cut(api) | ProxyFault::Answer(api, _)) = self.fault;
        request.starts_with(&(api as i16).to_be_bytes()) && !self.done.swap(true, Ordering::Relaxed)
    }

    /// Forwards requests and responses, one at a time.
    async fn relay(self: Arc<Self>, client: DuplexStream, broker: TcpStream) -> io::Result<()> {
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (mut from_broker, mut to_broker) = broker.into_split();
        let chosen = Arc::new(Mutex::new(None));
        let seen = chosen.clone();
        let proxy = self.clone();
        let there = async move {
            loop {
                let request = read_frame(&mut from_client).await?;
                if proxy.takes_request(&request) {
                    *seen.lock().unwrap_or_else(PoisonError::into_inner) =
                        request.get(4..8).map(<[u8]>::to_vec);
                }
                write_frame(&mut to_broker, &request).await?;
            }
        };
        let back = async {
            loop {
                let mut answer = read_frame(&mut from_broker).await?;
                let chosen = chosen.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if chosen.is_some_and(|id| answer.starts_with(&id)) {
                    match self.fault {
                        ProxyFault::Cut(_) => return Err::<(), _>(io::ErrorKind::ConnectionReset.into()),
                        // Correlation id, no tags, throttle time, then the code.
                        ProxyFault::Answer(_, code) => {
                            answer[9..11].copy_from_slice(&code.code().to_be_bytes());
                        }
                    }
                }
                write_frame(&mut to_client, &answer).await?;
            }
        };
        tokio::select! {
            ended = there => ended,
            ended = back => ended,
        }
    }
}

impl Connector for SharedFaultProxy {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            let broker = TcpStream::connect((host, port)).await?;
            let (client, ours) = tokio::io::duplex(1 << 20);
            // Ends with either side's connection.
            tokio::spawn(self.0.clone().relay(ours, broker));
            Ok(Box::new(client) as Box<dyn Io>)
        })
    }
}

pub(crate) struct SharedFaultProxy(pub(crate) Arc<FaultProxy>);

async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let bytes = from.read_u32().await?;
    let mut frame = vec![0; bytes as usize];
    from.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write_frame(to: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    to.write_u32(frame.len() as u32).await?;
    to.write_all(frame).await
}
