//! The ends of requests that a test's [`ProduceHook`] replaces.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::{PartitionProduceResponse, ProduceResponse, TopicProduceResponse};

use super::{ProduceCore, RequestOutcome};
use crate::types::produce_hook::{ProduceEnd, ProduceHook, ReplacedEnd};

impl ProduceCore {
    /// The end of a request after the hook has seen it, for [`ProduceCore::on_response`].
    #[cold]
    pub(in crate::produce) fn replaced(
        &self,
        request: u64,
        node: i32,
        outcome: RequestOutcome,
        hook: &ProduceHook,
    ) -> RequestOutcome {
        let first = self.batches_of(request).next();
        // The application has purged all its batches.
        let Some((_, first)) = first else { return outcome };
        let error = match &outcome {
            RequestOutcome::Answered(_) => None,
            RequestOutcome::NotSent(error) | RequestOutcome::Lost(error) => Some(error),
        };
        let end = ProduceEnd { node, first_sequence: first.sealed.header.base_sequence, error };
        match hook.call(&end) {
            None => outcome,
            Some(ReplacedEnd::Code(code)) => RequestOutcome::Answered(self.answer_of(request, code)),
            Some(ReplacedEnd::Lost(error)) => RequestOutcome::Lost(error),
        }
    }

    /// A response with this error code for each batch of a request.
    fn answer_of(&self, request: u64, code: ErrorCode) -> ProduceResponse {
        let mut answer = ProduceResponse::default();
        for (partition, _) in self.batches_of(request) {
            let response = PartitionProduceResponse {
                index: partition.number,
                error_code: code,
                base_offset: -1,
                ..Default::default()
            };
            answer.responses.push(TopicProduceResponse {
                name: partition.topic.to_string(),
                partition_responses: vec![response],
                ..Default::default()
            });
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ottla_protocol::messages::produce::LeaderIdAndEpoch;

    use super::super::harness::{Producer, broken, response};
    use super::*;
    use crate::error::{Error, ProduceErrorKind};

    /// The ends that a hook has seen: node, sequence, and `true` with a response.
    type Seen = Arc<Mutex<Vec<(i32, i32, bool)>>>;

    /// A hook that replaces every end by this one.
    fn hook(seen: &Seen, by: Option<ReplacedEnd>) -> ProduceHook {
        let seen = seen.clone();
        ProduceHook::new(move |end| {
            seen.lock().expect("no panic").push((end.node, end.first_sequence, end.error.is_none()));
            by.clone()
        })
    }

    #[test]
    fn a_hook_sees_each_end_and_can_lose_a_response() {
        let seen = Seen::default();
        let mut producer = Producer::with_id(1, &[]);
        producer.produce_full(0, &[1, 2], 100);
        producer.poll();
        let request = producer.sent.pop_front().expect("a request");
        let no_hint = LeaderIdAndEpoch { leader_id: -1, leader_epoch: -1 };
        let answered =
            RequestOutcome::Answered(response(&request, |_| (ErrorCode::None, 7, no_hint.clone())));
        let lose = hook(&seen, Some(ReplacedEnd::Lost(broken())));
        let outcome = producer.core.replaced(request.id, request.node, answered, &lose);
        producer.finish(&request, outcome);
        assert!(producer.outcomes.is_empty(), "the batch goes again");
        producer.advance(2000);
        producer.poll();
        let again = producer.sent.pop_front().expect("a retry");
        assert_eq!(again.ids(), [1, 2]);
        let lost = RequestOutcome::Lost(Error::Closed);
        let outcome = producer.core.replaced(again.id, again.node, lost, &hook(&seen, None));
        assert!(matches!(outcome, RequestOutcome::Lost(Error::Closed)), "{outcome:?}");
        assert_eq!(*seen.lock().expect("no panic"), [(1, 0, true), (1, 0, false)]);
    }

    #[test]
    fn a_code_of_a_hook_is_the_answer_for_every_batch() {
        let seen = Seen::default();
        let mut producer = Producer::with_id(2, &[]);
        producer.produce_full(0, &[1], 100);
        producer.produce_full(1, &[2], 100);
        producer.poll();
        let request = producer.sent.pop_front().expect("a request");
        assert_eq!(request.ids().len(), 2, "both partitions are in it");
        let refuse = hook(&seen, Some(ReplacedEnd::Code(ErrorCode::InvalidRecord)));
        let lost = RequestOutcome::Lost(Error::Closed);
        let outcome = producer.core.replaced(request.id, request.node, lost, &refuse);
        producer.finish(&request, outcome);
        for id in [1, 2] {
            let kind = &producer.error(id).kind;
            let is_refused = matches!(kind, ProduceErrorKind::Broker { code: ErrorCode::InvalidRecord, .. });
            assert!(is_refused, "{kind:?}");
        }
        assert_eq!(seen.lock().expect("no panic").len(), 1, "one call for a request");
    }
}
