//! The metrics that clients push (KIP-714): who is asked for which, and the last values of each client.
//!
//! - `instances`: the clients that have asked or pushed, and when they may again.
//! - `otlp`: the values in a push, in OpenTelemetry's protobuf messages.
//!
//! `config::metric_subscriptions` has the CLIENT_METRICS resources. Nothing here reads a clock or does I/O; the requests are in `api::client_metrics`.

mod instances;
mod otlp;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ottla_protocol::messages::get_telemetry_subscriptions::GetTelemetrySubscriptionsResponse;
use ottla_protocol::messages::push_telemetry::PushTelemetryRequest;
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::Compression;
use ottla_wire::compress::{CompressError, decompress};

use crate::config::live::LiveConfig;
use crate::config::metric_subscriptions::{ClientIdentity, Subscriptions};
use crate::test_overrides::MockSubscription;
pub(crate) use instances::PushedClient;
use instances::{Ask, Instances};
pub(crate) use otlp::Sample;

/// `telemetry.max.bytes`: the largest push, compressed and not. Kafka's default.
pub(crate) const TELEMETRY_BYTES_MAX: usize = 1 << 20;
/// `telemetry.max.bytes` of librdkafka's mock cluster.
const MOCK_TELEMETRY_BYTES_MAX: i32 = 10_000;
/// The memory that a push takes while it is read, by its size without compression. Values of a few bytes need most.
const MEMORY_PER_BYTE: usize = 60;
/// The codecs of a push, the best one first.
const CODECS: [Compression; 4] =
    [Compression::Zstd, Compression::Lz4, Compression::Gzip, Compression::Snappy];

/// The values of clients have this part of `memory.max.bytes`, beside it, and no more than these bytes.
const SAMPLES_PART: usize = 16;
const SAMPLE_BYTES_MAX: usize = 32 << 20;

/// The clients that are asked for metrics, and what they have pushed.
#[derive(Debug)]
pub(crate) struct ClientMetrics {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    subscriptions: Subscriptions,
    instances: Instances,
}

impl ClientMetrics {
    /// No clients yet. `memory_max` is `memory.max.bytes`.
    pub(crate) fn new(memory_max: usize) -> Self {
        let instances = Instances::new(SAMPLE_BYTES_MAX.min(memory_max / SAMPLES_PART));
        Self { state: Mutex::new(State { subscriptions: Subscriptions::default(), instances }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a client that asks which metrics it shall push. `fresh` is the id of one that has none yet.
    pub(crate) fn subscriptions_of(
        &self,
        live: &LiveConfig,
        asked: Uuid,
        fresh: Uuid,
        client: &ClientIdentity,
        now_ms: i64,
    ) -> GetTelemetrySubscriptionsResponse {
        let id = if asked == Uuid::ZERO { fresh } else { asked };
        let mut state = self.lock();
        let State { subscriptions, instances } = &mut *state;
        subscriptions.refresh(live);
        let instance = instances.of(id, client, subscriptions, now_ms);
        if let Err(code) = instance.ask(Ask::Subscriptions, now_ms) {
            return GetTelemetrySubscriptionsResponse { error_code: code, ..Default::default() };
        }
        let wanted = subscriptions.of(id, instance.client());
        GetTelemetrySubscriptionsResponse {
            client_instance_id: id,
            subscription_id: wanted.id,
            accepted_compression_types: CODECS.iter().map(|codec| *codec as i8).collect(),
            push_interval_ms: wanted.interval_ms,
            telemetry_max_bytes: TELEMETRY_BYTES_MAX as i32,
            // Sums since the client's start: the last push alone has them all.
            delta_temporality: false,
            requested_metrics: wanted.metrics,
            ..Default::default()
        }
    }

    /// Takes note of a push, or returns the reason why it is not read.
    pub(crate) fn admit_push(
        &self,
        live: &LiveConfig,
        request: &PushTelemetryRequest,
        client: &ClientIdentity,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let id = request.client_instance_id;
        if id == Uuid::ZERO {
            return Err(ErrorCode::InvalidRequest);
        }
        let mut state = self.lock();
        let State { subscriptions, instances } = &mut *state;
        subscriptions.refresh(live);
        let instance = instances.of(id, client, subscriptions, now_ms);
        let ask = Ask::Push {
            subscription_id: request.subscription_id,
            is_last: request.terminating,
            codec_is_known: codec_of(request.compression_type).is_some(),
            bytes: request.metrics.len(),
        };
        instance.ask(ask, now_ms)
    }

    /// Keeps the values of a push that is admitted, or returns the reason why not.
    pub(crate) fn push(&self, request: &PushTelemetryRequest, now_ms: i64) -> Result<(), ErrorCode> {
        let id = request.client_instance_id;
        // Without the lock: a push of a megabyte takes a while to read.
        let samples = read(request);
        let mut state = self.lock();
        match samples {
            Ok(samples) => state.instances.keep(id, samples, request.terminating, now_ms),
            Err(code) => {
                state.instances.note_error(id, code);
                return Err(code);
            }
        }
        Ok(())
    }

    /// The memory that reading a push takes at most.
    pub(crate) fn memory_bytes(request: &PushTelemetryRequest) -> usize {
        let is_compressed = request.compression_type != Compression::None as i8;
        let bytes = if is_compressed { TELEMETRY_BYTES_MAX } else { request.metrics.len() };
        MEMORY_PER_BYTE * bytes
    }

    /// Answers a client as librdkafka's mock cluster does: no request comes too early.
    pub(crate) fn mock_subscription_of(
        mock: &MockSubscription,
        asked: Uuid,
        fresh: Uuid,
    ) -> GetTelemetrySubscriptionsResponse {
        GetTelemetrySubscriptionsResponse {
            client_instance_id: if asked == Uuid::ZERO { fresh } else { asked },
            accepted_compression_types: CODECS.iter().map(|codec| *codec as i8).collect(),
            push_interval_ms: i32::try_from(mock.interval.as_millis()).unwrap_or(i32::MAX),
            telemetry_max_bytes: MOCK_TELEMETRY_BYTES_MAX,
            delta_temporality: true,
            requested_metrics: mock.metrics.clone(),
            ..Default::default()
        }
    }

    /// Keeps the values of a push to a mock cluster.
    pub(crate) fn push_to_mock(
        &self,
        live: &LiveConfig,
        request: &PushTelemetryRequest,
        client: &ClientIdentity,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let samples = read(request)?;
        let mut state = self.lock();
        let State { subscriptions, instances } = &mut *state;
        subscriptions.refresh(live);
        instances.of(request.client_instance_id, client, subscriptions, now_ms);
        instances.keep(request.client_instance_id, samples, request.terminating, now_ms);
        Ok(())
    }

    /// Returns the number of pushes so far.
    pub(crate) fn pushes(&self) -> u64 {
        self.lock().instances.pushes()
    }

    /// Returns the clients that have asked or pushed in the last three intervals, by id. After its last push, a client stays for a minute.
    pub(crate) fn clients(&self, now_ms: i64) -> Vec<PushedClient> {
        let mut state = self.lock();
        state.instances.expire(now_ms);
        state.instances.clients()
    }
}

/// The values of a push that are kept, for fuzz targets: they have at most this number and, roughly, these bytes.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzzed_push(compression_type: i8, bytes: bytes::Bytes) -> Option<usize> {
    let request = PushTelemetryRequest { compression_type, metrics: bytes, ..Default::default() };
    let samples = read(&request).ok()?;
    assert!(samples.len() <= otlp::SAMPLES_MAX);
    let kept: usize = samples.iter().map(Sample::bytes).sum();
    // The last value may have all labels.
    assert!(kept <= otlp::PUSH_BYTES_MAX + 2 * TELEMETRY_BYTES_MAX, "{kept} bytes");
    Some(samples.len())
}

fn codec_of(id: i8) -> Option<Compression> {
    if id == Compression::None as i8 {
        return Some(Compression::None);
    }
    CODECS.into_iter().find(|codec| *codec as i8 == id)
}

fn read(request: &PushTelemetryRequest) -> Result<Vec<Sample>, ErrorCode> {
    let codec = codec_of(request.compression_type).ok_or(ErrorCode::UnsupportedCompressionType)?;
    if request.metrics.is_empty() {
        return Ok(Vec::new());
    }
    if codec == Compression::None {
        return otlp::samples(&request.metrics).ok_or(ErrorCode::InvalidRecord);
    }
    match decompress(codec, &request.metrics, TELEMETRY_BYTES_MAX) {
        Ok(bytes) => otlp::samples(&bytes).ok_or(ErrorCode::InvalidRecord),
        Err(CompressError::TooLarge { .. }) => Err(ErrorCode::TelemetryTooLarge),
        Err(_) => Err(ErrorCode::InvalidRecord),
    }
}
