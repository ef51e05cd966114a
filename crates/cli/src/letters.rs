//! The letters of options, over all subcommands: kcat's where kcat has one, and each with one meaning.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command};

/// kcat's letters, with the options that have them here.
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

/// The long names of the options that a letter stands for, with the subcommands that have it.
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

/// `-k` was the key's delimiter, `-f` a file or a format, `-p` a partition, a number of partitions, or "print".
#[test]
fn a_letter_never_has_two_meanings_and_kcats_letters_are_kcats() {
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
fn the_options_that_kcat_has_keep_their_letter_in_produce_and_consume() {
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
