//! The core's decisions about a topic that is deleted and created again: no runtime, no clock.

use super::action::EpochEnd;
use super::harness::*;
use super::tests::{question_of_next_leader, take_questions};
use super::*;
use crate::config::OffsetReset;
use crate::fetch::inbox::Item;

fn at(offset: i64) -> StartAt {
    StartAt::Offset(offset)
}

/// Records of the new topic before the position were skipped.
#[test]
fn a_topic_that_is_created_again_is_read_from_its_start() {
    let mut harness = Harness::new(&[at(0)]);
    let spec = harness.one_fetch();
    harness.answer(&spec, response(77, vec![records(0, 0, 10)]));
    harness.create_again(0);
    harness.update();
    assert!(
        take_questions(&mut harness).is_empty(),
        "the application has not read the records of the deleted topic"
    );
    assert_eq!(harness.poll_offsets(), [(0, 0, 10)]);
    harness.progress[0].set_done(10);
    let generation = harness.progress[0].generation();

    harness.now = harness.core.wake_at().expect("the end of the pause");
    harness.update();
    let questions = take_questions(&mut harness);
    assert_eq!(questions.iter().map(|(_, start)| *start).collect::<Vec<_>>(), [StartAt::Beginning]);
    harness.progress[0].set_done_in(generation, 10);
    assert_eq!(harness.progress[0].done(), None, "the next commit would be for other records");
    let answers = questions.into_iter().map(|(cursor, start)| (cursor, start, Ok(0))).collect();
    harness.answer_offsets(answers);
    assert_eq!(named(&harness.one_fetch()), [(0, 0)]);
}

#[test]
fn a_topic_that_is_created_again_is_an_error_without_resets() {
    let mut harness = Harness::new(&[at(7)]);
    harness.progress[0].set_reset(OffsetReset::Error);
    harness.update();
    harness.create_again(0);
    harness.update();
    let items = harness.poll_all();
    assert!(
        matches!(&items[..], [Item::Error(Error::LogTruncated { offset: 7, end: None, .. })]),
        "{items:?}"
    );
}

/// A seek is for the topic that exists.
#[test]
fn a_position_that_is_set_after_a_topic_is_created_again_stays() {
    let mut harness = Harness::new(&[at(0)]);
    harness.update();
    harness.fetches();
    harness.create_again(0);
    harness.seek(0, at(40));
    harness.pass(Duration::from_millis(10));
    let fetches: Vec<_> = harness.fetches().iter().flat_map(named).collect();
    assert_eq!(fetches, [(0, 40)]);
}

/// The new topic's leader answered the question about the deleted one.
#[test]
fn an_answer_about_an_epoch_leaves_the_position_in_the_deleted_topic() {
    let mut harness = Harness::new(&[at(0)]);
    let question = question_of_next_leader(&mut harness);
    assert_eq!(harness.poll_offsets(), [(0, 0, 10)]);
    harness.create_again(0);
    harness.answer_epoch_end(&question, Ok(EpochEnd::At(5)));
    harness.update();
    let questions = take_questions(&mut harness);
    assert_eq!(questions.iter().map(|(_, start)| *start).collect::<Vec<_>>(), [StartAt::Beginning]);
}
