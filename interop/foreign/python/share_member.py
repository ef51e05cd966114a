"""A member of a share group on confluent-kafka. Prints the values of the records that it has accepted, until SIGTERM.

Arguments: a file with properties, the topic, and the group.
"""

import signal
import sys

from confluent_kafka import ShareConsumer

PATIENCE = 30

file, topic, group = sys.argv[1:]
ends = []
signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
with open(file) as lines:
    settings = dict(line.strip().split("=", 1) for line in lines)
consumer = ShareConsumer(settings | {"group.id": group, "share.acknowledgement.mode": "implicit"})
consumer.subscribe([topic])
while not ends:
    messages = list(consumer.poll(0.5))
    if not messages:
        continue
    for message in messages:
        if message.error():
            raise SystemExit(f"poll: {message.error()}")
    for partition, error in consumer.commit_sync(PATIENCE).items():
        if error:
            raise SystemExit(f"{partition}: {error}")
    for message in messages:
        print(message.value().decode(), flush=True)
consumer.close()
