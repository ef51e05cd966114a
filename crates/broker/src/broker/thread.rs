//! A broker in a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use super::control::{Control, ControlAnswer};
use super::current_cluster::CurrentCluster;
use super::listening::bootstrap_servers_of;
use super::{BrokerBuilder, Snapshot, SnapshotError, StartError, bootstrap_servers};
use crate::cluster::{AddNodeError, Cluster};

/// A broker with a thread and a runtime of its own, for programs and tests that have none. Stops when dropped.
#[derive(Debug)]
pub struct BrokerThread {
    current: CurrentCluster,
    addresses: Vec<SocketAddr>,
    /// The names of the listeners.
    listeners: Vec<String>,
    stop: watch::Sender<bool>,
    control: Control,
    runtime: tokio::runtime::Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The parts of a broker that has started in its thread.
struct Started {
    current: CurrentCluster,
    addresses: Vec<SocketAddr>,
    listeners: Vec<String>,
    control: Control,
}

impl BrokerBuilder {
    /// Starts the broker in a thread with a runtime of its own.
    pub fn spawn(self) -> Result<BrokerThread, StartError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let handle = runtime.handle().clone();
        let (started, starting) = std::sync::mpsc::channel();
        let (stop, mut stopping) = watch::channel(false);
        let run = move || {
            runtime.block_on(async move {
                match self.start().await {
                    Ok(mut broker) => {
                        let listeners = broker.listeners.iter().map(|(settings, _)| settings.name.clone());
                        let _ = started.send(Ok(Started {
                            current: broker.current.clone(),
                            addresses: broker.addresses.clone(),
                            listeners: listeners.collect(),
                            control: broker.control(),
                        }));
                        tokio::select! {
                            biased;
                            // An error means that the handle was dropped, which stops the broker as well.
                            _ = stopping.wait_for(|stop| *stop) => {}
                            _ = broker.serve_control() => {}
                        }
                        broker.stop().await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        };
        let thread =
            std::thread::Builder::new().name("ottla-broker".into()).spawn(run).map_err(StartError::Thread)?;
        match starting.recv() {
            Ok(Ok(Started { current, addresses, listeners, control })) => {
                let (runtime, thread) = (handle, Some(thread));
                Ok(BrokerThread { current, addresses, listeners, stop, control, runtime, thread })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StartError::Thread(io::Error::other("it ended at once"))),
        }
    }
}

impl BrokerThread {
    /// See [`Broker::bootstrap_servers`](crate::Broker::bootstrap_servers).
    pub fn bootstrap_servers(&self) -> String {
        bootstrap_servers(&self.cluster())
    }

    /// See [`Broker::bootstrap_servers_of`](crate::Broker::bootstrap_servers_of).
    pub fn bootstrap_servers_of(&self, listener: &str) -> Option<String> {
        bootstrap_servers_of(&self.cluster(), self.listeners.iter().map(String::as_str), listener)
    }

    /// See [`Broker::addresses`](crate::Broker::addresses).
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// See [`Broker::cluster`](crate::Broker::cluster).
    pub fn cluster(&self) -> Arc<Cluster> {
        self.current.get()
    }

    /// Adds a node to the running cluster, on an ephemeral port beside the first node, or a removed one again. Waits
    /// until it listens.
    ///
    /// # Errors
    /// See [`AddNodeError`].
    pub fn add_node(&self, id: i32) -> Result<(), AddNodeError> {
        let control = self.control.clone();
        self.block_on(|_| async move { control.add_node(id).await })
    }

    pub(crate) fn shared_control(&self) -> Control {
        self.control.clone()
    }

    /// Carries out a request of a control address, and waits for its answer: see [`Control::answer`]. Must not be called
    /// from asynchronous code.
    pub fn control(&self, method: &str, path: &str, body: &[u8]) -> ControlAnswer {
        let (control, method, path) = (self.control.clone(), method.to_owned(), path.to_owned());
        let body = body.to_owned();
        self.block_on(|_| async move { control.answer(&method, &path, &body).await })
    }

    /// See [`Broker::snapshot`](crate::Broker::snapshot).
    ///
    /// # Errors
    /// The same.
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        self.control.snapshot()
    }

    /// See [`Broker::restore`](crate::Broker::restore). Must not be called from asynchronous code.
    ///
    /// ```
    /// # use ottla_broker::Broker;
    /// let broker = Broker::builder().memory().topic("orders", 1).spawn()?;
    /// let prepared = broker.snapshot()?;
    /// let before = broker.bootstrap_servers();
    /// broker.cluster().add_topic("scratch", 1)?;
    /// broker.restore(&prepared)?;
    /// assert_eq!(broker.cluster().partitions_of("scratch"), None);
    /// assert_eq!(broker.bootstrap_servers(), before, "clients find it where it was");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The same.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let (control, snapshot) = (self.control.clone(), snapshot.clone());
        self.block_on(|_| async move { control.restore(snapshot).await })
    }

    /// See [`Broker::fork`](crate::Broker::fork). The fork has a thread of its own.
    ///
    /// # Errors
    /// The same.
    pub fn fork(&self) -> Result<BrokerThread, SnapshotError> {
        Ok(self.snapshot()?.builder().spawn()?)
    }

    /// Runs a future on the broker's thread, and waits for its result: periodic work that a test wants now, or a wait.
    /// Must not be called from asynchronous code, which can await the same calls of [`Cluster`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ottla_broker::{ApiKey, Broker};
    /// let broker = Broker::builder().memory().topic("orders", 1).spawn()?;
    /// let rolled = broker.block_on(|cluster| async move { cluster.roll_now("orders").await });
    /// assert_eq!(rolled, Ok(0), "there is nothing in it");
    /// let waited = broker.block_on(|cluster| async move {
    ///     cluster.wait_for_group("billing", "Stable", Duration::from_millis(20)).await
    /// });
    /// assert_eq!(waited.unwrap_err().found, "Dead");
    /// # Ok::<_, ottla_broker::StartError>(())
    /// ```
    pub fn block_on<T, F>(&self, work: impl FnOnce(Arc<Cluster>) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (done, result) = std::sync::mpsc::channel();
        let work = work(self.cluster());
        self.runtime.spawn(async move { done.send(work.await) });
        // The thread runs until this handle is dropped.
        result.recv().expect("the broker's thread runs as long as its handle lives")
    }

    /// Stops the broker and waits until its logs are closed.
    pub fn stop(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for BrokerThread {
    fn drop(&mut self) {
        self.shut();
    }
}
