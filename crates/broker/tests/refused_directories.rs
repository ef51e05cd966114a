//! Data directories that a broker refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ottla_broker::{Broker, repair, skip_damage};

use crate::common::world::{copy, files, start};
use crate::data_loss::{NOW, image, story};

#[test]
fn apache_kafkas_data_directory_is_refused() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    fs::write(tmp.path().join("meta.properties"), "version=1\nnode.id=1\n").expect("written");
    fs::create_dir(tmp.path().join("orders-0")).expect("created");
    let error = start(tmp.path()).expect_err("not ours").to_string();
    assert!(error.contains("Apache Kafka") && error.contains("ottla-format"), "{error}");
    assert!(error.contains(&*tmp.path().to_string_lossy()), "{error}");
    assert_eq!(files(tmp.path()), [".lock", "meta.properties"]);
}

/// Its committed offsets are in a journal that is not read any more: groups would start at `auto.offset.reset`.
#[test]
fn a_directory_with_the_offsets_of_the_first_format_is_refused() {
    for mark in [Some("version: 1\n"), None] {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        for journal in ["__ottla-meta", "__ottla-offsets"] {
            fs::create_dir(tmp.path().join(journal)).expect("created");
        }
        if let Some(mark) = mark {
            fs::write(tmp.path().join("ottla-format"), mark).expect("written");
        }
        let error = start(tmp.path()).expect_err("an older format").to_string();
        assert!(error.contains("__ottla-offsets") && error.contains("another directory"), "{error}");
        assert!(error.contains(&*tmp.path().to_string_lossy()), "{error}");
    }
}

#[test]
fn a_data_directory_that_others_can_write_to_is_refused() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o777)).expect("set");
    let error = Broker::builder().data_dir(tmp.path()).spawn().expect_err("open to all").to_string();
    assert!(error.contains("chmod 700") && error.contains("0777"), "{error}");
}

/// Only a repair of the whole directory looked at its format. That of one partition rewrote files of Apache Kafka and of newer versions.
#[test]
fn a_partition_in_a_directory_of_another_format_is_not_repaired() {
    let story = story();
    let marks = [
        ("meta.properties", "version=1\nnode.id=1\n", "Apache Kafka's format"),
        ("ottla-format", "version: 3\n", "version 3"),
    ];
    for (mark, content, words) in marks {
        let root = story.clean.with_file_name("foreign");
        let _ = fs::remove_dir_all(&root);
        let partition = root.join("stock-0");
        copy(&story.clean.join("stock-0"), &partition);
        fs::write(root.join(mark), content).expect("written");
        let segments: Vec<String> =
            files(&partition).into_iter().filter(|file| file.rsplit('.').next() == Some("log")).collect();
        fs::remove_file(partition.join(&segments[1])).expect("removed");
        let before = image(&root);
        for accept_loss in [false, true] {
            let error = repair(&partition, accept_loss, NOW).expect_err("not our format").to_string();
            assert!(error.contains(words), "{error}");
            let error =
                skip_damage(&partition, None, accept_loss, NOW).expect_err("not our format").to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(image(&root) == before, "a file has changed: {mark}");
        // Without a mark, it is a log without a broker.
        fs::remove_file(root.join(mark)).expect("removed");
        assert!(!repair(&partition, false, NOW).expect("examined").damage.is_empty());
    }
}
