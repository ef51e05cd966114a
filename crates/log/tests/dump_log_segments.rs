//! Apache Kafka's own `DumpLogSegments` reads what we write.
//!
//! Needs `java` and `mvn`; the jars are fetched once and kept below the target directory.

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::{DIR, NOW, batch, compressed, produced};
use ottla_log::storage::fs::FsStorage;
use ottla_log::{AppendOptions, EndMarker, Log, LogConfig, TransactionOutcome, Transactional};
use ottla_wire::{BatchBuilder, Compression, Seal};

const VERSION: &str = "4.1.0";

/// The directory with Kafka's jars, or why there is none.
fn kafka_jars() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    // target/debug/deps/this-test
    let target = exe.ancestors().nth(3).ok_or("no target directory")?;
    let home = target.join(format!("kafka-jars-{VERSION}"));
    let jars = home.join("jars");
    if home.join("complete").exists() {
        return Ok(jars);
    }
    for program in ["java", "mvn"] {
        Command::new(program).arg("-version").output().map_err(|error| format!("{program}: {error}"))?;
    }
    std::fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    let artifacts = [
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.kafka", "kafka-tools", VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.1"),
        ("org.apache.logging.log4j", "log4j-core", "2.25.1"),
    ];
    let mut pom = String::from(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>dev.ottla</groupId><artifactId>jars</artifactId><version>1</version>\
         <packaging>pom</packaging><dependencies>",
    );
    for (group, artifact, version) in artifacts {
        let _ = write!(
            pom,
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        );
    }
    pom.push_str("</dependencies></project>");
    std::fs::write(home.join("pom.xml"), pom).map_err(|error| error.to_string())?;
    let fetched = Command::new("mvn")
        .args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"])
        .current_dir(&home)
        .output()
        .map_err(|error| format!("mvn: {error}"))?;
    if !fetched.status.success() {
        return Err(format!("mvn: {}", String::from_utf8_lossy(&fetched.stdout)));
    }
    std::fs::write(home.join("complete"), "").map_err(|error| error.to_string())?;
    Ok(jars)
}

fn dump(jars: &Path, args: &[&str], files: &[PathBuf]) -> String {
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let output = Command::new("java")
        .arg("-cp")
        .arg(format!("{}/*", jars.display()))
        .arg("kafka.tools.DumpLogSegments")
        .args(args)
        .args(["--files", &files.join(",")])
        .output()
        .expect("java was there a moment ago");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {text}");
    text
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("a log directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == suffix))
        .collect();
    found.sort();
    found
}

/// The tool finds nothing wrong with the offset and time indexes.
fn check_indexes(jars: &Path, dir: &Path) {
    let indexes: Vec<PathBuf> = [files(dir, "index"), files(dir, "timeindex")].concat();
    assert!(indexes.len() > 6);
    for args in [&[][..], &["--index-sanity-check"], &["--verify-index-only"]] {
        let text = dump(jars, args, &indexes);
        for complaint in ["Found", "ismatch", "not found", "out of order", "Exception", "corrupt"] {
            assert!(!text.contains(complaint), "{args:?}, {complaint}: {text}");
        }
        if args == ["--index-sanity-check"] {
            assert_eq!(text.matches("passed sanity check").count(), indexes.len(), "{text}");
        }
        if args.is_empty() {
            assert!(
                text.matches("position: ").count() > 50 && text.matches("timestamp: ").count() > 50,
                "{text}"
            );
        }
    }
}

/// The last stable offsets in the tool's description of transaction indexes.
fn stable_offsets(text: &str) -> Vec<i64> {
    let rests = text.split("lastStableOffset: ").skip(1);
    rests.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

/// A record in a transaction that is aborted, except in the last one, which stays open.
fn transaction(log: &mut Log, number: i32) {
    let seal = Seal {
        producer_id: 77,
        producer_epoch: number as i16,
        base_sequence: 0,
        transactional: true,
        ..Seal::default()
    };
    let mut builder = BatchBuilder::new();
    builder.push(NOW, None, Some(b"in a transaction"), &[]);
    let batch = builder.seal(&seal).expect("sealed").to_bytes();
    let options = AppendOptions { transactional: Transactional::Accepted, ..AppendOptions::default() };
    log.append(NOW, batch[..].into(), options).expect("appended");
    if number < 14 {
        let marker = EndMarker {
            producer_id: 77,
            producer_epoch: number as i16 + 1,
            coordinator_epoch: 5,
            outcome: TransactionOutcome::Abort,
            transaction_version: 2,
        };
        log.append_marker(marker, 5, NOW).expect("appended");
    }
}

#[test]
fn kafkas_dump_tool_reads_our_files_without_complaint() {
    let jars = match kafka_jars() {
        Ok(jars) => jars,
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "{why}");
            println!("skipped: {why}");
            return;
        }
    };
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let storage = Arc::new(FsStorage::new(tmp.path()).expect("a storage"));
    let config = LogConfig { segment_bytes: 30_000, index_interval_bytes: 500, ..LogConfig::default() };
    let (mut log, _) = Log::open(storage.clone(), DIR, config.clone(), NOW).expect("opened");
    let options = AppendOptions { leader_epoch: 5, ..AppendOptions::default() };
    let mut records = 0;
    for n in 0..600_i32 {
        let time = NOW + i64::from(n) * 10 - if n % 7 == 6 { 35 } else { 0 };
        let values: Vec<Vec<u8>> =
            (0..=n % 4).map(|k| format!("value {n} {k}").repeat(9).into_bytes()).collect();
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let bytes = match n % 8 {
            0..4 => batch(time, &values),
            4 => compressed(time, &values, Compression::Gzip),
            5 => compressed(time, &values, Compression::Snappy),
            6 => compressed(time, &values, Compression::Lz4),
            _ => compressed(time, &values, Compression::Zstd),
        };
        log.append(NOW, bytes, options).expect("appended");
        records += values.len();
        if n % 50 == 0 {
            log.append(NOW, produced(9, 1, n / 50, 1), options).expect("appended");
            records += 1;
        }
        if n % 40 == 20 {
            transaction(&mut log, n / 40);
            records += 1;
        }
        if n == 300 {
            // Half of it is what recovery made of the files.
            drop(log);
            (log, _) = Log::open(storage.clone(), DIR, config.clone(), NOW).expect("opened anew");
        }
    }
    assert!(log.segment_count() > 3);
    log.close().expect("closed");

    let dir = tmp.path().join(DIR);
    let text = dump(&jars, &["--deep-iteration", "--print-data-log"], &files(&dir, "log"));
    assert_eq!(text.matches("| offset: ").count(), records + 14, "{text}");
    assert!(
        text.contains("value 599 3")
            && text.contains("partitionLeaderEpoch: 5")
            && !text.contains("isvalid: false")
    );
    for complaint in ["Found", "Mismatch", "mismatch", "invalid", "Exception"] {
        assert!(!text.contains(complaint), "{complaint}: {text}");
    }
    check_indexes(&jars, &dir);
    // An entry is its version, producer, first, last and last stable offset.
    let text = dump(&jars, &[], &files(&dir, "txnindex"));
    assert_eq!(text.matches("producerId: 77").count(), 14, "{text}");
    let stable = stable_offsets(&text);
    assert!(stable.is_sorted() && stable.len() == 14, "{text}");
    let text = dump(&jars, &[], &files(&dir, "snapshot"));
    let open = "producerId: 77 producerEpoch: 14 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong[";
    assert!(text.contains(open), "{text}");
    assert!(text.contains("producerId: 9 producerEpoch: 1") && text.contains("lastSequence: 11"), "{text}");
}
