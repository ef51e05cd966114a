//! kcat's letters do what they do in kcat, and names that no topic can have are refused at once.

use crate::support::{at, binary, broker, fill, ottla};

const TWELVE: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";

/// It was the delimiter of keys.
#[test]
fn k_is_the_key_and_upper_case_k_its_delimiter() {
    let broker = broker(1);
    at(&broker, &["produce", "-t", "orders", "-k", "17", "-H", "a=b", "-p", "0", "-z", "gzip"], "paid:x\n")
        .succeeded();
    at(&broker, &["produce", "orders", "-K", ":"], "18:sent\n").succeeded();
    let read = at(&broker, &["consume", "-t", "orders", "-e", "-f", "%k %s %h\n"], "").succeeded();
    assert_eq!(read.stdout, "17 paid:x a=b\n18 sent \n");
}

/// The blanks around the name of a header were removed. An empty line, which kcat skips, is documented.
#[test]
fn headers_keep_their_blanks_and_an_empty_line_is_a_record() {
    let broker = broker(1);
    at(&broker, &["produce", "orders", "-Z", "-H", " a = b "], "1\n\n2\n").succeeded();
    let read = at(&broker, &["consume", "orders", "-e", "-f", "%S[%h]\n"], "").succeeded();
    assert_eq!(read.stdout, "1[ a = b ]\n-1[ a = b ]\n1[ a = b ]\n");
    for header in ["=b", "a"] {
        at(&broker, &["produce", "orders", "-H", header], "").failed(2, &["NAME=VALUE"]);
    }
}

/// clap took `-10` for options.
#[test]
fn a_negative_start_means_the_last_records() {
    let broker = broker(1);
    fill(&broker, TWELVE);
    let last = "3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";
    for start in [&["--from", "-10"][..], &["-o", "-10"], &["-o-10"], &["--from=-10"], &["--offset", "-10"]] {
        let read = at(&broker, &[&["consume", "orders", "-e"], start].concat(), "").succeeded();
        assert_eq!(read.stdout, last, "{start:?}");
    }
    let more_than_there_are = at(&broker, &["consume", "orders", "-e", "-o", "-99"], "").succeeded();
    assert_eq!(more_than_there_are.stdout, TWELVE);
    let first = at(&broker, &["consume", "orders", "-o", "-2", "-c", "1"], "").succeeded();
    assert_eq!(first.stdout, "11\n");
}

#[test]
fn kcats_starts_are_understood() {
    let broker = broker(1);
    fill(&broker, "1\n2\n");
    let read =
        |args: &[&str]| at(&broker, &[&["consume", "orders", "-e"], args].concat(), "").succeeded().stdout;
    assert_eq!(read(&["-o", "beginning"]), "1\n2\n");
    assert_eq!(read(&["-o", "end"]), "");
    assert_eq!(read(&["-o", "1"]), "2\n");
    assert_eq!(read(&["-o", "s@0"]), "1\n2\n");
    assert_eq!(read(&["-o", "s@99999999999999"]), "");
    assert_eq!(read(&["-G", "readers", "-c", "1"]), "1\n");
    assert_eq!(read(&["-G", "readers", "-o", "stored"]), "2\n");
    at(&broker, &["consume", "orders", "-o", "stored"], "").failed(2, &["--group"]);
    at(&broker, &["consume", "orders", "-p", "-1"], "").failed(2, &["'-1'", "from 0 to"]);
    at(&broker, &["produce", "orders", "-p", "-1"], "").failed(2, &["'-1'", "from 0 to"]);
    at(&broker, &["consume", "orders", "-o", "e@1"], "").failed(2, &["-N for the last N"]);
}

#[test]
fn a_name_that_no_topic_can_have_is_refused_at_once_by_every_command() {
    let long = "x".repeat(250);
    // Nothing listens there: no broker is asked.
    let nowhere = "127.0.0.1:1";
    for (name, rule) in [
        ("", "must not be empty"),
        (&*long, "250 characters: Kafka allows 249 at most"),
        ("a b", "Kafka allows letters, digits"),
        ("..", "does not allow `.` and `..`"),
    ] {
        for args in [
            &["produce", name][..],
            &["produce", "-t", name],
            &["consume", name],
            &["consume", "-t", name, "-e"],
            &["topics", "create", name],
            &["topics", "describe", "orders", name],
            &["topics", "delete", name],
            &["topics", "grow", name, "--partitions", "3"],
            &["groups", "reset-offsets", "g", "--to-earliest", "-t", name],
            &["bench", "produce", "-t", name],
            &["doctor", "-t", name],
        ] {
            ottla(&[args, &["-b", nowhere]].concat(), "").failed(2, &[rule]);
        }
        ottla(&["run", "-b", nowhere, "-G", "g", "-t", name, "--", "cat"], "").failed(2, &[rule]);
        ottla(&["broker", "--durability", "memory", "--topic", name], "").failed(2, &[rule]);
    }
}

#[test]
fn a_misspelled_name_is_reported_with_what_to_do() {
    let broker = broker(1);
    let unknown = ["topic `ordres` does not exist", "ottla topics list"];
    at(&broker, &["consume", "ordres"], "").failed(1, &unknown);
    at(&broker, &["topics", "describe", "ordres"], "").failed(1, &unknown);
    at(&broker, &["topics", "delete", "ordres"], "").failed(1, &unknown);
    at(&broker, &["groups", "delete", "raeders"], "").failed(1, &["group `raeders` does not exist"]);
    // The broker creates topics for producers; that is worth a line.
    let produced = at(&broker, &["produce", "ordres"], "1\n").succeeded();
    assert!(
        produced.stderr.contains("topic `ordres` did not exist: the broker created it"),
        "{}",
        produced.stderr
    );
}

#[test]
fn a_pipe_that_closes_is_no_failure() {
    let broker = broker(1);
    fill(&broker, &TWELVE.repeat(20_000));
    let script = "\"$0\" consume orders -e -b \"$1\" 2>&1 | head -n 2; \"$0\" produce orders -b \"$1\" 2>&1 </dev/null | true";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).arg(binary()).arg(broker.bootstrap_servers());
    let ended = crate::support::Running::start(&mut shell, "").wait().succeeded();
    assert_eq!((&*ended.stdout, &*ended.stderr), ("1\n2\n", ""));
}
