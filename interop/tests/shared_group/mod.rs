//! One group of the new protocol (KIP-848) whose members are on different clients: Java's, librdkafka, franz-go and ours.
//!
//! Members join, leave and die while records are produced. In the end each partition has one owner, each record was read once,
//! and the committed offsets are the ends of the partitions. Then a group migrates from the classic protocol and back.

mod members;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ottla_client::{Admin, Config, OffsetAt, Producer, Record, TopicPartition};
use ottla_interop::{Cluster, Failure, GroupMember, Peer, on_application_brokers, require, wait_until};

use crate::foreign::in_runtime;
use members::{Member, MemberOutput};

const TOPIC: &str = "shared";
const PARTITIONS: i32 = 8;

/// The records of each partition in one burst.
const BURST: i32 = 25;

/// A rebalance takes some heartbeats, or the session of a member that died. A JVM starts meanwhile.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);

#[test]
fn members_on_four_clients_share_a_group() -> Result<(), Failure> {
    require!(Peer::Applications);
    require!(Peer::Go);
    require!(Peer::Librdkafka);
    on_application_brokers(|cluster| {
        let mut story = Story::begin(cluster, "four-clients")?;
        story.join("java", Some(GroupMember::Java), "consumer")?;
        story.settle("one owns all")?;
        story.produce();
        story.join("librdkafka", Some(GroupMember::Librdkafka), "consumer")?;
        story.join("franz-go", Some(GroupMember::FranzGo), "consumer")?;
        story.join("ours", None, "consumer")?;
        story.settle("four share")?;
        story.produce();
        story.leave("librdkafka")?;
        story.produce();
        story.settle("one has left")?;
        story.join("librdkafka again", Some(GroupMember::Librdkafka), "consumer")?;
        story.settle("it is back")?;
        story.produce();
        // A record that the member has printed may be read again if the commit is lost with it.
        story.read_all()?;
        story.kill("franz-go")?;
        story.settle("one has died")?;
        story.produce();
        story.join("franz-go again", Some(GroupMember::FranzGo), "consumer")?;
        story.settle("another one has its place")?;
        story.leave("ours")?;
        story.produce();
        story.settle("ours has left")?;
        story.end()
    })
}

/// Classic members on Java's client are replaced by new ones, and those by a classic one on librdkafka: both conversions are
/// online.
#[test]
fn a_group_migrates_to_the_new_protocol_and_back() -> Result<(), Failure> {
    require!(Peer::Applications);
    require!(Peer::Librdkafka);
    on_application_brokers(|cluster| {
        let mut story = Story::begin(cluster, "migration")?;
        story.join("classic", Some(GroupMember::Java), "classic")?;
        story.join("classic 2", Some(GroupMember::Java), "classic")?;
        story.settle("two classic members share")?;
        assert_eq!(story.group_kind(), "classic");
        story.produce();
        story.join("new", Some(GroupMember::Java), "consumer")?;
        story.settle("members of both protocols share")?;
        assert_eq!(story.group_kind(), "consumer");
        story.produce();
        story.leave("classic")?;
        story.join("new 2", Some(GroupMember::Java), "consumer")?;
        story.leave("classic 2")?;
        story.produce();
        story.settle("all members are new ones")?;
        story.join("classic 3", Some(GroupMember::Librdkafka), "classic")?;
        story.settle("a classic member joins the new ones")?;
        story.produce();
        story.leave("new")?;
        story.settle("a new member has left")?;
        story.produce();
        // A commit fails if the member has missed a change of the generation.
        story.read_all()?;
        story.leave("new 2")?;
        story.settle("only a classic member is left")?;
        assert_eq!(story.group_kind(), "classic");
        story.produce();
        story.end()
    })
}

/// A group of one topic, and what its members have read.
struct Story<'a> {
    cluster: &'a dyn Cluster,
    group: &'static str,
    topic: String,
    members: Vec<(&'static str, Member)>,
    /// The output of members that have ended.
    past: Vec<MemberOutput>,
    /// The records of each partition.
    produced: i64,
}

impl<'a> Story<'a> {
    fn begin(cluster: &'a dyn Cluster, group: &'static str) -> Result<Self, Failure> {
        let topic = format!("{TOPIC}-{group}");
        cluster.create_topic_quickly(&topic, PARTITIONS as u32)?;
        Ok(Self { cluster, group, topic, members: Vec::new(), past: Vec::new(), produced: 0 })
    }

    /// Starts a member; `None` is our client.
    fn join(
        &mut self,
        name: &'static str,
        client: Option<GroupMember>,
        protocol: &str,
    ) -> Result<(), Failure> {
        let member =
            Member::start(name, client, [&self.cluster.bootstrap(), &self.topic, self.group, protocol])?;
        self.members.push((name, member));
        Ok(())
    }

    fn take(&mut self, name: &str) -> Member {
        let at = self.members.iter().position(|(known, _)| *known == name).expect("a member of that name");
        self.members.remove(at).1
    }

    fn leave(&mut self, name: &str) -> Result<(), Failure> {
        let output = self.take(name).leave()?;
        self.past.push(output);
        Ok(())
    }

    fn kill(&mut self, name: &str) -> Result<(), Failure> {
        let output = self.take(name).kill()?;
        self.past.push(output);
        Ok(())
    }

    /// Produces a burst to every partition.
    fn produce(&mut self) {
        in_runtime(async {
            let producer = Producer::new(Config::new(self.cluster.bootstrap())).expect("a producer");
            for number in 0..BURST * PARTITIONS {
                let record = Record::to(&self.topic).partition(number % PARTITIONS).value("one");
                let _unawaited = producer.enqueue(record).await.expect("taken");
            }
            producer.flush(SETTLED_WITHIN).await.expect("written");
        });
        self.produced += i64::from(BURST);
    }

    /// Waits until every member owns partitions, and each partition has one owner.
    fn settle(&mut self, what: &str) -> Result<(), Failure> {
        let all: BTreeSet<i32> = (0..PARTITIONS).collect();
        let mut shares = BTreeMap::new();
        let settled = wait_until(what, SETTLED_WITHIN, || {
            let is_alive = self.members.iter_mut().all(|(_, member)| member.is_alive());
            shares = self.members.iter().map(|(name, member)| (*name, member.output().owned)).collect();
            let owned: Vec<i32> = shares.values().flatten().copied().collect();
            let is_shared = owned.len() == all.len() && owned.iter().copied().collect::<BTreeSet<_>>() == all;
            let is_settled = is_shared && shares.values().all(|owned| !owned.is_empty());
            (is_settled || !is_alive).then_some(is_alive)
        });
        match settled {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failure(&format!("{what}: a member has ended: {shares:?}"))),
            Err(failure) => Err(self.failure(&format!("{failure}: {shares:?}"))),
        }
    }

    /// Waits until every record was read.
    fn read_all(&mut self) -> Result<(), Failure> {
        let mut missing = BTreeSet::new();
        let read = wait_until("all records are read", SETTLED_WITHIN, || {
            missing = self.written().collect();
            let is_alive = self.members.iter_mut().all(|(_, member)| member.is_alive());
            for record in self.outputs().flat_map(|output| output.records) {
                missing.remove(&record);
            }
            (missing.is_empty() || !is_alive).then_some(())
        });
        if missing.is_empty() {
            return Ok(());
        }
        let why = read.err().map_or("a member has ended".to_owned(), |failure| failure.to_string());
        let owners: Vec<_> =
            self.members.iter().map(|(name, member)| (name, member.output().owned)).collect();
        let committed = self.committed();
        Err(self.failure(&format!("{why}: missing {missing:?}, owners {owners:?}, committed {committed:?}")))
    }

    /// Every record that was produced: partition and offset.
    fn written(&self) -> impl Iterator<Item = (i32, i64)> + use<> {
        let produced = self.produced;
        (0..PARTITIONS).flat_map(move |at| (0..produced).map(move |offset| (at, offset)))
    }

    fn committed(&self) -> BTreeMap<TopicPartition, i64> {
        in_runtime(async {
            let admin = Admin::new(Config::new(self.cluster.bootstrap())).expect("an admin");
            admin.group_offsets(self.group, None).await.expect("described")
        })
    }

    /// The kind of the group, as its coordinator describes it.
    fn group_kind(&self) -> String {
        in_runtime(async {
            let admin = Admin::new(Config::new(self.cluster.bootstrap())).expect("an admin");
            admin.describe_groups(&[self.group]).await.expect("described").remove(0).kind
        })
    }

    fn outputs(&self) -> impl Iterator<Item = MemberOutput> {
        self.past.iter().cloned().chain(self.members.iter().map(|(_, member)| member.output()))
    }

    /// A failure with the output of the members.
    fn failure(&self, what: &str) -> Failure {
        let quote = |failure, (name, member): &(&str, Member)| {
            member.quoted(&Failure::new(format!("{failure}\n{name}:")))
        };
        self.members.iter().fold(Failure::new(format!("{}: {what}", self.group)), quote)
    }

    /// Reads the rest. Each record must have been read once, and all are committed.
    fn end(mut self) -> Result<(), Failure> {
        self.read_all()?;
        let mut read: Vec<(i32, i64)> = self.outputs().flat_map(|output| output.records).collect();
        read.sort_unstable();
        if !read.iter().copied().eq(self.written()) {
            let twice: Vec<_> =
                read.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
            return Err(self.failure(&format!("records were read twice: {twice:?}")));
        }
        while let Some((name, _)) = self.members.first() {
            self.leave(name)?;
        }
        let ends = in_runtime(async {
            let admin = Admin::new(Config::new(self.cluster.bootstrap())).expect("an admin");
            let at = |partition| TopicPartition::new(&self.topic, partition);
            let latest: Vec<_> = (0..PARTITIONS).map(|partition| (at(partition), OffsetAt::Latest)).collect();
            admin.list_offsets(&latest).await.expect("listed")
        });
        assert_eq!(self.committed(), ends, "{}: committed offsets", self.group);
        Ok(())
    }
}
