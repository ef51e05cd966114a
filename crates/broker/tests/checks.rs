//! A check of a data directory: `ottla log repair` without `--accept-loss`.

use ottla_broker::{Broker, Durability};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_wire::Seal;

use crate::common::batch;
use crate::common::world::{connect, copy, produce};
use crate::data_loss::{examined, find, flip};

/// The check found no damage in records that were not synced, and the next start set it aside.
#[test]
fn a_check_names_damage_among_records_that_were_not_synced() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let (dir, killed) = (tmp.path().join("running"), tmp.path().join("killed"));
    let builder = Broker::builder().configure(|config| config.durability = Durability::Os);
    let broker = builder.data_dir(&dir).spawn().expect("a broker");
    let mut connection = connect(&broker);
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    let created = connection.ask(5, &request).expect("an answer");
    assert_eq!(created.topics[0].error_code, ErrorCode::None);
    for n in 0..100 {
        let value = format!("record {n:03}");
        let one = batch(&[value.as_bytes()], &Seal::default());
        assert_eq!(produce(&mut connection, "orders", 0, &one), (ErrorCode::None, n));
    }
    copy(&dir, &killed);
    broker.stop();
    let log = killed.join("orders-0/00000000000000000000.log");
    flip(&log, find(&log, b"record 050"));
    let report = examined(&killed);
    let damage = report.damage.iter().flat_map(|damage| &damage.what);
    let names_it = |text: &&String| text.contains("offsets 50 to 50");
    assert_eq!(report.notes.iter().chain(damage).filter(names_it).count(), 1, "{report:?}");
}
