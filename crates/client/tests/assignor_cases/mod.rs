//! Groups and their assignments as text, for test vectors recorded from Java and for generated ones.
//!
//! ```text
//! case 7
//! topic orders east,west;west;-              racks of each partition's replicas
//! member A -        east 3  orders  orders:0,orders:2
//!        id instance rack generation topics owned
//! end
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use ottla_client::TopicPartition;
use ottla_client::assignor::{
    Assignment, Assignor, CooperativeSticky, Member, OwnedPartitions, Range, RoundRobin, Sticky, Topics,
};

/// One group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    pub(crate) number: usize,
    pub(crate) topics: Topics,
    pub(crate) members: BTreeMap<String, Member>,
}

/// The result of one assignor for a group: its assignment, and every member's user data in hexadecimal digits.
pub(crate) type Answer = (Assignment, BTreeMap<String, String>);

/// Results by assignor name.
pub(crate) type Answers = BTreeMap<String, Answer>;

pub(crate) fn assignors() -> [Box<dyn Assignor>; 4] {
    [Box::new(Range), Box::new(RoundRobin), Box::new(Sticky), Box::new(CooperativeSticky)]
}

impl Case {
    /// The group as lines of text.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("case {}\n", self.number);
        for (topic, partitions) in &self.topics {
            let racks: Vec<_> =
                partitions.iter().map(|racks| joined(racks.iter().map(ToString::to_string))).collect();
            let _ = writeln!(text, "topic {topic} {}", racks.join(";"));
        }
        for (id, member) in &self.members {
            let word = |word: Option<&str>| word.unwrap_or("-").to_owned();
            let generation = member.generation.map(|generation| generation.to_string());
            let _ = writeln!(
                text,
                "member {id} {} {} {} {} {}",
                word(member.instance_id.as_deref()),
                word(member.rack.as_deref()),
                word(generation.as_deref()),
                joined(member.topics.iter().map(ToString::to_string)),
                joined(member.owned.iter().map(|at| format!("{}:{}", at.topic, at.partition))),
            );
        }
        text.push_str("end\n");
        text
    }

    /// The results of our assignors, each member with the user data of that assignor.
    pub(crate) fn answer(&self) -> Answers {
        assignors().iter().map(|assignor| (assignor.name().to_owned(), self.answer_of(&**assignor))).collect()
    }

    fn answer_of(&self, assignor: &dyn Assignor) -> Answer {
        let mut members = self.members.clone();
        let mut user_data = BTreeMap::new();
        for (id, member) in &mut members {
            let partitions = if member.generation.is_some() { member.owned.clone() } else { Vec::new() };
            member.user_data = assignor.user_data(&OwnedPartitions::new(partitions, member.generation));
            let hex = |data: &bytes::Bytes| {
                data.iter().fold(String::new(), |mut text, byte| {
                    let _ = write!(text, "{byte:02x}");
                    text
                })
            };
            user_data.insert(id.clone(), member.user_data.as_ref().map_or("-".to_owned(), hex));
        }
        let mut assignment = assignor.assign(&self.topics, &members);
        sort(&mut assignment);
        (assignment, user_data)
    }
}

/// Reads groups and skips the results of assignors.
#[allow(dead_code, reason = "only those who read vectors need it")]
pub(crate) fn read_cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match (words[0], cases.last_mut()) {
            ("case", _) => {
                cases.push(Case { number: words[1].parse().expect("a number"), ..Case::default() });
            }
            ("topic", Some(case)) => {
                let racks =
                    |racks: &str| -> BTreeSet<Arc<str>> { list(racks).into_iter().map(Arc::from).collect() };
                case.topics.insert(words[1].into(), words[2].split(';').map(racks).collect());
            }
            ("member", Some(case)) => {
                let word = |at: usize| Some(words[at]).filter(|word| *word != "-");
                let mut member = Member::of(&list(words[5]));
                member.instance_id = word(2).map(str::to_owned);
                member.rack = word(3).map(Arc::from);
                member.generation = word(4).map(|generation| generation.parse().expect("a number"));
                member.owned = partitions(words[6]);
                case.members.insert(words[1].to_owned(), member);
            }
            _ => {}
        }
    }
    cases
}

/// The results of assignors, by the number of the case.
pub(crate) fn read_answers(text: &str) -> BTreeMap<usize, Answers> {
    let mut answers: BTreeMap<usize, Answers> = BTreeMap::new();
    let mut number = 0;
    for line in text.lines() {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let pairs = rest.split(' ').filter_map(|pair| pair.split_once('='));
        if name == "case" {
            number = rest.parse().expect("a number");
        } else if let Some(name) = name.strip_suffix(".data") {
            let of_case = answers.entry(number).or_default();
            of_case.entry(name.to_owned()).or_default().1 =
                pairs.map(|(id, data)| (id.to_owned(), data.to_owned())).collect();
        } else if assignors().iter().any(|assignor| assignor.name() == name) {
            let of_case = answers.entry(number).or_default();
            let mut assignment: Assignment =
                pairs.map(|(id, list)| (id.to_owned(), partitions(list))).collect();
            sort(&mut assignment);
            of_case.entry(name.to_owned()).or_default().0 = assignment;
        }
    }
    answers
}

fn sort(assignment: &mut Assignment) {
    for partitions in assignment.values_mut() {
        partitions.sort();
    }
}

fn list(words: &str) -> Vec<&str> {
    words.split(',').filter(|word| *word != "-" && !word.is_empty()).collect()
}

fn joined(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

fn partitions(words: &str) -> Vec<TopicPartition> {
    let one = |word: &str| {
        let (topic, partition) = word.rsplit_once(':').expect("topic:partition");
        TopicPartition::new(topic, partition.parse().expect("a number"))
    };
    list(words).into_iter().map(one).collect()
}
