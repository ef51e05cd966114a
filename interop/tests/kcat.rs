//! kcat, and thus librdkafka, against the broker: metadata, producing and consuming.

use ottla_interop::{Cluster, Failure, against_ottla_and_kafka, kcat};

against_ottla_and_kafka! { Kcat;
    lists_brokers_topics_and_partitions
    keys_headers_and_tombstones_come_back
    none_comes_back
    gzip_comes_back
    snappy_comes_back
    lz4_comes_back
    zstd_comes_back
    offsets_are_found_by_time_and_from_the_end
    a_group_resumes_where_it_stopped
}

const RECORDS: usize = 500;

fn lists_brokers_topics_and_partitions(cluster: &dyn Cluster) -> Result<(), Failure> {
    let bootstrap = cluster.bootstrap();
    cluster.create_topic("kcat-list", 3)?;

    let listing = kcat(&["-b", &bootstrap, "-L"], b"")?.succeeded()?.stdout_text();
    assert!(listing.contains(&format!(" at {bootstrap}")), "{listing}");
    assert!(listing.contains("topic \"kcat-list\" with 3 partitions:"), "{listing}");

    let json = kcat(&["-b", &bootstrap, "-L", "-J", "-t", "kcat-list"], b"")?.succeeded()?.stdout_text();
    assert!(json.contains(&format!("\"name\":\"{bootstrap}\"")), "{json}");
    assert!(json.contains("\"topic\":\"kcat-list\""), "{json}");
    for partition in 0..3 {
        assert!(json.contains(&format!("\"partition\":{partition},\"leader\":")), "{json}");
    }
    Ok(())
}

fn keys_headers_and_tombstones_come_back(cluster: &dyn Cluster) -> Result<(), Failure> {
    let topic = "kcat-parts";
    let headers = ["-K", ":", "-Z", "-H", "origin=kcat", "-H", "empty=", "-H", "origin=again"];
    produce(cluster, topic, &headers, b"k1:v1\nk2:\n:v3\n")?;
    let records = consume(cluster, topic, &["-f", "%p %o %K %k %S %s %h\n"])?;
    let all = "origin=kcat,empty=,origin=again";
    assert_eq!(
        records,
        [format!("0 0 2 k1 2 v1 {all}"), format!("0 1 2 k2 -1  {all}"), format!("0 2 -1  2 v3 {all}")],
        "key length and key, value length and value (-1 is null), headers in order, doubles included"
    );
    Ok(())
}

fn none_comes_back(cluster: &dyn Cluster) -> Result<(), Failure> {
    codec_comes_back(cluster, "none")
}

fn gzip_comes_back(cluster: &dyn Cluster) -> Result<(), Failure> {
    codec_comes_back(cluster, "gzip")
}

fn snappy_comes_back(cluster: &dyn Cluster) -> Result<(), Failure> {
    codec_comes_back(cluster, "snappy")
}

fn lz4_comes_back(cluster: &dyn Cluster) -> Result<(), Failure> {
    codec_comes_back(cluster, "lz4")
}

fn zstd_comes_back(cluster: &dyn Cluster) -> Result<(), Failure> {
    codec_comes_back(cluster, "zstd")
}

/// Every record arrives unchanged and in order, without idempotence and with it.
fn codec_comes_back(cluster: &dyn Cluster, codec: &str) -> Result<(), Failure> {
    let topic = format!("kcat-{codec}");
    let sent: Vec<String> = (0..RECORDS)
        .map(|n| format!("key {n}:{codec} record {n} {}", "of the log ".repeat(n % 20)))
        .collect();
    let (first, second) = sent.split_at(RECORDS / 2);
    let producer = ["-K", ":", "-z", codec, "-H", "n=1"];
    produce(cluster, &topic, &producer, lines(first).as_bytes())?;
    let idempotent = [&producer[..], &["-X", "enable.idempotence=true"]].concat();
    produce(cluster, &topic, &idempotent, lines(second).as_bytes())?;

    let expected: Vec<String> =
        sent.iter().enumerate().map(|(offset, line)| format!("{offset} n=1 {line}")).collect();
    assert_eq!(consume(cluster, &topic, &["-X", "check.crcs=true", "-f", "%o %h %k:%s\n"])?, expected);
    Ok(())
}

fn offsets_are_found_by_time_and_from_the_end(cluster: &dyn Cluster) -> Result<(), Failure> {
    let topic = "kcat-offsets";
    produce(cluster, topic, &[], b"a\nb\nc\nd\ne\n")?;
    assert_eq!(consume(cluster, topic, &["-o", "-2", "-f", "%o %s\n"])?, ["3 d", "4 e"]);
    assert_eq!(consume(cluster, topic, &["-o", "3", "-c", "1", "-f", "%o %s\n"])?, ["3 d"]);

    let timestamps = consume(cluster, topic, &["-f", "%T\n"])?;
    let bootstrap = cluster.bootstrap();
    let query = |at: &str| {
        let wanted = format!("{topic}:0:{at}");
        kcat(&["-b", &bootstrap, "-Q", "-t", &wanted], b"")?.succeeded().map(|output| output.lines())
    };
    assert_eq!(query(&timestamps[0])?, ["kcat-offsets [0] offset 0"]);
    assert_eq!(query("-1")?, ["kcat-offsets [0] offset 5"], "the end");
    assert_eq!(query("-2")?, ["kcat-offsets [0] offset 0"], "the beginning");
    Ok(())
}

fn a_group_resumes_where_it_stopped(cluster: &dyn Cluster) -> Result<(), Failure> {
    let topic = "kcat-group";
    let bootstrap = cluster.bootstrap();
    cluster.create_topic(topic, 4)?;
    let group = || {
        let reset = "auto.offset.reset=earliest";
        let args = ["-b", &bootstrap, "-G", "kcat-readers", "-X", reset, "-e", "-q", "-f", "%s\n", topic];
        let mut values = kcat(&args, b"")?.succeeded()?.lines();
        values.sort_unstable();
        Ok::<_, Failure>(values)
    };
    produce(cluster, topic, &["-K", ":"], b"a:1\nb:2\nc:3\nd:4\ne:5\nf:6\n")?;
    assert_eq!(group()?, ["1", "2", "3", "4", "5", "6"]);
    produce(cluster, topic, &["-K", ":"], b"a:7\nb:8\n")?;
    assert_eq!(group()?, ["7", "8"], "only what came after the committed offsets");
    Ok(())
}

fn produce(cluster: &dyn Cluster, topic: &str, args: &[&str], input: &[u8]) -> Result<(), Failure> {
    let bootstrap = cluster.bootstrap();
    let all = [&["-b", &bootstrap, "-P", "-t", topic], args].concat();
    kcat(&all, input)?.succeeded().map(|_| ())
}

/// The topic from its beginning to its end; a later `-o` in `args` takes precedence.
fn consume(cluster: &dyn Cluster, topic: &str, args: &[&str]) -> Result<Vec<String>, Failure> {
    let bootstrap = cluster.bootstrap();
    let all = [&["-b", &bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q"], args].concat();
    kcat(&all, b"")?.succeeded().map(|output| output.lines())
}

fn lines(records: &[String]) -> String {
    records.iter().fold(String::new(), |text, record| text + record + "\n")
}
