//! The facts that the core asks for, taken from queues, metadata and connections.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::cluster::metadata::TopicLayout;
use crate::net::connection::Connection;
use crate::produce::Produce;
use crate::produce::core::{Environment, LinkState, TopicState};
use crate::produce::queue::{OpenBatch, Queue, Waiting};

/// Everything around the core.
pub(super) struct Surroundings<'a> {
    pub(super) queues: &'a [Arc<Queue>],
    pub(super) produce: &'a Produce,
    pub(super) cluster: &'a Cluster,
    pub(super) connections: &'a FxHashMap<i32, Rc<Connection>>,
}

impl Environment for Surroundings<'_> {
    fn take(&mut self, index: usize, accepts: &mut dyn FnMut(&Waiting) -> bool) -> Option<OpenBatch> {
        self.queues[index].take_if(accepts)
    }

    fn unlist_if_empty(&mut self, index: usize) -> bool {
        self.queues[index].unlist_if_empty(&self.produce.queues)
    }

    fn retire_older(&mut self, index: usize, then: Instant) {
        self.queues[index].retire_older(then, &self.produce.queues);
    }

    fn is_paused(&self, index: usize) -> bool {
        self.queues[index].is_paused()
    }

    fn leader(&self, index: usize) -> Option<i32> {
        let queue = &self.queues[index];
        let leader = self.cluster.leader(&queue.topic, queue.partition);
        if leader.is_none() {
            // Records wait for the topic.
            self.cluster.want(&queue.topic);
        }
        leader
    }

    fn link(&self, node: i32) -> LinkState {
        let Some(connection) = self.connections.get(&node).filter(|connection| connection.is_open()) else {
            return LinkState::Closed;
        };
        let requests_max = self.produce.config.queue_buffering_backpressure_threshold;
        if connection.is_backed_up(requests_max, &self.produce.queues.wake) {
            LinkState::BackedUp
        } else {
            LinkState::Open
        }
    }

    fn topic(&self, index: usize) -> Option<TopicState> {
        let topic = &self.queues[index].topic;
        let layout = self.cluster.topic(topic);
        if !layout.as_ref().is_some_and(TopicLayout::is_whole) {
            self.cluster.want(topic);
        }
        let layout = layout?;
        let (partitions, responses) = (layout.partitions.len(), layout.responses);
        Some(TopicState { error: layout.error, partitions, responses })
    }

    fn unsent_reason(&self, index: usize, waited: Duration) -> String {
        if self.is_paused(index) {
            return "the application has paused the partition".to_owned();
        }
        match self.cluster.topic(&self.queues[index].topic).map(|layout| layout.error) {
            Some(ErrorCode::None) => "the partition has no leader that can be reached".to_owned(),
            Some(code) => code.to_string(),
            None => self.cluster.brokers.unreachable(waited).to_string(),
        }
    }
}
