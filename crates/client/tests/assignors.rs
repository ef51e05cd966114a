//! Assignors compared with the results of Java's for the same groups, recorded by `interop/tests/assignors.rs`.

use crate::assignor_cases::{read_answers, read_cases};

const RECORDED: &str = include_str!("data/assignors.txt");

#[test]
fn assignors_answer_as_java_recorded() {
    let (cases, answers) = (read_cases(RECORDED), read_answers(RECORDED));
    assert!(cases.len() >= 50, "{} groups", cases.len());
    for case in &cases {
        for (name, (assignment, user_data)) in case.answer() {
            let (theirs, their_data) = &answers[&case.number][&name];
            assert_eq!(&user_data, their_data, "{name}'s user data\n{}", case.to_text());
            assert_eq!(&assignment, theirs, "{name}\n{}", case.to_text());
        }
    }
}
