//! What `debug` and `log_level` show, and where the lines go.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{Client, Config, Context, LogCallback, LogLine, Producer, Record};

/// Generous: nothing here takes long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(30);

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory")
}

fn send(client: &Client) {
    let delivery = Producer::of(client).try_send(Record::to("orders").value("secret value")).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
}

/// The lines of a client with these properties that has sent a record.
fn lines(properties: &[(&str, &str)]) -> Vec<LogLine> {
    let broker = broker();
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("log.queue", "true").expect("a flag");
    config.set_all(properties.iter().copied()).expect("valid properties");
    let client = Client::new(config).expect("a client");
    let queue = client.log_lines();
    send(&client);
    drop(client);
    std::iter::from_fn(|| queue.try_next()).collect()
}

/// The number that stands behind `name` in a line.
fn number(text: &str, name: &str) -> String {
    let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("no {name} in {text}"));
    rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

#[test]
fn debug_shows_batches_requests_and_round_trips() {
    let lines = lines(&[("debug", "msg,protocol")]);
    assert!(
        lines.iter().all(|line| {
            line.level == 7 && matches!(line.context, Some(Context::Msg | Context::Protocol))
        })
    );
    let delivered: Vec<_> = lines.iter().filter(|line| line.facility == "MSGSET").collect();
    assert_eq!(delivered.len(), 1);
    assert!(
        delivered[0].text.starts_with("orders [0]: MessageSet with 1 message(s) (")
            && delivered[0].text.ends_with(" bytes) delivered"),
        "{}",
        delivered[0]
    );
    let produce = |facility: &str, name: &str| {
        let found = lines.iter().find(|line| line.facility == facility && line.text.contains(name));
        found.unwrap_or_else(|| panic!("no {name}")).text.clone()
    };
    let sent = produce("SEND", ": Sent ProduceRequest (v");
    let received = produce("RECV", ": Received ProduceResponse (v");
    assert_eq!(number(&sent, "CorrId "), number(&received, "CorrId "));
    assert_eq!(number(&sent, "(v"), number(&received, "(v"));
    assert!(sent.contains(" bytes @ 0, "), "{sent}");
    assert!(
        received.ends_with("ms)") && number(&received, "rtt ").parse::<f64>().is_ok_and(|ms| ms < 30_000.0),
        "{received}"
    );
    // Every answer has its request, and what records say is nobody's business.
    let count = |facility| lines.iter().filter(|line| line.facility == facility).count();
    assert_eq!(count("SEND"), count("RECV"));
    assert!(!lines.iter().any(|line| line.text.contains("secret value")));
}

#[test]
fn log_level_silences_what_is_less_serious() {
    assert!(lines(&[]).is_empty(), "nothing is said of what goes well");
    assert!(lines(&[("debug", "all"), ("log_level", "6")]).is_empty());
    assert!(!lines(&[("debug", "all"), ("log_level", "7")]).is_empty());
}

#[test]
fn every_context_has_something_to_say_and_no_secret_is_said() {
    let lines = lines(&[("debug", "all"), ("client.id", "till-4")]);
    for context in [
        Context::Generic,
        Context::Broker,
        Context::Metadata,
        Context::Feature,
        Context::Msg,
        Context::Protocol,
        Context::Eos,
        Context::Conf,
    ] {
        assert!(lines.iter().any(|line| line.context == Some(context)), "{}", context.name());
    }
    assert!(lines.iter().all(|line| line.client.starts_with("till-4#")));
}

#[test]
fn a_callback_takes_the_lines_instead() {
    let broker = broker();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("debug", "protocol").expect("a context");
    let at_callback = seen.clone();
    config.log_callback = Some(LogCallback::new(move |line| {
        at_callback.lock().expect("no panic there").push(line.to_string());
    }));
    let client = Client::new(config).expect("a client");
    send(&client);
    drop(client);
    let seen = seen.lock().expect("no panic there");
    assert!(seen.iter().any(|line| line.starts_with("%7|SEND|ottla#")), "{seen:?}");
}
