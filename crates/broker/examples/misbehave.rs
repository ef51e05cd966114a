//! A broker in the process of a test fails two requests of a producer.

use std::time::Duration;

use ottla_broker::{ApiKey, Broker, ErrorCode, Fault, FaultRule};
use ottla_client::{Config, Producer, Record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().memory().topic("orders", 3).spawn()?;
    let cluster = broker.cluster();
    cluster.requests(ApiKey::Produce);
    let fault = Fault::Fail(ErrorCode::NotEnoughReplicas);
    cluster.add_fault(FaultRule::new(ApiKey::Produce, fault).topic("orders").times(2))?;

    let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
    let delivery = producer.enqueue_blocking(Record::to("orders").value("paid"))?;
    delivery.wait(Duration::from_secs(30)).ok_or("not written in time")??;

    assert_eq!(cluster.requests(ApiKey::Produce), 3, "two that failed, and one that did not");
    println!("written after two failures");
    Ok(())
}
