//! Tests of the short options: each letter has one meaning in all subcommands, and kcat's letters keep kcat's
//! meaning.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command};

/// kcat's letters and their long options here.
const KCAT: &[(char, &str)] = &[
    ('b', "brokers"),
    ('t', "topic"),
    ('p', "partition"),
    ('k', "key"),
    ('K', "key-delimiter"),
    ('H', "header"),
    ('Z', "tombstone"),
    ('l', "file"),
    ('z', "codec"),
    ('o', "from"),
    ('c', "count"),
    ('e', "exit-at-end"),
    ('f', "format"),
    ('J', "json"),
    ('G', "group"),
    ('X', "property"),
    ('v', "verbose"),
];

/// Collects the long options of each letter, with their subcommands.
fn letters(command: &Command, path: &str, found: &mut BTreeMap<char, BTreeMap<String, BTreeSet<String>>>) {
    for arg in command.get_arguments() {
        for letter in arg.get_short_and_visible_aliases().unwrap_or_default().into_iter().chain(hidden(arg)) {
            let long = arg.get_long().unwrap_or("(none)").to_owned();
            found.entry(letter).or_default().entry(long).or_default().insert(path.to_owned());
        }
    }
    for inner in command.get_subcommands() {
        letters(inner, &format!("{path} {}", inner.get_name()), found);
    }
}

fn hidden(arg: &Arg) -> Vec<char> {
    arg.get_all_short_aliases().unwrap_or_default()
}

/// Earlier, `-k` was also the key's delimiter, `-f` a file or a format, and `-p` a partition, a number of partitions,
/// or "print".
#[test]
fn each_letter_has_one_meaning_and_kcat_letters_keep_theirs() {
    let mut command = crate::command();
    command.build();
    let mut found = BTreeMap::new();
    letters(&command, "ottla", &mut found);
    for (letter, meanings) in &found {
        assert_eq!(meanings.len(), 1, "-{letter} has several meanings: {meanings:#?}");
    }
    for (letter, long) in KCAT {
        let meanings = found.get(letter).unwrap_or_else(|| panic!("-{letter} does not exist"));
        assert!(meanings.contains_key(*long), "-{letter} is to be --{long}: {meanings:?}");
    }
}

#[test]
fn produce_and_consume_keep_kcat_letters() {
    let mut command = crate::command();
    command.build();
    for (subcommand, letters) in
        [("produce", "btpkKHZlzXv"), ("consume", "btpocefJGXv"), ("run", "btGXv"), ("doctor", "btXv")]
    {
        let inner = command.find_subcommand(subcommand).expect("a subcommand");
        for letter in letters.chars() {
            let (_, long) = KCAT.iter().find(|(known, _)| *known == letter).expect("one of kcat's");
            let arg = inner.get_arguments().find(|arg| arg.get_short() == Some(letter));
            let arg = arg.unwrap_or_else(|| panic!("ottla {subcommand} has no -{letter}"));
            assert_eq!(arg.get_long(), Some(*long), "ottla {subcommand} -{letter}");
        }
    }
}

#[test]
fn every_command_line_is_well_formed() {
    crate::command().debug_assert();
}
