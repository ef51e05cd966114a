"""A member of a group, on confluent-kafka: consumes a topic until SIGTERM, and commits each record before it prints it.

Its output has a line "owns PARTITION.." for each change of its assignment, and a line "record PARTITION OFFSET" for each record.
The last line is "left".
"""

import signal
import sys

from confluent_kafka import Consumer

running = True
owned = set()


def stop(*_):
    global running
    running = False


def show():
    print("owns", *sorted(owned), flush=True)


def assigned(_, partitions):
    owned.update(at.partition for at in partitions)
    show()


def revoked(_, partitions):
    owned.difference_update(at.partition for at in partitions)
    show()


signal.signal(signal.SIGTERM, stop)
bootstrap, topic, group, protocol = sys.argv[1:]
settings = {
    "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol,
    "auto.offset.reset": "earliest", "enable.auto.commit": False,
}
consumer = Consumer(settings)
consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
while running:
    message = consumer.poll(0.1)
    if message is None:
        continue
    if message.error():
        raise SystemExit(f"poll: {message.error()}")
    consumer.commit(message=message, asynchronous=False)
    print("record", message.partition(), message.offset(), flush=True)
consumer.close()
print("left", flush=True)
