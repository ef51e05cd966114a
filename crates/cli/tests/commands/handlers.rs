//! `ottla run`: a program that cannot be started loses no record.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ottla_broker::BrokerThread;
use rustix::process::Signal;

use crate::support::{PATIENCE, Running, at, broker, command, fill, ottla};

const SEVEN: &str = "1\n2\n3\n4\n5\n6\n7\n";

/// The first offset that the group has not committed.
fn committed(broker: &BrokerThread) -> i64 {
    let described = at(broker, &["groups", "describe", "workers"], "");
    let row = described.stdout.lines().find(|line| line.starts_with("orders ")).map(str::to_owned);
    row.and_then(|row| row.split_whitespace().nth(2)?.parse().ok()).unwrap_or(0)
}

/// It skipped or dead-lettered every record, and committed all of them.
#[test]
fn a_command_that_does_not_exist_costs_no_record() {
    let broker = broker(1);
    fill(&broker, SEVEN);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let plain = file.path().to_str().expect("UTF-8");
    for give_up in [&["--skip"][..], &["--dead-letters", "dead"], &[]] {
        for (program, words) in [
            ("no-such-handler", "directories of PATH"),
            ("./no-such-handler", "does not exist"),
            (plain, "is not executable"),
        ] {
            let run =
                [&["run", "--topic", "orders", "--group", "workers"], give_up, &["--", program]].concat();
            at(&broker, &run, "").failed(2, &[program, words]);
        }
    }
    let groups = at(&broker, &["groups", "list"], "").succeeded();
    assert!(!groups.stdout.contains("workers"), "the group was not even joined: {}", groups.stdout);
    assert_eq!(broker.cluster().offsets_of("dead", 0), None);
}

/// Each dead letter was read, failed, and became a dead letter again.
#[test]
fn a_topic_for_dead_letters_that_is_read_is_refused() {
    let run = |topics: &str, more: &[&str]| {
        let args =
            ["run", "-t", topics, "-G", "workers", "-b", "127.0.0.1:1", "--dead-letters", "orders.dead"];
        ottla(&[&args[..], more, &["--", "cat"]].concat(), "")
    };
    for topics in ["orders.dead", "orders,orders.dead", "^orders", "bills,^.*dead$"] {
        run(topics, &[]).failed(2, &["--dead-letters orders.dead", "use another topic"]);
    }
    // These do not read it, and fail because there is no broker.
    run("orders,^orders$", &[]).failed(1, &["no broker could be reached"]);
    run("^orders", &["-X", "topic.blacklist=dead$"]).failed(1, &["no broker could be reached"]);
}

/// It starts as it should, and is gone when the next process is needed.
#[test]
fn a_program_that_does_not_start_any_more_ends_the_command_and_commits_nothing() {
    for (give_up, batch) in [("--skip", "1"), ("--dead-letters=dead", "1"), ("--skip", "4")] {
        let broker = broker(1);
        fill(&broker, SEVEN);
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("handle");
        // Answers three records and removes itself.
        fs::write(&script, "#!/bin/sh\nfor n in 1 2 3; do read -r line; echo \"$line\"; done\nrm \"$0\"\n")
            .expect("written");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("changed");
        let program = script.to_str().expect("UTF-8");
        let run =
            ["run", "--topic", "orders", "--group", "workers", "--workers", "1", "--batch", batch, give_up];
        let more = ["--order", "partition", "--retries", "5", "--retry-delay-ms", "1", "--", program];
        let ended = at(&broker, &[&run[..], &more].concat(), "")
            .failed(1, &["cannot start `", "handle`: ", "records handled", "0 skipped, 0 dead-lettered"]);
        assert_eq!(ended.stderr.matches("cannot start `").count(), 1, "{}", ended.stderr);
        assert_eq!(committed(&broker), 3, "{give_up} {batch}: {}", ended.stderr);
        assert_eq!(broker.cluster().offsets_of("dead", 0).map_or(0, |(_, end)| end), 0);
    }
}

/// The third line was the result of the second record, and so on: records were committed that the program had not read.
#[test]
fn a_program_with_more_lines_than_records_ends_the_command() {
    for (batch, at_most) in [("1", 1), ("4", 0)] {
        let broker = broker(1);
        fill(&broker, SEVEN);
        let run =
            ["run", "--topic", "orders", "--group", "workers", "--workers", "1", "--batch", batch, "--skip"];
        let program = "while read -r line; do printf 'read\\ndone\\n'; sleep 0.1; done";
        let more = ["--order", "partition", "--", "sh", "-c", program];
        let words = ["more result lines than it has read records", "everything else to standard error"];
        at(&broker, &[&run[..], &more].concat(), "").failed(1, &words);
        assert!(committed(&broker) <= at_most, "--batch {batch}: {}", committed(&broker));
    }
}

#[test]
fn a_shell_that_does_not_find_its_program_is_no_handler_that_fails() {
    let broker = broker(1);
    fill(&broker, SEVEN);
    let run =
        ["run", "--topic", "orders", "--group", "workers", "--skip", "--", "sh", "-c", "no-such-handler"];
    at(&broker, &run, "").failed(1, &["could not start the program", "127"]);
    assert_eq!(committed(&broker), 0);
}

#[test]
fn skipped_records_show_in_the_summary_and_in_the_exit_code() {
    let broker = broker(1);
    fill(&broker, "1\nerror: no\n3\n");
    let servers = broker.bootstrap_servers();
    let run = ["run", "-b", &servers, "--topic", "orders", "--group", "workers", "--skip", "--retries", "2"];
    let more = ["--retry-delay-ms", "1", "--", "cat"];
    let mut running = Running::start(&mut command(&[&run[..], &more].concat()), "");
    running.until("committed", PATIENCE, |_| committed(&broker) == 3);
    running.signal(Signal::INT);
    running.wait().failed(
        1,
        &["2 records handled, 2 retries, 1 skipped, 0 dead-lettered", "1 record failed", "--dead-letters"],
    );

    let run = ["run", "-b", &servers, "--topic", "orders", "--group", "others", "--dead-letters", "dead"];
    let more = ["--retries", "0", "--", "cat"];
    let mut running = Running::start(&mut command(&[&run[..], &more].concat()), "");
    running.until("kept", PATIENCE, |_| broker.cluster().offsets_of("dead", 0) == Some((0, 1)));
    running.signal(Signal::TERM);
    let ended = running.wait().succeeded();
    assert!(ended.stderr.contains("0 skipped, 1 dead-lettered to dead"), "{}", ended.stderr);
}

#[test]
fn a_share_group_is_done_with_records_that_were_handled_or_skipped() {
    let broker = broker(1);
    fill(&broker, "1\nerror: no\n3\n");
    let create =
        ["groups", "reset-offsets", "sharers", "-t", "orders", "--to-earliest", "--create", "--share"];
    at(&broker, &[&create[..], &["--execute"]].concat(), "").succeeded();
    let servers = broker.bootstrap_servers();
    let run = ["run", "-b", &servers, "--topic", "orders", "--group", "sharers", "--share", "--skip"];
    let more = ["--retries", "0", "--breaker", "5", "--", "cat"];
    let mut running = Running::start(&mut command(&[&run[..], &more].concat()), "");
    let lag = || {
        let described = at(&broker, &["groups", "describe", "sharers", "--output", "json"], "").succeeded();
        let described: serde_json::Value = serde_json::from_str(&described.stdout).expect("JSON");
        described["total_lag"].as_i64()
    };
    running.until("done", PATIENCE, |_| lag() == Some(0));
    running.signal(Signal::INT);
    running
        .wait()
        .failed(1, &["2 records handled, 0 retries, 1 skipped, 0 dead-lettered", "1 record failed"]);
}

#[test]
fn a_share_group_keeps_no_order() {
    let run = ["run", "-b", "127.0.0.1:1", "-t", "orders", "-G", "sharers", "--share", "--order", "key"];
    ottla(&[&run[..], &["--", "cat"]].concat(), "").failed(2, &["has no order", "--order"]);
}

/// The option had no effect, and later records of a key overtook the failed one.
#[test]
fn records_are_not_held_without_an_order() {
    let run = ["run", "-b", "127.0.0.1:1", "-t", "orders", "-G", "workers", "--hold"];
    for order in [&["--order", "none"][..], &[]] {
        let run = [&run[..], order, &["--", "cat"]].concat();
        ottla(&run, "").failed(2, &["--hold", "--order key"]);
    }
}

/// It waited without a word.
#[test]
fn a_misspelled_topic_is_reported() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    let run = ["run", "-b", &servers, "-t", "ordres", "-G", "workers", "--", "cat"];
    let mut running = Running::start(&mut command(&run), "");
    running.until("warned", PATIENCE, |it| it.stderr().contains("topic `ordres` does not exist"));
    running.signal(Signal::TERM);
    let ended = running.wait().succeeded();
    assert!(ended.stderr.contains("0 records handled"), "{}", ended.stderr);
}

/// It was ignored until the drain had ended, ten seconds later.
#[test]
fn a_second_signal_ends_the_command_although_a_program_is_stuck() {
    let broker = broker(1);
    fill(&broker, SEVEN);
    let (servers, dir) = (broker.bootstrap_servers(), tempfile::tempdir().expect("a directory"));
    let begun = dir.path().join("begun");
    let file = begun.to_str().expect("UTF-8");
    let run = ["run", "-b", &servers, "-t", "orders", "-G", "workers", "--workers", "1"];
    let more = ["--", "sh", "-c", "read -r line; touch \"$0\"; exec sleep 60", file];
    let mut running = Running::start(&mut command(&[&run[..], &more].concat()), "");
    running.until("stuck", PATIENCE, |_| begun.exists());
    // Two signals that are sent fast may arrive as one.
    running.until("ended", PATIENCE, |it| {
        let has_ended = it.has_ended();
        if !has_ended {
            it.signal(Signal::INT);
        }
        has_ended
    });
    running.wait().failed(130, &["interrupted"]);
}

/// The error did not tell how the command continues.
#[test]
fn a_record_that_is_given_up_names_the_options_that_continue() {
    let broker = broker(1);
    fill(&broker, "1\n");
    let handler = "while read line; do echo error bad; done";
    let args = ["run", "-t", "orders", "-G", "workers", "--retries", "0", "--", "sh", "-c", handler];
    at(&broker, &args, "").failed(1, &["orders-0 offset 0", "bad", "--dead-letters TOPIC", "--skip"]);
    assert_eq!(committed(&broker), 0);
}
