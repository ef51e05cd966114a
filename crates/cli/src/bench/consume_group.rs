//! `ottla bench consume --group` and `--share`: the only member of a new group, or of a new share group, reads the topic.

use std::time::Duration;

use ottla_client::{
    AlterOptions, Client, Config, ConfigChange, ConfigResource, Consumer, Polled, ShareConsumer,
};

use super::consume::{Args, Check, POLL, SILENT_POLLS_MAX};
use super::measure::{Measured, Phase};
use super::new_group;
use super::payload::Sums;
use super::progress::Progress;
use crate::connect::runtime;
use crate::failure::Failure;

/// Time limit for leaving the group.
const LEAVE_WITHIN: Duration = Duration::from_secs(30);

/// Reads --count messages. The first `warmup` of them are not measured, and joining the group is neither.
pub(super) fn read(
    client: &Client,
    args: &Args,
    config: Config,
    mut check: Check,
    warmup: u64,
    progress: &Progress,
) -> Result<(Sums, Measured), Failure> {
    let group = new_group("consume");
    let mut member = Member::join(client, args, config, &group)?;
    let mut phase = None;
    let mut measured_from = (0, 0);
    let mut silent = 0;
    while check.sums.messages < args.common.count && !progress.is_interrupted() {
        if phase.is_none() && check.sums.messages >= warmup && check.sums.messages > 0 {
            phase = Some(Phase::start());
            measured_from = (check.sums.messages, check.sums.lengths);
        }
        if member.poll(&mut check, args.common.count)? {
            silent = 0;
            progress.show(check.sums.messages);
        } else {
            silent += 1;
            if silent > SILENT_POLLS_MAX {
                return Err(check.silence(args.common.count));
            }
        }
    }
    member.commit()?;
    let (messages, bytes) = (check.sums.messages - measured_from.0, check.sums.lengths - measured_from.1);
    let measured = phase.unwrap_or_else(Phase::start).end(messages, bytes);
    member.leave()?;
    Ok((check.sums, measured))
}

/// A share group starts at the end of its topics, unless its own setting says otherwise.
pub(super) fn share_from_beginning(client: &Client, group: &str) -> Result<(), Failure> {
    let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
    let changes = [(ConfigResource::group(group), vec![earliest])];
    let admin = client.admin();
    let altering = admin.incremental_alter_configs(&changes, AlterOptions::default());
    for (_, altered) in runtime()?.block_on(altering)? {
        altered?;
    }
    Ok(())
}

/// The reader.
enum Member {
    Plain(Box<Consumer>),
    Share(Box<ShareConsumer>),
}

impl Member {
    fn join(client: &Client, args: &Args, mut config: Config, group: &str) -> Result<Self, Failure> {
        let topics = [&*args.common.topic];
        config.set_all([("group.id", group), ("auto.offset.reset", "earliest")])?;
        if !args.share {
            let mut consumer = Consumer::new(config)?;
            runtime()?.block_on(consumer.subscribe(&topics))?;
            return Ok(Self::Plain(Box::new(consumer)));
        }
        share_from_beginning(client, group)?;
        let mut consumer = ShareConsumer::new(config)?;
        runtime()?.block_on(consumer.subscribe(&topics))?;
        Ok(Self::Share(Box::new(consumer)))
    }

    /// Reads one batch; returns `false` if none arrived.
    fn poll(&mut self, check: &mut Check, count: u64) -> Result<bool, Failure> {
        match self {
            Self::Plain(consumer) => {
                let Some(polled) = consumer.poll_blocking(POLL)? else { return Ok(false) };
                let Polled::Records(batch) = polled else { return Ok(true) };
                for record in &batch {
                    let record = record?;
                    check.record(batch.partition(), record.offset, record.value)?;
                    if check.sums.messages == count {
                        break;
                    }
                }
            }
            Self::Share(consumer) => {
                let Some(batch) = consumer.poll_blocking(POLL)? else { return Ok(false) };
                for record in &batch {
                    check.record(batch.partition(), record.offset(), record.value())?;
                    if check.sums.messages == count {
                        break;
                    }
                }
            }
        }
        Ok(true)
    }

    /// Commits, or accepts, all records that were read.
    fn commit(&mut self) -> Result<(), Failure> {
        match self {
            Self::Plain(consumer) => consumer.commit_blocking(LEAVE_WITHIN)?,
            Self::Share(consumer) => {
                for result in consumer.commit_blocking(LEAVE_WITHIN)?.into_values() {
                    result?;
                }
            }
        }
        Ok(())
    }

    fn leave(self) -> Result<(), Failure> {
        match self {
            Self::Plain(consumer) => consumer.close_blocking(LEAVE_WITHIN)?,
            Self::Share(consumer) => consumer.close_blocking(LEAVE_WITHIN)?,
        }
        Ok(())
    }
}
