"""Tests of confluent-kafka's ShareConsumer: `share.py STORY BOOTSTRAP NAME`. A failed test raises.

Its topics and groups begin with NAME. The brokers must have share groups (KIP-932).
"""

import sys
import threading
import time

from confluent_kafka import (
    AcknowledgeType, ConcurrentModificationException, DeserializingShareConsumer, IllegalStateException, ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.serialization import StringDeserializer

from stories import PATIENCE, eventually, fill, own, topic


def prepare(bootstrap, name, count, partitions=1):
    """Creates a topic with messages, and a group of the same name that begins at its beginning."""
    topic(bootstrap, name, partitions)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([change])[change].result(PATIENCE)
    fill(bootstrap, name, count)
    return name


def member(bootstrap, group, mode="implicit", kind=ShareConsumer, **properties):
    consumer = kind({"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": mode, **properties})
    consumer.subscribe([group])
    return consumer


def batch(consumer):
    """The messages of the next poll that has any."""
    return eventually("messages", lambda: consumer.poll(0.5))


def values(messages):
    return sorted(message.value() for message in messages)


def share_implicit(bootstrap):
    name = prepare(bootstrap, own("implicit"), 10)
    with member(bootstrap, name) as consumer:
        assert consumer.subscription() == [name], consumer.subscription()
        messages = batch(consumer)
        assert len(messages) == 10 and messages.count() == 10 and not messages.is_empty()
        message = messages[0]
        assert (message.topic(), message.partition(), message.offset(), message.key()) == (name, 0, 0, b"key 0")
        assert message.error() is None
        try:
            consumer.acknowledge(message)
            raise AssertionError("polls acknowledge")
        except IllegalStateException:
            pass
        results = consumer.commit_sync(PATIENCE)
        assert {(at.topic, at.partition): error for at, error in results.items()} == {(name, 0): None}, results
        assert consumer.commit_sync(PATIENCE) == {}
        assert len(consumer.poll(0.5)) == 0
    # Everything is accepted.
    with member(bootstrap, name) as consumer:
        assert len(consumer.poll(2)) == 0


def share_explicit(bootstrap):
    name = prepare(bootstrap, own("explicit"), 4)
    consumer = member(bootstrap, name, "explicit")
    seen = []
    consumer.set_acknowledgement_commit_callback(lambda offsets, error: seen.append((offsets, error)))
    messages = list(batch(consumer))
    assert len(messages) == 4
    try:
        consumer.poll(0)
        raise AssertionError("no message is acknowledged")
    except IllegalStateException:
        pass
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[1], AcknowledgeType.RELEASE)
    consumer.acknowledge(messages[2], AcknowledgeType.REJECT)
    consumer.acknowledge_offset(name, 0, 3, AcknowledgeType.ACCEPT)
    try:
        consumer.acknowledge_offset(name, 0, 99)
        raise AssertionError("it was not delivered")
    except IllegalStateException:
        pass
    for wrong in [lambda: consumer.acknowledge(messages[0], 9), lambda: consumer.acknowledge_offset(name, -1, 0)]:
        try:
            wrong()
            raise AssertionError("a wrong argument")
        except ValueError:
            pass
    assert list(consumer.commit_sync(PATIENCE).values()) == [None]
    offsets, error = seen.pop()
    assert error is None and offsets == {TopicPartition(name, 0): {0, 1, 2, 3}}, (offsets, error)
    again = list(batch(consumer))
    assert values(again) == [b"value 1"], values(again)
    consumer.acknowledge(again[0])
    consumer.commit_async()
    eventually("the result", lambda: consumer.poll(0.1) is not None and seen)
    consumer.close()
    try:
        consumer.poll(0)
        raise AssertionError("it is closed")
    except IllegalStateException:
        pass


def share_release_at_close(bootstrap):
    name = prepare(bootstrap, own("close"), 3)
    first = member(bootstrap, name, "explicit")
    messages = list(batch(first))
    first.acknowledge(messages[0])
    del messages
    first.close()
    with member(bootstrap, name) as second:
        again = values(batch(second))
        assert again == [b"value 1", b"value 2"], again


def share_two_members(bootstrap):
    name = prepare(bootstrap, own("two"), 0)
    members = [member(bootstrap, name), member(bootstrap, name)]
    seen, counts, deadline = set(), [0, 0], time.monotonic() + PATIENCE
    while not all(counts):
        assert time.monotonic() < deadline, counts
        fill(bootstrap, name, 10)
        for index, consumer in enumerate(members):
            for message in consumer.poll(0.1):
                assert message.offset() not in seen, message.offset()
                seen.add(message.offset())
                counts[index] += 1
    for consumer in members:
        consumer.close()


def share_misuse(bootstrap):
    name = prepare(bootstrap, own("misuse"), 0)
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": name})
    try:
        consumer.poll(0)
        raise AssertionError("it has no subscription")
    except IllegalStateException:
        pass
    for properties in [{"enable.auto.commit": False}, {"auto.offset.reset": "earliest"}, {"group.instance.id": "i"}]:
        try:
            ShareConsumer({"bootstrap.servers": bootstrap, "group.id": name, **properties})
            raise AssertionError(properties)
        except ValueError as refused:
            assert next(iter(properties)) in str(refused), refused
    consumer.subscribe([name])

    def poll():
        while True:
            try:
                return consumer.poll(3)
            except ConcurrentModificationException:
                # The first thread was inside a function.
                pass

    polling = threading.Thread(target=poll)
    polling.start()

    def refused():
        try:
            consumer.subscription()
            return False
        except ConcurrentModificationException:
            return True

    eventually("a second thread is refused", refused)
    polling.join()
    consumer.unsubscribe()
    assert consumer.subscription() == []
    consumer.close()


def share_deserializers_and_statistics(bootstrap):
    name = prepare(bootstrap, own("texts"), 2)
    statistics = []
    consumer = member(bootstrap, name, kind=DeserializingShareConsumer, **{
        "value.deserializer": StringDeserializer("utf_8"), "statistics.interval.ms": 100, "stats_cb": statistics.append,
    })
    assert values(batch(consumer)) == ["value 0", "value 1"]
    eventually("statistics", lambda: consumer.poll(0.1) is not None and statistics)
    consumer.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
