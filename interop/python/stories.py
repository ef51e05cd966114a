"""Tests of confluent-kafka for Python: `stories.py STORY BOOTSTRAP NAME`. A failed test raises.

Its topics and groups begin with NAME.
"""

import json
import logging
import sys
import threading
import time
import warnings

import confluent_kafka
from confluent_kafka import (
    Consumer, KafkaError, KafkaException, Producer, TopicPartition, TIMESTAMP_CREATE_TIME,
    OFFSET_BEGINNING, OFFSET_END,
)
from confluent_kafka import (
    ConsumerGroupTopicPartitions, ElectionType, IsolationLevel, TopicCollection,
)
from confluent_kafka.admin import (
    AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient, AlterConfigOpType, ConfigEntry,
    ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourcePatternType, ResourceType, ScramCredentialInfo,
    ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion,
)

# Generous: only a bug reaches it.
PATIENCE = 30
# Members of a classic group learn of a rebalance with their next heartbeat.
SOON_TOLD = {"heartbeat.interval.ms": 200}


def eventually(what, look):
    """Waits until `look` returns something."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE} s: {what}")


def own(name):
    """A unique name in the cluster."""
    return f"{sys.argv[3]}-py-{name}"


def topic(bootstrap, name, partitions=1):
    """Creates a topic and waits until the brokers have it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE)
    eventually(name, lambda: len(admin.list_topics(name, timeout=PATIENCE).topics[name].partitions) == partitions)
    return name


def fill(bootstrap, name, count, partition=None, **properties):
    """Delivers `count` messages and returns their offsets by partition."""
    producer = Producer({"bootstrap.servers": bootstrap, **properties})
    delivered = []

    def report(error, message):
        assert error is None, error
        delivered.append((message.partition(), message.offset()))

    for n in range(count):
        where = {} if partition is None else {"partition": partition}
        producer.produce(name, key=f"key {n}", value=f"value {n}", on_delivery=report, **where)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    assert len(delivered) == count
    return delivered


def take(consumer, count):
    """The next `count` messages."""
    taken = []

    def one():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            taken.append(message)
        elif message is not None and message.error().code() != KafkaError._PARTITION_EOF:
            raise KafkaException(message.error())
        return len(taken) == count

    eventually(f"{count} messages", one)
    return taken


def reader(bootstrap, group, **properties):
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **properties})


def produce_and_consume(bootstrap):
    version, number = confluent_kafka.libversion()
    assert number >= 0x020f00ff and version[0].isdigit(), (version, number)
    name = topic(bootstrap, own("parts"), 2)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    reports = []
    headers = [("origin", b"py"), ("empty", b""), ("none", None), ("origin", b"again")]
    producer.produce(name, value=b"v", key=b"k", partition=1, timestamp=1234567890123, headers=headers,
                     on_delivery=lambda error, message: reports.append((error, message)))
    producer.produce(name, key="tombstone", partition=1)
    producer.produce(name, value="", partition=1)
    assert len(producer) == 3
    assert producer.flush(PATIENCE) == 0
    error, message = reports[0]
    assert error is None and message.topic() == name and message.partition() == 1 and message.offset() == 0
    assert message.latency() is not None and message.latency() >= 0

    consumer = reader(bootstrap, own("parts"), **{"enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 1, OFFSET_BEGINNING)])
    first, tombstone, empty = take(consumer, 3)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers), first.headers()
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1234567890123)
    assert tombstone.value() is None and tombstone.key() == b"tombstone" and tombstone.headers() is None
    assert empty.value() == b"" and empty.key() is None
    end = eventually("the end", lambda: consumer.poll(0.2))
    assert end.error().code() == KafkaError._PARTITION_EOF and end.offset() == 3

    assert consumer.get_watermark_offsets(TopicPartition(name, 1), timeout=PATIENCE) == (0, 3)
    assert consumer.position([TopicPartition(name, 1)])[0].offset == 3
    consumer.seek(TopicPartition(name, 1, 1))
    assert take(consumer, 1)[0].offset() == 1
    found = consumer.offsets_for_times([TopicPartition(name, 1, 1234567890124)], timeout=PATIENCE)
    assert found[0].offset == 1, found
    consumer.pause([TopicPartition(name, 1)])
    consumer.seek(TopicPartition(name, 1, 0))
    assert consumer.poll(0.5) is None
    consumer.resume([TopicPartition(name, 1)])
    assert take(consumer, 1)[0].offset() == 0
    assert [partition.partition for partition in consumer.assignment()] == [1]
    consumer.unassign()
    assert consumer.assignment() == []
    consumer.close()


def batches(bootstrap):
    name = topic(bootstrap, own("batches"), 3)
    fill(bootstrap, name, 3000, **{"linger.ms": 20, "enable.idempotence": True})
    consumer = reader(bootstrap, own("batches"))
    consumer.subscribe([name])
    seen = []

    def more():
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            seen.append((message.partition(), message.offset()))
        return len(seen) == 3000

    eventually("3000 messages", more)
    assert len(set(seen)) == 3000
    assert all(seen.index((p, o)) < seen.index((p, o + 1)) for p, o in seen[:50] if (p, o + 1) in seen)
    consumer.close()


def commits(bootstrap):
    name = topic(bootstrap, own("commits"))
    fill(bootstrap, name, 10)
    committed = []
    properties = {"enable.auto.commit": False, "on_commit": lambda error, offsets: committed.append((error, offsets))}
    consumer = reader(bootstrap, own("commits"), **properties)
    consumer.subscribe([name])
    messages = take(consumer, 5)
    done = consumer.commit(message=messages[2], asynchronous=False)
    assert (done[0].topic, done[0].offset) == (name, 3), done
    consumer.commit(offsets=[TopicPartition(name, 0, 4, "said")])
    eventually("a commit's callback", lambda: consumer.poll(0.1) and False or committed)
    assert committed[0][0] is None, committed
    asked = consumer.committed([TopicPartition(name, 0)], timeout=PATIENCE)[0]
    assert (asked.offset, asked.metadata) == (4, "said"), asked
    metadata = consumer.consumer_group_metadata()
    assert metadata is not None and consumer.memberid()
    consumer.close()

    again = reader(bootstrap, own("commits"), **{"enable.auto.offset.store": False, "enable.auto.commit": True})
    again.subscribe([name])
    message = take(again, 1)[0]
    assert message.offset() == 4
    again.store_offsets(message=message)
    again.close()
    third = reader(bootstrap, own("commits"))
    third.subscribe([name])
    assert take(third, 1)[0].offset() == 5, "close commits what was stored"
    third.close()
    try:
        third.poll(0)
        raise AssertionError("a closed consumer polls")
    except RuntimeError as error:
        assert "closed" in str(error), error


def two_members(bootstrap, name, properties):
    """A second member joins and leaves; every message is seen once."""
    topic(bootstrap, name, 4)
    events = {"a": [], "b": []}

    def member(letter):
        consumer = reader(bootstrap, name, **{"client.id": letter, **properties})

        def note(what):
            return lambda _, partitions: events[letter].append((what, sorted(p.partition for p in partitions)))

        consumer.subscribe([name], on_assign=note("assign"), on_revoke=note("revoke"), on_lost=note("lost"))
        return consumer

    def held(consumer):
        consumer.poll(0.05)
        return sorted(partition.partition for partition in consumer.assignment())

    a = member("a")
    eventually("a has all", lambda: held(a) == [0, 1, 2, 3])
    b = member("b")

    def shared():
        mine, theirs = held(a), held(b)
        return len(mine) == 2 and len(theirs) == 2 and sorted(mine + theirs) == [0, 1, 2, 3]

    eventually("both have two", shared)
    fill(bootstrap, name, 200)
    seen = []

    def both():
        for consumer in (a, b):
            for message in consumer.consume(100, 0.1):
                assert message.error() is None, message.error()
                seen.append((message.partition(), message.offset()))
        return len(seen) >= 200

    eventually("200 messages", both)
    assert len(seen) == len(set(seen)) == 200
    b.close()
    eventually("a has all again", lambda: held(a) == [0, 1, 2, 3])
    a.close()
    assert events["a"][0] == ("assign", [0, 1, 2, 3]), events
    assert any(what == "revoke" for what, _ in events["a"]), events
    assert not any(what == "lost" for letter in events for what, _ in events[letter]), events
    return events


def eager_group(bootstrap):
    two_members(bootstrap, own("eager"), {"partition.assignment.strategy": "roundrobin", **SOON_TOLD})


def cooperative_group(bootstrap):
    properties = {"partition.assignment.strategy": "cooperative-sticky", **SOON_TOLD}
    events = two_members(bootstrap, own("cooperative"), properties)
    revoked = next(partitions for what, partitions in events["a"] if what == "revoke")
    assert len(revoked) == 2, f"only what the other gets is given up: {events}"


def next_generation_group(bootstrap):
    two_members(bootstrap, own("next"), {"group.protocol": "consumer"})
    try:
        reader(bootstrap, "g", **{"group.protocol": "consumer", "session.timeout.ms": 10000})
        raise AssertionError("session.timeout.ms is the broker's in this protocol")
    except KafkaException as error:
        assert "session.timeout.ms" in str(error), error


def transactions(bootstrap):
    source, sink = topic(bootstrap, own("source")), topic(bootstrap, own("sink"))
    fill(bootstrap, source, 10)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": own("transactions")})
    producer.init_transactions(PATIENCE)
    consumer = reader(bootstrap, own("transactions"), **{"enable.auto.commit": False})
    consumer.subscribe([source])
    for outcome in ("abort", "commit"):
        messages = take(consumer, 5)
        producer.begin_transaction()
        for message in messages:
            producer.produce(sink, value=message.value() + b" " + outcome.encode())
        next_offset = TopicPartition(source, 0, messages[-1].offset() + 1)
        producer.send_offsets_to_transaction([next_offset], consumer.consumer_group_metadata(), PATIENCE)
        if outcome == "abort":
            producer.abort_transaction(PATIENCE)
        else:
            producer.commit_transaction(PATIENCE)
    assert consumer.committed([TopicPartition(source, 0)], timeout=PATIENCE)[0].offset == 10
    consumer.close()

    committed = reader(bootstrap, own("sink"), **{"isolation.level": "read_committed"})
    committed.subscribe([sink])
    values = [message.value() for message in take(committed, 5)]
    assert all(value.endswith(b" commit") for value in values), values
    committed.close()

    newer = Producer({"bootstrap.servers": bootstrap, "transactional.id": own("transactions")})
    newer.init_transactions(PATIENCE)
    try:
        producer.begin_transaction()
        producer.produce(sink, value="fenced")
        producer.commit_transaction(PATIENCE)
        raise AssertionError("the older producer is fenced")
    except KafkaException as error:
        assert error.args[0].fatal() or error.args[0].txn_requires_abort(), error.args[0]
    try:
        newer.commit_transaction(PATIENCE)
        raise AssertionError("no transaction was begun")
    except KafkaException as error:
        assert error.args[0].code() == KafkaError._STATE, error.args[0]


def statistics_and_logs(bootstrap):
    name = topic(bootstrap, own("statistics"))
    statistics, records, errors = [], [], []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    logger = logging.getLogger("story")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Keep())
    logger.propagate = False
    producer = Producer({
        "bootstrap.servers": bootstrap, "statistics.interval.ms": 100, "stats_cb": statistics.append,
        "debug": "broker,topic,msg", "error_cb": errors.append, "client.id": "teller"}, logger=logger)
    producer.produce(name, value="counted")
    assert producer.flush(PATIENCE) == 0
    found = eventually("statistics with a message in them", lambda: producer.poll(0.1) is None or [
        parsed for parsed in map(json.loads, statistics) if parsed.get("txmsgs", 0) >= 1])[0]
    assert found["type"] == "producer" and found["client_id"] == "teller" and name in found["topics"], found
    for key in ("name", "ts", "time", "age", "msg_cnt", "tx", "rx", "brokers"):
        assert key in found, key
    broker = next(iter(found["brokers"].values()))
    for key in ("name", "nodeid", "state", "rtt", "txbytes", "outbuf_cnt", "int_latency"):
        assert key in broker, key
    eventually("log lines", lambda: producer.poll(0.1) is None or records)
    assert any("teller" in line and "[thrd:" in line for line in records), records[:5]

    lost = Producer({"bootstrap.servers": "127.0.0.1:1", "error_cb": errors.append, "message.timeout.ms": 500})
    reports = []
    lost.produce(name, value="lost", on_delivery=lambda error, _: reports.append(error))
    lost.flush(PATIENCE)
    assert reports[0].code() == KafkaError._MSG_TIMED_OUT, reports
    eventually("an error's callback", lambda: lost.poll(0.1) is None or errors)
    assert {error.code() for error in errors} <= {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}, errors


def misuse(bootstrap):
    for properties, part in [({"no.such.property": 1}, "no.such.property"), ({"socket.timeout.ms": "soon"}, "socket.timeout.ms")]:
        try:
            Producer({"bootstrap.servers": bootstrap, **properties})
            raise AssertionError(properties)
        except KafkaException as error:
            assert part in str(error), error
    small = Producer({"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 3, "log_level": 0})
    try:
        for _ in range(10):
            small.produce("anywhere", b"x")
        raise AssertionError("the queue has no end")
    except BufferError as error:
        assert "Queue full" in str(error), error
    small.purge()
    assert small.flush(PATIENCE) == 0
    big = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 1000})
    try:
        big.produce("anywhere", b"x" * 2000)
        raise AssertionError("a message that is too large is taken")
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE, error
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic("", 1, 1)])[""].result(PATIENCE)
        raise AssertionError("a topic without a name")
    except (KafkaException, ValueError):
        pass
    consumer = reader(bootstrap, own("misuse"))
    try:
        consumer.commit(asynchronous=False)
        raise AssertionError("nothing to commit, and no error")
    except KafkaException as error:
        assert error.args[0].code() == KafkaError._NO_OFFSET, error
    threads = [threading.Thread(target=consumer.poll, args=(0.1,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    consumer.close()


def admin_topics(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name, gone, dry = own("admin"), own("gone"), own("not-made")
    made = admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "60000"}), NewTopic(gone, 1, 1)])
    for future in made.values():
        assert future.result(PATIENCE) is None
    refused(KafkaError.TOPIC_ALREADY_EXISTS, lambda: admin.create_topics([NewTopic(name, 1, 1)])[name])
    admin.create_topics([NewTopic(dry, 1, 1)], validate_only=True)[dry].result(PATIENCE)

    listed = eventually("both topics", lambda: knows(admin, {name, gone}))
    assert dry not in listed.topics and len(listed.topics[name].partitions) == 2
    assert listed.brokers and listed.cluster_id == admin.cluster_id(timeout=PATIENCE)
    described = admin.describe_topics(TopicCollection([name]), include_authorized_operations=True)[name].result(PATIENCE)
    assert described.name == name and len(described.partitions) == 2 and not described.is_internal
    assert described.partitions[0].leader.id >= 0 and str(described.topic_id)
    cluster = admin.describe_cluster().result(PATIENCE)
    assert cluster.cluster_id == listed.cluster_id and cluster.nodes and cluster.controller.id >= 0

    admin.create_partitions([NewPartitions(name, 4)])[name].result(PATIENCE)
    eventually("4 partitions", lambda: len(admin.list_topics(name, PATIENCE).topics[name].partitions) == 4)

    admin.delete_topics([gone])[gone].result(PATIENCE)
    eventually("gone", lambda: gone not in admin.list_topics(timeout=PATIENCE).topics)
    refused(KafkaError.UNKNOWN_TOPIC_OR_PART, lambda: admin.delete_topics([gone])[gone])


def admin_settings(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = own("settings")
    admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "60000"})])[name].result(PATIENCE)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)

    def config_of(key):
        return admin.describe_configs([resource])[resource].result(PATIENCE)[key]

    kept = eventually("the settings", lambda: config_of("retention.ms"))
    assert kept.value == "60000" and not kept.is_default and not kept.is_read_only and not kept.is_sensitive
    assert config_of("cleanup.policy").is_default and config_of("cleanup.policy").value == "delete"
    change = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[
        ConfigEntry("retention.ms", "120000", incremental_operation=AlterConfigOpType.SET)])
    admin.incremental_alter_configs([change])[change].result(PATIENCE)
    eventually("the new value", lambda: config_of("retention.ms").value == "120000")
    replaced = ConfigResource(ConfigResource.Type.TOPIC, name, set_config={"segment.bytes": "2000000"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        admin.alter_configs([replaced])[replaced].result(PATIENCE)
        eventually("all settings replaced", lambda: config_of("segment.bytes").value == "2000000")
        assert config_of("retention.ms").is_default
        wrong = ConfigResource(ConfigResource.Type.TOPIC, name, set_config={"segment.bytes": "large"})
        refused(KafkaError.INVALID_CONFIG, lambda: admin.alter_configs([wrong])[wrong])


def knows(admin, names):
    """The metadata of all topics, once these are among them."""
    listed = admin.list_topics(timeout=PATIENCE)
    return listed if names <= set(listed.topics) else None


def refused(code, ask):
    """Asserts that the call fails with this error."""
    try:
        answer = ask().result(PATIENCE)
    except KafkaException as error:
        assert error.args[0].code() == code, error
    else:
        raise AssertionError(f"not refused: {answer}")


def admin_groups_and_offsets(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    group = own("offsets-readers")
    name = topic(bootstrap, own("offsets"))
    fill(bootstrap, name, 10, partition=0)
    partition = TopicPartition(name, 0)
    for spec, offset in [(OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 10)]:
        found = admin.list_offsets({partition: spec})[partition].result(PATIENCE)
        assert found.offset == offset, (spec, found.offset)

    consumer = reader(bootstrap, group, **{"client.id": "watched"})
    consumer.subscribe([name])
    take(consumer, 10)
    consumer.commit(asynchronous=False)
    groups = admin.list_consumer_groups().result(PATIENCE)
    assert group in {listing.group_id for listing in groups.valid} and not groups.errors
    assert group in {listing.id for listing in admin.list_groups(timeout=PATIENCE)}
    watched = admin.list_groups(group, timeout=PATIENCE)[0]
    assert (watched.id, watched.state, watched.protocol_type) == (group, "Stable", "consumer"), watched
    assert [member.client_id for member in watched.members] == ["watched"]
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE)
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE and len(described.members) == 1
    member = described.members[0]
    assert member.client_id == "watched" and member.assignment.topic_partitions[0].topic == name
    consumer.close()

    asked = [ConsumerGroupTopicPartitions(group, [partition])]
    found = admin.list_consumer_group_offsets(asked)[group].result(PATIENCE)
    assert found.topic_partitions[0].offset == 10
    eventually("an empty group", lambda: admin.describe_consumer_groups([group])[group].result(PATIENCE).state
               == confluent_kafka.ConsumerGroupState.EMPTY)
    change = [ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, 3)])]
    admin.alter_consumer_group_offsets(change)[group].result(PATIENCE)
    assert admin.list_consumer_group_offsets(asked)[group].result(PATIENCE).topic_partitions[0].offset == 3
    admin.delete_consumer_groups([group])[group].result(PATIENCE)
    assert group not in {listing.group_id for listing in admin.list_consumer_groups().result(PATIENCE).valid}

    low = admin.delete_records([TopicPartition(name, 0, 4)])[partition].result(PATIENCE).low_watermark
    assert low == 4, low
    earliest = admin.list_offsets({partition: OffsetSpec.earliest()}, isolation_level=IsolationLevel.READ_COMMITTED)
    assert earliest[partition].result(PATIENCE).offset == 4


def admin_credentials_and_elections(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    shy = AdminClient({"bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
                       "sasl.username": "alice", "sasl.password": "before", "log_level": 0})
    shy.set_sasl_credentials("alice", "wonderland")
    # This cluster authorises no user, and reports it.
    refused(KafkaError.SECURITY_DISABLED, lambda: admin.create_acls([reading(own("acl"))])[reading(own("acl"))])

    user, mechanism = own("user"), ScramMechanism.SCRAM_SHA_256
    upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 8192), b"password", b"salt")
    admin.alter_user_scram_credentials([upsertion])[user].result(PATIENCE)

    def credentials():
        try:
            return admin.describe_user_scram_credentials([user])[user].result(PATIENCE)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND, error
            return None

    found = eventually("the credentials", credentials)
    assert (found.user, found.scram_credential_infos[0].mechanism) == (user, mechanism)
    assert found.scram_credential_infos[0].iterations == 8192
    assert user in admin.describe_user_scram_credentials().result(PATIENCE)
    admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, mechanism)])[user].result(PATIENCE)
    eventually("no credentials", lambda: credentials() is None)

    name = topic(bootstrap, own("elections"), 1)
    partition, absent = TopicPartition(name, 0), TopicPartition(name, 7)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [partition, absent]).result(PATIENCE)
    assert elected[partition].code() == KafkaError.ELECTION_NOT_NEEDED, elected
    assert elected[absent].code() == KafkaError.UNKNOWN_TOPIC_OR_PART, elected


def reading(name):
    return AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:alice", "*",
                      AclOperation.READ, AclPermissionType.ALLOW)


def admin_rights(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = own("rights")
    filters = AclBindingFilter(ResourceType.TOPIC, name, ResourcePatternType.ANY, None, None,
                               AclOperation.ANY, AclPermissionType.ANY)
    assert admin.create_acls([reading(name)])[reading(name)].result(PATIENCE) is None
    found = eventually("the binding", lambda: admin.describe_acls(filters).result(PATIENCE))
    assert found == [reading(name)], found
    deleted = admin.delete_acls([filters])[filters].result(PATIENCE)
    assert deleted == [reading(name)], deleted
    eventually("no binding", lambda: admin.describe_acls(filters).result(PATIENCE) == [])
    topic(bootstrap, name)
    described = admin.describe_topics(TopicCollection([name]), include_authorized_operations=True)[name].result(PATIENCE)
    assert AclOperation.WRITE in described.authorized_operations, described.authorized_operations
    cluster = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE)
    assert AclOperation.ALTER in cluster.authorized_operations, cluster.authorized_operations


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
