"""Transactions with kafka-python and with aiokafka: a group's records are moved in three transactions, of which the
second is aborted. Prints what a consumer of the same library reads as committed."""

import asyncio
import sys
import time

# The offsets up to which each transaction moves. The second one is aborted.
ENDS = [4, 7, 10]
ABORTED = 1
# Each client has a group of its own: none waits for the members of another one.
GROUP = f"movers-{sys.argv[1]}"
PATIENCE = 60


def up_to(end):
    return f"up to {end}".encode()


def kafka_python(bootstrap, source, sink):
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    at = TopicPartition(source, 0)
    consumer = KafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed")
    # One poll waits for all: kafka-python 3.0.12 loses an assignment that arrives between two polls, and has none from then on. It
    # joins twice here, as its first metadata has no topic.
    deadline = time.monotonic() + PATIENCE
    taken = 0
    while taken < ENDS[-1]:
        assert time.monotonic() < deadline, f"{taken} records of the source"
        taken += sum(len(records) for records in consumer.poll(timeout_ms=PATIENCE * 1000).values())
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="kafka-python")
    producer.init_transactions()
    for number, end in enumerate(ENDS):
        producer.begin_transaction()
        producer.send(sink, up_to(end)).get(timeout=PATIENCE)
        offsets = {at: OffsetAndMetadata(end, "", -1)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if number == ABORTED:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    consumer.close()
    reader = KafkaConsumer(
        sink, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed",
        consumer_timeout_ms=PATIENCE * 1000)
    for record in reader:
        print(record.value.decode())
        if record.value == up_to(ENDS[-1]):
            break
    reader.close()


def aiokafka(bootstrap, source, sink):
    asyncio.run(asyncio.wait_for(in_loop(bootstrap, source, sink), PATIENCE))


async def in_loop(bootstrap, source, sink):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    at = TopicPartition(source, 0)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aiokafka")
    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed")
    await producer.start()
    await consumer.start()
    for _ in range(ENDS[-1]):
        await consumer.getone()
    for number, end in enumerate(ENDS):
        await producer.begin_transaction()
        await producer.send_and_wait(sink, up_to(end))
        await producer.send_offsets_to_transaction({at: end}, GROUP)
        if number == ABORTED:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    await producer.stop()
    await consumer.stop()
    reader = AIOKafkaConsumer(
        sink, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed")
    await reader.start()
    async for record in reader:
        print(record.value.decode())
        if record.value == up_to(ENDS[-1]):
            break
    await reader.stop()


{"kafka-python": kafka_python, "aiokafka": aiokafka}[sys.argv[1]](*sys.argv[2:])
