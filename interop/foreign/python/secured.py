"""Produces a record and reads its topic, on confluent-kafka with a properties file. Prints the values, or the error of the login.

Arguments: the file, the topic, the value, and properties that replace those of the file. The property `oauth.token` is the token
of a callback.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, Producer

file, topic, value, *more = sys.argv[1:]
refused = []


def failed(error):
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        refused.append(error.str())


with open(file) as lines:
    pairs = [line.strip() for line in lines if line.strip() and not line.startswith("#")] + more
settings = dict(pair.split("=", 1) for pair in pairs)
settings["error_cb"] = failed
token = settings.pop("oauth.token", None)
if token:
    # The broker decides whether it has expired.
    settings["oauth_cb"] = lambda _: (token, time.time() + 600)
producer = Producer(settings)
producer.produce(topic, value)
deadline = time.monotonic() + 60
while producer.flush(0.1) and not refused and time.monotonic() < deadline:
    pass
if refused:
    print("refused:", refused[0], flush=True)
    producer.purge()
    raise SystemExit(0)
consumer = Consumer({"group.id": "secured", "auto.offset.reset": "earliest"} | settings)
consumer.subscribe([topic])
while time.monotonic() < deadline:
    message = consumer.poll(0.1)
    if message is None:
        continue
    if message.error():
        raise SystemExit(f"poll: {message.error()}")
    print("read:", message.value().decode(), flush=True)
    if message.value().decode() == value:
        break
consumer.close()
