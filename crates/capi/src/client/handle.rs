//! `rd_kafka_t`: a producer or a consumer, and the functions for the client as a whole.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ottla_client::{Client, Config, Error, GroupHabits, Metadata, Producer, Rebalance, TopicPartition};

use crate::admin::PendingRequests;
pub use crate::client::client_errors::{rd_kafka_fatal_error, rd_kafka_test_fatal_error};
use crate::client::client_interceptors::InterceptorSetup;
pub use crate::client::destroy::{rd_kafka_destroy, rd_kafka_destroy_flags};
use crate::client::log_routing::{EarlyLogLines, LogRouter};
use crate::client::oauth_tokens::{OauthTokens, uses_tokens};
use crate::client::role::Role;
use crate::client::socket_callbacks::ApplicationSockets;
use crate::client::statistics;
use crate::client::thread_count::{Counted, LivingClient};
use crate::client::topic_handle::{Topic, TopicRegistry};
use crate::conf::{Callbacks, ClientConf, TakenConf, rd_kafka_conf_t};
use crate::consume::consumer_state::ConsumerState;
use crate::errors::error_object::set_last_error_and_errno;
use crate::ffi::c_strings::{c_string, malloced, write_errstr};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable, as_pointer};
use crate::handles::slot_table::InUse;
#[cfg(feature = "mock")]
use crate::mock::MockCluster;
use crate::produce::delivery_reports::DeliveryReports;
use crate::produce::transaction_calls::TransactionCalls;
use crate::queue::background_thread::BackgroundQueue;
use crate::queue::op::Op;
use crate::queue::op_queue::OpQueue;

/// Default time limit of a close for leaving the group and for commits.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The level of an error in log lines, as in syslog.
pub(crate) const LOG_ERR: u8 = 3;
/// The level of a warning.
pub(crate) const LOG_WARNING: u8 = 4;
/// The names of the client types, indexed by `rd_kafka_type_t`.
const NAMES: [&str; 2] = ["producer", "consumer"];

/// A client as C sees it.
pub(crate) struct Handle {
    /// The value of C's `rd_kafka_t *`.
    id: u64,
    pub(crate) kind: rd_kafka_type_t,
    pub(crate) name: CString,
    pub(crate) callbacks: Callbacks,
    pub(crate) config: Arc<Config>,
    live: OnceLock<Live>,
    topics: Mutex<TopicRegistry>,
    /// The main queue: all operations except fetched records, rebalances and errors of the consumer.
    pub(crate) main: Arc<OpQueue>,
    pub(crate) logs: LogRouter,
    pub(crate) client_interceptors: InterceptorSetup,
    /// The application has a callback or an event for delivery reports.
    pub(crate) reports: bool,
    background: Mutex<BackgroundQueue>,
    pub(crate) fatal: OnceLock<(rd_kafka_resp_err_t, String)>,
    pub(crate) is_share_consumer: bool,
    /// Returns the assignment of the share consumer that owns this client.
    pub(crate) share_assignment: OnceLock<AssignmentSource>,
    /// The time is that of the answer.
    cluster: Mutex<Option<((String, i32), Instant)>>,
    pub(super) ending: AtomicBool,
    /// Counts the engine's thread.
    engine_thread: Mutex<Option<Counted>>,
    warned_of_acks: AtomicBool,
    /// Pending admin requests.
    pub(crate) admin: PendingRequests,
    pub(crate) transaction_calls: TransactionCalls,
    /// The value of [`FORKS`] when the client was created, or [`DESTROYED`].
    forks: AtomicU32,
    tokens: Option<Arc<OauthTokens>>,
    /// The queue of token requests of a client that makes none.
    idle_sasl_queue: OnceLock<Arc<OpQueue>>,
    conf: ClientConf,
    /// `test.mock.num.brokers`; stops after everything else.
    #[cfg(feature = "mock")]
    pub(crate) mock: Option<Box<MockCluster>>,
    _living: LivingClient,
}

/// A function that returns assigned partitions.
type AssignmentSource = Box<dyn Fn() -> Vec<TopicPartition> + Send + Sync>;

/// The running client, with its producer or its consumer.
struct Live {
    client: Client,
    producer: Option<Producer>,
    consuming: Option<Arc<ConsumerState>>,
    /// Reports for the queue or, without a function of the application for them, for interceptors.
    reports: Option<Arc<DeliveryReports>>,
}

/// The number of forks from which this process descends: a child has none of the parent's threads.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The value of `forks` in a client that the application has destroyed.
const DESTROYED: u32 = u32::MAX;

static CLIENTS: HandleTable<Handle> = HandleTable::new(HandleKind::Client);

#[on_panic(())]
extern "C" fn on_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Registers the count of forks once for the process.
fn count_forks() {
    static ONCE: Once = Once::new();
    // SAFETY: the function only counts.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(on_fork_in_child));
    });
}

impl Handle {
    /// Returns the client, unless it is destroyed or was created by a parent of this process. `function` is the name for
    /// the report about a destroyed client.
    #[inline]
    pub(crate) fn of(rk: *const rd_kafka_t, function: &str) -> Option<InUse<Self>> {
        CLIENTS.find(rk, function).filter(|handle| handle.is_usable())
    }

    /// Returns `false` after the client was destroyed, and in the child of a fork.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        self.forks.load(Ordering::Relaxed) == FORKS.load(Ordering::Relaxed)
    }

    /// The number of forks from which this process descends. An object that has another number belongs to a parent.
    #[inline]
    pub(crate) fn forks() -> u32 {
        FORKS.load(Ordering::Relaxed)
    }

    /// Returns the client with an additional reference, for calls that take long.
    pub(crate) fn shared(rk: *const rd_kafka_t, function: &str) -> Option<Arc<Self>> {
        Self::of(rk, function).map(|handle| handle.shared())
    }

    /// Returns C's pointer to the client.
    pub(crate) fn raw(&self) -> *mut rd_kafka_t {
        as_pointer(self.id)
    }

    pub(crate) fn new(
        role: Role,
        conf: Box<rd_kafka_conf_t>,
    ) -> Result<Arc<Self>, (Box<rd_kafka_conf_t>, Error)> {
        count_forks();
        let (kind, callbacks) = (role.kind(), *conf.callbacks());
        let later: Arc<EarlyLogLines> = Arc::default();
        let mut config = Self::client_config(kind, &conf, &callbacks);
        if let Err(error) = role.apply(&conf, &mut config) {
            return Err((conf, error));
        }
        let name = config.name.clone().unwrap_or_default();
        let reports = wants_reports(&callbacks);
        config.log_callback = Some(EarlyLogLines::callback(&later));
        let logs =
            LogRouter::new(&config, &callbacks, conf.get("log.thread.name").as_deref() != Some("false"));
        let tokens = crate::client::oauth_tokens::install(&mut config, &callbacks);
        let judging = crate::client::cert_verify::install(&mut config, &callbacks);
        #[cfg(feature = "mock")]
        let mock = match MockCluster::of_conf(&conf, &mut config) {
            Ok(mock) => mock,
            Err(error) => return Err((conf, error)),
        };
        let Some(reserved) = CLIENTS.reserve() else {
            return Err((conf, Error::Config("too many clients exist: destroy some first".into())));
        };
        crate::client::produce_hook::install(&mut config, &callbacks, reserved.handle());
        let has_interceptors = !conf.interceptors().on_new.is_empty();
        let client = match ApplicationSockets::wanted(&callbacks, &config, has_interceptors) {
            Some(sockets) => Client::with_connector(config, sockets),
            None => Client::new(config),
        };
        let client = match client {
            Ok(client) => client,
            Err(error) => return Err((conf, error)),
        };
        let handle = Arc::new(Self {
            id: reserved.handle(),
            kind,
            name: c_string(&name),
            callbacks,
            config: client.config().clone(),
            live: OnceLock::new(),
            topics: Mutex::default(),
            main: OpQueue::new(),
            logs,
            client_interceptors: InterceptorSetup::default(),
            reports,
            background: Mutex::default(),
            fatal: OnceLock::new(),
            is_share_consumer: role == Role::ShareConsumer,
            share_assignment: OnceLock::new(),
            cluster: Mutex::default(),
            ending: AtomicBool::new(false),
            engine_thread: Mutex::new(Some(Counted::new())),
            warned_of_acks: AtomicBool::new(false),
            transaction_calls: TransactionCalls::default(),
            admin: PendingRequests::default(),
            forks: AtomicU32::new(FORKS.load(Ordering::Relaxed)),
            tokens,
            idle_sasl_queue: OnceLock::new(),
            conf: ClientConf::new(conf),
            #[cfg(feature = "mock")]
            mock,
            _living: LivingClient::new(),
        });
        reserved.publish(handle.clone());
        #[cfg(feature = "mock")]
        if let Some(mock) = &handle.mock {
            mock.set_client(handle.raw());
        }
        later.set(&handle);
        handle.warn_of_conf(role);
        let _ = judging.set(Arc::downgrade(&handle));
        handle.begin(client, role);
        Ok(handle)
    }

    /// The configuration of the engine, with the properties that the C interface decides.
    fn client_config(kind: rd_kafka_type_t, conf: &rd_kafka_conf_t, callbacks: &Callbacks) -> Config {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut config = conf.client_config();
        let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
        config.name =
            Some(format!("{}#{}-{number}", config.client_id, NAMES[usize::from(kind == RD_KAFKA_CONSUMER)]));
        config.init_line = Some(crate::client::log_routing::init_line(&config));
        config.done_when_returned = true;
        config.refuse_forbidden_topics = true;
        config.group_habits = GroupHabits::Librdkafka;
        config.retry_admin_codes = false;
        config.abort_out_of_order = true;
        config.metrics_push_jitter = 0.2;
        config.bootstrap_later = true;
        config.connect_to_learned_broker = true;
        config.name_failures = true;
        // As in the original, whose default depends on the kind of client.
        config.allow_auto_create_topics |=
            kind == RD_KAFKA_PRODUCER && !config.is_set("allow.auto.create.topics");
        let hooked = !conf.interceptors().on_new.is_empty();
        config.delivery_reports = kind == RD_KAFKA_PRODUCER && (wants_reports(callbacks) || hooked);
        config.delivery_report_records = config.delivery_reports;
        // As in the original, interceptors get every acknowledgement; see [`Self::hides_successes`].
        config.delivery_report_only_error &= !hooked;
        let application = callbacks.rebalance.is_some() || callbacks.events & RD_KAFKA_EVENT_REBALANCE != 0;
        config.rebalance = if application { Rebalance::Application } else { Rebalance::Silent };
        config
    }

    /// Connects the engine's events to the queues, and the engine to the cluster.
    fn begin(self: &Arc<Self>, client: Client, role: Role) {
        self.client_interceptors.run(self);
        if let Some(tokens) = &self.tokens {
            tokens.set_queue(if self.callbacks.sasl_queue { OpQueue::new() } else { self.main.clone() });
        }
        if let Some(topic) = self.conf.default_topic() {
            self.warn_of_acks(topic);
        }
        self.listen(&client);
        // Connects at once, so that unreachable brokers are reported before the first message.
        client.connect();
        let live = self.live_parts(client, role);
        if let Some(interceptors) = self.client_interceptors.get() {
            interceptors.engine_started(self, &live.client);
        }
        let _ = self.live.set(live);
        if self.callbacks.background_event.is_some() {
            self.background_or_start();
        }
    }

    /// Returns `true` if only interceptors get the reports of successes.
    fn hides_successes(&self) -> bool {
        let only_errors = self.conf().get("delivery.report.only.error");
        only_errors.as_deref() == Some("true") && !self.conf().interceptors().on_new.is_empty()
    }

    /// Returns the producer or the consumer of a new client and connects its results to the queue.
    fn live_parts(self: &Arc<Self>, client: Client, role: Role) -> Live {
        let mut live = Live { client, producer: None, consuming: None, reports: None };
        if role == Role::Producer {
            let producer = live.client.producer();
            let main = Arc::downgrade(&self.main);
            producer.on_settled(move || {
                if let Some(main) = main.upgrade() {
                    main.ring();
                }
            });
            if let Ok(told) = producer.reports() {
                live.reports = Some(if self.reports {
                    let reports = if self.hides_successes() {
                        DeliveryReports::of_failures(told, &self.main, self)
                    } else {
                        DeliveryReports::new(told, &self.main)
                    };
                    self.main.set_source(Some(reports.clone()));
                    reports
                } else {
                    DeliveryReports::to_interceptors(told, self)
                });
            }
            live.producer = Some(producer);
        } else if role == Role::Consumer {
            live.consuming = Some(ConsumerState::new(self, &live.client));
        }
        live
    }

    /// Sends the client's notifications to the queue.
    fn listen(self: &Arc<Self>, client: &Client) {
        let stats = self.callbacks.stats.is_some() || self.callbacks.events & RD_KAFKA_EVENT_STATS != 0;
        if stats {
            let handle = Arc::downgrade(self);
            client.statistics().on_each(move |snapshot| {
                if let Some(handle) = handle.upgrade() {
                    handle.main.push(Op::Stats(c_string(&statistics::shown(&handle, &snapshot))));
                }
            });
        }
        if self.callbacks.throttle.is_some() {
            let main = Arc::downgrade(&self.main);
            client.throttles().on_each(move |told| {
                if let Some(main) = main.upgrade() {
                    main.push(Op::Throttled(told));
                }
            });
        }
        if let Some(interceptors) = self.client_interceptors.get() {
            interceptors.listen(self, client);
        }
        // The log has the failures that no function and no event reports.
        if self.kind == RD_KAFKA_CONSUMER {
            let handle = Arc::downgrade(self);
            client.auto_commits().on_each(move |told| {
                if let Some(handle) = handle.upgrade() {
                    crate::consume::offsets::tell_unasked(&handle, told);
                }
            });
        }
        let handle = Arc::downgrade(self);
        client.errors().on_each(move |error| {
            if let Some(handle) = handle.upgrade() {
                handle.tell_error(&error);
            }
        });
    }

    /// Returns `true` if the application has a callback or an event for automatic commits.
    pub(crate) fn tells_automatic_commits(&self) -> bool {
        self.callbacks.offset_commit.is_some() || self.callbacks.events & RD_KAFKA_EVENT_OFFSET_COMMIT != 0
    }

    /// Logs a line of this library.
    pub(crate) fn log(&self, level: u8, facility: &CStr, text: &str) {
        self.logs.say(self, level, facility, text);
    }

    /// Warns once of a number of acknowledgements that counts as `all`.
    pub(crate) fn warn_of_acks(&self, topic: &rd_kafka_topic_conf_t) {
        if let Some(acks) = topic.acks_above_one()
            && !self.warned_of_acks.swap(true, Ordering::Relaxed)
        {
            let text = format!("acks={acks}: brokers since 0.9 refuse numbers above 1; acks=all is used");
            self.log(LOG_WARNING, c"CONFWARN", &text);
        }
    }

    pub(crate) fn client(&self) -> Option<&Client> {
        self.live.get().map(|live| &live.client)
    }

    #[inline]
    pub(crate) fn producer(&self) -> Option<&Producer> {
        self.live.get()?.producer.as_ref()
    }

    #[inline]
    pub(crate) fn consumer_state(&self) -> Option<&Arc<ConsumerState>> {
        self.live.get()?.consuming.as_ref()
    }

    pub(crate) fn topics(&self) -> MutexGuard<'_, TopicRegistry> {
        lock(&self.topics)
    }

    pub(crate) fn topic(self: &Arc<Self>, name: &str) -> Arc<Topic> {
        self.topics().get(self, name)
    }

    /// The configuration of topics without their own, if it has a partitioner or an opaque.
    pub(crate) fn default_topic(&self) -> Option<&rd_kafka_topic_conf_t> {
        self.conf.default_topic().filter(|topic| topic.partitioner.is_some() || !topic.opaque.is_null())
    }

    pub(crate) fn conf(&self) -> &rd_kafka_conf_t {
        &self.conf
    }

    /// The number of records without a report, and of operations that the application has not served.
    pub(crate) fn unreported(&self) -> usize {
        self.producer().map_or(0, Producer::unsettled_records) + self.main.ops()
    }

    /// C's pointer to the client's configuration.
    pub(crate) fn conf_raw(&self) -> *const rd_kafka_conf_t {
        self.conf.raw()
    }

    /// The background queue, whose thread calls the application.
    pub(crate) fn background_or_start(self: &Arc<Self>) -> Arc<OpQueue> {
        lock(&self.background).get_or_start(self)
    }

    /// Token requests to the application, if it provides tokens.
    pub(crate) fn tokens(&self) -> Option<&Arc<OauthTokens>> {
        self.tokens.as_ref()
    }

    /// The queue of token requests, if the application has one for them. It exists also if the client has another source of tokens.
    pub(crate) fn sasl_queue(&self) -> Option<Arc<OpQueue>> {
        if !self.callbacks.sasl_queue {
            return None;
        }
        match &self.tokens {
            Some(tokens) => tokens.queue(),
            None if uses_tokens(&self.config) => Some(self.idle_sasl_queue.get_or_init(OpQueue::new).clone()),
            None => None,
        }
    }

    /// Begins the end of the client. Returns `false` if that was done before.
    pub(crate) fn begin_end(&self) -> bool {
        if self.ending.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.logs.end_calls();
        self.admin.cancel();
        true
    }

    /// Closes the queues, ends the background thread and the handle, after a consumer has left its group.
    pub(crate) fn end(self: &Arc<Self>) {
        let background = lock(&self.background).end();
        drop(background);
        self.main.close();
        if let Some(queue) = self.sasl_queue() {
            queue.close();
        }
        if let Some(consuming) = self.consumer_state() {
            consuming.end();
        }
        if let (Some(interceptors), Some(client)) = (self.client_interceptors.get(), self.client()) {
            interceptors.engine_ends(self, client);
        }
        // Functions of the application run in the engine's thread. Their opaque is valid until they have returned.
        if let Some(client) = self.client() {
            client.stop();
        }
        if let Some(reports) = self.live.get().and_then(|live| live.reports.as_ref()) {
            reports.free_rest();
        }
        lock(&self.engine_thread).take();
        if let Some(interceptors) = self.client_interceptors.get() {
            interceptors.on_destroy(self);
        }
        self.logs.set_queue(None);
        let topics = self.topics().end();
        drop(topics);
        self.forks.store(DESTROYED, Ordering::Relaxed);
        CLIENTS.retire(self.id);
    }
}

/// Returns `true` if the application has a callback or an event for delivery reports.
fn wants_reports(callbacks: &Callbacks) -> bool {
    callbacks.dr_msg.is_some() || callbacks.dr.is_some() || callbacks.events & RD_KAFKA_EVENT_DR != 0
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_new(
    type_: rd_kafka_type_t,
    conf: *mut rd_kafka_conf_t,
    errstr: *mut c_char,
    errstr_size: usize,
) -> *mut rd_kafka_t {
    let refused = |text: &str| {
        // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_new`).
        unsafe { write_errstr(errstr, errstr_size, text) };
        set_last_error_and_errno(RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL);
        null_mut()
    };
    let Some(role) = Role::of(type_) else {
        return refused("no such type: RD_KAFKA_PRODUCER or RD_KAFKA_CONSUMER");
    };
    let taken = if conf.is_null() {
        Some((rd_kafka_conf_t::new(), TakenConf::default()))
    } else {
        rd_kafka_conf_t::take(conf, FUNCTION)
    };
    let Some((conf, taken)) = taken else {
        return refused(
            "the configuration belongs to another client or is destroyed: give each client its own",
        );
    };
    match Handle::new(role, conf) {
        Ok(handle) => {
            taken.ended();
            handle.raw()
        }
        Err((conf, error)) => {
            // The application keeps the configuration.
            taken.give_back(conf);
            match &error {
                Error::Config(text) => refused(&crate::client::creation_checks::refusal(text)),
                other => refused(&other.to_string()),
            }
        }
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_name(rk: *const rd_kafka_t) -> *const c_char {
    Handle::of(rk, FUNCTION).map_or(null(), |handle| handle.name.as_ptr())
}

#[on_panic(RD_KAFKA_PRODUCER)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_type(rk: *const rd_kafka_t) -> rd_kafka_type_t {
    Handle::of(rk, FUNCTION).map_or(RD_KAFKA_PRODUCER, |handle| handle.kind)
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_opaque(rk: *const rd_kafka_t) -> *mut c_void {
    Handle::of(rk, FUNCTION).map_or(null_mut(), |handle| handle.callbacks.opaque)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf(rk: *mut rd_kafka_t) -> *const rd_kafka_conf_t {
    Handle::of(rk, FUNCTION).map_or(null(), |handle| handle.conf_raw())
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_memberid(rk: *const rd_kafka_t) -> *mut c_char {
    let handle = Handle::of(rk, FUNCTION);
    let metadata = handle
        .as_deref()
        .and_then(Handle::consumer_state)
        .and_then(|consuming| consuming.group_metadata().ok());
    metadata.map_or(null_mut(), |metadata| malloced(&c_string(&metadata.member_id)))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_clusterid(rk: *mut rd_kafka_t, timeout_ms: c_int) -> *mut c_char {
    let handle = Handle::of(rk, FUNCTION);
    // It never changes.
    let cluster = handle.and_then(|handle| handle.known_cluster().or_else(|| handle.ask_cluster(timeout_ms)));
    cluster.map_or(null_mut(), |(id, _)| malloced(&c_string(&id)))
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_controllerid(rk: *mut rd_kafka_t, timeout_ms: c_int) -> i32 {
    let Some(handle) = Handle::of(rk, FUNCTION) else { return -1 };
    // With KRaft every broker may name another one.
    let max_age = handle.config.metadata_max_age;
    let is_fresh = lock(&handle.cluster).as_ref().is_some_and(|(_, at)| at.elapsed() < max_age);
    let fresh = handle.known_cluster().filter(|_| is_fresh);
    let cluster = fresh.or_else(|| handle.ask_cluster(timeout_ms)).or_else(|| handle.known_cluster());
    cluster.map_or(-1, |(_, controller)| controller)
}

impl Handle {
    /// The cluster's id and controller from the last metadata response.
    fn known_cluster(&self) -> Option<(String, i32)> {
        let known = lock(&self.cluster).as_ref().map(|(cluster, _)| cluster.clone());
        known.filter(|_| self.brokers_name_cluster())
    }

    /// Returns `false` if the application says that the brokers are too old to name their cluster: this came with
    /// version 0.10.1.
    fn brokers_name_cluster(&self) -> bool {
        let fallback = || self.conf().get("broker.version.fallback").unwrap_or_default();
        let is_old = |version: &str| {
            let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
            let numbers = [(); 3].map(|()| numbers.next().unwrap_or(0));
            numbers < [0, 10, 1]
        };
        self.config.net.api_version_request || !is_old(&fallback())
    }

    fn ask_cluster(&self, timeout_ms: c_int) -> Option<(String, i32)> {
        let timeout = crate::queue::op_queue::timeout_of(timeout_ms).unwrap_or(self.config.socket_timeout);
        let told = self.client()?.metadata_blocking(Some(&[]), timeout).ok()?;
        self.note_cluster(&told);
        self.known_cluster()
    }

    /// Stores the cluster's metadata, because a later call may have no time to request it.
    pub(crate) fn note_cluster(&self, told: &Metadata) {
        if let Some(id) = &told.cluster_id {
            *lock(&self.cluster) = Some(((id.clone(), told.controller), Instant::now()));
        }
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_outq_len(rk: *mut rd_kafka_t) -> c_int {
    let Some(handle) = Handle::of(rk, FUNCTION) else { return 0 };
    c_int::try_from(handle.unreported()).unwrap_or(c_int::MAX)
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
