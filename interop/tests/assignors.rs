//! Compares our assignors with Java's on random groups. Members join, leave, return late and change subscriptions,
//! topics grow, and replicas have racks.
//!
//! With `OTTLA_RECORD=FILE` the first groups and Java's answers are written to a file, as vectors for the client's
//! tests.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

#[path = "../../crates/client/tests/assignor_cases/mod.rs"]
mod assignor_cases;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use assignor_cases::{Answers, Case, assignors, read_answers};
use fastrand::Rng;
use ottla_client::TopicPartition;
use ottla_client::assignor::{Assignment, Member};
use ottla_interop::{Failure, Peer, java_tool, require, workspace_root};

const CHAINS: usize = 400;
const CHAIN_LENGTH: usize = 4;
const RECORDED: usize = 80;

/// Member ids: in the iteration order of Java's `HashMap`, or random.
const IN_ORDER: [&str; 9] = ["A", "B", "C", "D", "E", "F", "G", "H", "I"];

#[test]
fn assignors_agree_with_javas() -> Result<(), Failure> {
    require!(Peer::Java);
    let cases = cases();
    let text: String = cases.iter().map(Case::to_text).collect();
    let program = workspace_root().join("interop/java/Assignors.java");
    let output = java_tool(&program.to_string_lossy(), &[], text.as_bytes())?.succeeded()?.stdout_text();
    let theirs = read_answers(&output);
    assert_eq!(theirs.len(), cases.len());
    let mut differences = BTreeMap::new();
    for case in &cases {
        compare(case, &case.answer(), &theirs[&case.number], &mut differences);
    }
    println!("{} groups; sticky answers that differ: {differences:?}", cases.len());
    // Java's choice among equals depends on the memory layout of its sets.
    for (name, count) in &differences {
        assert!(count * 20 < cases.len(), "{name} differs from Java in {count} groups of {}", cases.len());
    }
    if let Ok(path) = std::env::var("OTTLA_RECORD") {
        record(&path, &cases, &output, &theirs);
    }
    Ok(())
}

/// Range and round robin must be equal. Sticky assignments may differ, but must be as even and as sticky.
fn compare(case: &Case, ours: &Answers, theirs: &Answers, differences: &mut BTreeMap<String, usize>) {
    for (name, (assignment, user_data)) in ours {
        let (expected, their_data) = &theirs[name];
        assert_eq!(user_data, their_data, "{name}'s user data\n{}", case.to_text());
        check(case, name, assignment);
        if assignment == expected {
            continue;
        }
        let what = format!("{name}\n{}ours {assignment:?}\ntheirs {expected:?}", case.to_text());
        assert!(name.contains("sticky"), "{what}");
        assert!(unevenness(assignment) <= unevenness(expected), "less even: {what}");
        if is_in_order(case) {
            *differences.entry(name.clone()).or_default() += 1;
        }
    }
}

/// No partition has two owners or an owner without a subscription. All partitions are assigned, except those that
/// must be revoked first.
fn check(case: &Case, name: &str, assignment: &Assignment) {
    let mut seen = BTreeSet::new();
    for (id, partitions) in assignment {
        for at in partitions {
            assert!(seen.insert(at.clone()), "{name} gives {at} twice\n{}", case.to_text());
            assert!(case.members[id].topics.contains(&at.topic), "{name}: {id} did not ask for {at}");
        }
    }
    for (topic, partitions) in &case.topics {
        if !case.members.values().any(|member| member.topics.contains(topic)) {
            continue;
        }
        for partition in 0..partitions.len() {
            let at = TopicPartition::new(topic, partition as i32);
            let owned = || case.members.values().any(|member| member.owned.contains(&at));
            assert!(
                seen.contains(&at) || (name == "cooperative-sticky" && owned()),
                "{name} leaves out {at}\n{}",
                case.to_text()
            );
        }
    }
}

fn unevenness(assignment: &Assignment) -> usize {
    let loads: Vec<usize> = assignment.values().map(Vec::len).collect();
    loads.iter().map(|a| loads.iter().map(|b| a.abs_diff(*b)).sum::<usize>()).sum()
}

fn is_in_order(case: &Case) -> bool {
    case.members.keys().all(|id| IN_ORDER.contains(&id.as_str()))
}

fn record(path: &str, cases: &[Case], output: &str, theirs: &BTreeMap<usize, Answers>) {
    let answers: Vec<&str> = output.split_inclusive("end\n").collect();
    let mut text = String::new();
    let exact = cases.iter().zip(answers).filter(|(case, _)| case.answer() == theirs[&case.number]);
    for (case, answer) in exact.step_by(7).take(RECORDED) {
        let answer = answer.split_once('\n').map_or("", |(_, rest)| rest);
        text += case.to_text().strip_suffix("end\n").unwrap_or_default();
        text += answer;
    }
    std::fs::write(workspace_root().join(path), text).expect("written");
}

/// Sequences of groups: each group is a change of the previous one.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for chain in 0..CHAINS {
        let mut rng = Rng::with_seed(chain as u64);
        let mut case = beginning(&mut rng, chain % 4 != 3);
        for step in 0..CHAIN_LENGTH {
            case.number = cases.len();
            cases.push(case.clone());
            let sticky = &assignors()[2 + chain % 2];
            let assignment = case.answer()[sticky.name()].0.clone();
            case = change(&mut rng, case, &assignment, step as i32 + 1);
        }
    }
    cases
}

fn beginning(rng: &mut Rng, in_order: bool) -> Case {
    let mut case = Case::default();
    let racks = rng.bool();
    for topic in 0..rng.usize(1..=4) {
        let partitions = (0..rng.usize(1..=12)).map(|_| replicas(rng, racks)).collect();
        case.topics.insert(format!("t{topic}").into(), partitions);
    }
    let equal = rng.bool();
    let topics = subscription(rng, &case);
    for name in IN_ORDER.iter().take(rng.usize(1..=6)) {
        let id = if in_order { (*name).to_owned() } else { format!("consumer-{}", rng.u64(..)) };
        let mut member = newcomer(rng, &case, racks);
        if equal {
            member.topics.clone_from(&topics);
        }
        case.members.insert(id, member);
    }
    case
}

fn change(rng: &mut Rng, mut case: Case, assignment: &Assignment, generation: i32) -> Case {
    let racks = case.topics.values().flatten().any(|racks| !racks.is_empty());
    for (id, member) in &mut case.members {
        // A member that missed the last generation still reports its earlier partitions.
        if generation > 1 && rng.u8(..100) < 8 {
            continue;
        }
        member.owned = assignment.get(id).cloned().unwrap_or_default();
        member.generation = Some(generation);
    }
    if rng.bool() && case.members.len() > 1 {
        let gone = rng.choice(case.members.keys().cloned().collect::<Vec<_>>()).expect("not empty");
        case.members.remove(&gone);
    }
    let topics = case.members.values().next().expect("not empty").topics.clone();
    let equal = case.members.values().all(|member| member.topics == topics);
    for _ in 0..rng.usize(0..=2) {
        let in_order = is_in_order(&case);
        let free = IN_ORDER.iter().find(|id| in_order && !case.members.contains_key(**id));
        let id = free.map_or_else(|| format!("consumer-{}", rng.u64(..)), |id| (*id).to_owned());
        let mut member = newcomer(rng, &case, racks);
        if equal {
            member.topics.clone_from(&topics);
        }
        if in_order
            == is_in_order(&Case { members: [(id.clone(), member.clone())].into(), ..Case::default() })
        {
            case.members.insert(id, member);
        }
    }
    match rng.u8(..6) {
        0 => {
            for partitions in case.topics.values_mut() {
                partitions.push(replicas(rng, racks));
            }
        }
        1 if !equal => {
            let topics = subscription(rng, &case);
            case.members.values_mut().next().expect("not empty").topics = topics;
        }
        _ => {}
    }
    case
}

fn newcomer(rng: &mut Rng, case: &Case, racks: bool) -> Member {
    let mut member = Member::default();
    member.topics = subscription(rng, case);
    member.rack = (racks && rng.u8(..4) > 0).then(|| Arc::from(rack(rng)));
    member.instance_id = (rng.u8(..3) == 0).then(|| format!("static-{:04}", rng.u16(..10_000)));
    member
}

fn subscription(rng: &mut Rng, case: &Case) -> Vec<Arc<str>> {
    let mut topics: Vec<Arc<str>> = case.topics.keys().filter(|_| rng.u8(..3) > 0).cloned().collect();
    if topics.is_empty() {
        topics.extend(case.topics.keys().next().cloned());
    }
    topics
}

fn replicas(rng: &mut Rng, racks: bool) -> BTreeSet<Arc<str>> {
    let replicas = if racks { rng.usize(1..=2) } else { 0 };
    (0..replicas).map(|_| Arc::from(rack(rng))).collect()
}

fn rack(rng: &mut Rng) -> &'static str {
    ["east", "north", "west"][rng.usize(..3)]
}
