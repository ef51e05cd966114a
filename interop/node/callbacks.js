'use strict';

// Stories on the API of node-rdkafka: callbacks and events.

const assert = require('node:assert/strict');
const { AdminClient, CODES, HighLevelProducer, KafkaConsumer, Producer, createReadStream, createWriteStream } =
  require('@confluentinc/kafka-javascript');
const { BOOTSTRAP, PATIENCE_MS, SILENCE_MS, within, pause, eventually, called, emitted, refused, own, range } = require('./waits.js');

const ERRORS = CODES.ERRORS;
// Longer than a fetch takes.
const SEEK_AGAIN_MS = 5000;
const brokers = { 'metadata.broker.list': BOOTSTRAP };

/** Connects a client. Its other events are the story's. */
async function connect(client) {
  const ready = emitted(client, 'ready');
  const metadata = await called('connected', (done) => client.connect({ timeout: PATIENCE_MS }, done));
  const [info] = await ready;
  assert(info.name && metadata.brokers.length >= 1, info);
  return client;
}

async function disconnect(client) {
  const event = emitted(client, 'disconnected');
  await called('disconnected', (done) => client.disconnect(done));
  await event;
  assert(!client.isConnected());
}

async function topic(name, partitions = 1) {
  const admin = AdminClient.create(brokers);
  const settings = { topic: name, num_partitions: partitions, replication_factor: 1 };
  await called(name, (done) => admin.createTopic(settings, PATIENCE_MS, done));
  await eventually(`${partitions} partitions of ${name}`, async () => {
    try {
      const [found] = await called(name, (done) => admin.describeTopics([name], { timeout: PATIENCE_MS }, done));
      return !found.error && found.partitions.length === partitions;
    } catch (error) {
      if (error.code === ERRORS.ERR_UNKNOWN_TOPIC_OR_PART) return false;
      throw error;
    }
  });
  admin.disconnect();
  return name;
}

/** Delivers `count` messages to partition 0, with timestamps from 1000 on. */
async function fill(name, count) {
  const producer = await connect(new Producer({ ...brokers, dr_cb: true }));
  let delivered = 0;
  producer.on('delivery-report', () => { delivered++; });
  for (const n of range(0, count)) producer.produce(name, 0, Buffer.from(`value ${n}`), `key ${n}`, 1000 + n);
  await called('flushed', (done) => producer.flush(PATIENCE_MS, done));
  await disconnect(producer);
  assert.equal(delivered, count, 'a flush runs the reports');
}

const reader = (group, properties = {}, ofTopics = { 'auto.offset.reset': 'earliest' }) =>
  connect(new KafkaConsumer({ ...brokers, 'group.id': group, 'enable.auto.commit': false, ...properties }, ofTopics));

/** The next messages of a consumer in non-flowing mode. */
async function take(consumer, count) {
  const taken = [];
  await eventually(`${count} messages`, async () => {
    taken.push(...await called('messages', (done) => consumer.consume(count - taken.length, done)));
    return taken.length === count;
  });
  return taken;
}

/** Seeks, and waits until the messages from there are read. The original reads nothing after some seeks on a loaded machine. */
async function reread(consumer, position, isRead) {
  let seekAt = 0;
  await eventually(`messages from ${position.offset} on`, async () => {
    if (Date.now() >= seekAt) {
      seekAt = Date.now() + SEEK_AGAIN_MS;
      await called('a seek', (done) => consumer.seek(position, PATIENCE_MS, done));
    }
    return isRead();
  });
}

const stories = {};

stories.callback_producer = async () => {
  const name = await topic(own('produced'), 2);
  const producer = await connect(new Producer({ ...brokers, dr_msg_cb: true, 'compression.codec': 'gzip' }, { acks: -1 }));
  producer.setPollInterval(10);
  const reports = [];
  producer.on('delivery-report', (error, report) => reports.push({ error, ...report }));
  const headers = [{ origin: 'js' }, { origin: Buffer.from('again') }];
  const opaque = { number: 42 };
  producer.produce(name, 1, Buffer.from('v'), 'k', 1234567890123, opaque, headers);
  producer.produce(name, 1, null, 'tombstone', null, 'text');
  producer.produce(name, null, Buffer.from('anywhere'));
  await eventually('3 reports', async () => reports.length === 3);
  const [first, second] = reports.filter(({ opaque: mark }) => mark !== undefined);
  assert.deepEqual([first.error, first.topic, first.partition, first.offset], [null, name, 1, 0]);
  assert.deepEqual([first.value, first.key, first.timestamp], [Buffer.from('v'), Buffer.from('k'), 1234567890123]);
  assert.strictEqual(first.opaque, opaque);
  assert.deepEqual([second.offset, second.value, second.opaque], [1, null, 'text']);

  const metadata = await called('metadata', (done) => producer.getMetadata({ topic: name, allTopics: false, timeout: PATIENCE_MS }, done));
  assert.deepEqual(metadata.topics.map((one) => [one.name, one.partitions.length]), [[name, 2]]);
  const offsets = await called('offsets', (done) => producer.queryWatermarkOffsets(name, 1, PATIENCE_MS, done));
  assert(offsets.lowOffset === 0 && offsets.highOffset >= 2, offsets);

  // More than message.max.bytes: the call throws.
  assert.throws(() => producer.produce(name, 0, Buffer.alloc(1500000)), { code: ERRORS.ERR_MSG_SIZE_TOO_LARGE });
  assert.throws(() => producer.produce('', 0, Buffer.from('x')), TypeError);
  await disconnect(producer);
  assert.throws(() => producer.produce(name, 0, Buffer.from('x')), /not connected/i);

  // Reports of a background thread, and statistics.
  const background = await connect(new Producer({ ...brokers, dr_cb: true, 'statistics.interval.ms': 100, 'client.id': 'counted' }));
  background.setPollInBackground(true);
  const statistics = [];
  background.on('event.stats', ({ message }) => statistics.push(JSON.parse(message)));
  const report = emitted(background, 'delivery-report');
  background.produce(name, 0, Buffer.from('counted'));
  const [error, { value, partition }] = await report;
  assert.deepEqual([error, value, partition], [null, undefined, 0], 'dr_cb reports have no value');
  const found = await eventually('statistics', async () => statistics.find(({ txmsgs }) => txmsgs >= 1));
  assert.deepEqual([found.type, found.client_id], ['producer', 'counted']);
  await disconnect(background);
};

stories.callback_producer_errors = async () => {
  // Nothing listens on port 1.
  const properties = { 'metadata.broker.list': '127.0.0.1:1', dr_cb: true, log_level: 0 };
  const lost = new Producer(properties);
  const connection = called('connected', (done) => lost.connect({ timeout: 1000 }, done));
  await refused('no broker', connection, ERRORS.ERR__TRANSPORT, ERRORS.ERR__TIMED_OUT);
  assert(!lost.isConnected());
  assert.throws(() => new Producer({ ...brokers, 'no.such.property': 1 }), /no\.such\.property/);
  assert.throws(() => new Producer({ ...brokers, 'socket.timeout.ms': 'soon' }), /socket\.timeout\.ms/);

  const name = await topic(own('failed'));
  const full = await connect(new Producer({ ...brokers, dr_cb: true, 'queue.buffering.max.messages': 3, 'linger.ms': 500 }));
  full.setPollInterval(10);
  const reports = [];
  full.on('delivery-report', (error, report) => reports.push([error, report]));
  assert.throws(() => { for (const _ of range(0, 10)) full.produce(name, 0, Buffer.from('x')); }, { code: ERRORS.ERR__QUEUE_FULL });
  await eventually('3 reports', async () => reports.length === 3);
  assert(reports.every(([error]) => error === null), reports);
  // The topic has one partition.
  reports.length = 0;
  let thrown = null;
  try {
    full.produce(name, 5, Buffer.from('x'));
  } catch (error) {
    thrown = error;
  }
  if (!thrown) [[thrown]] = await eventually('a report', async () => reports.length === 1 && reports);
  assert.equal(thrown.code, ERRORS.ERR__UNKNOWN_PARTITION);
  await disconnect(full);
};

stories.callback_high_level_producer = async () => {
  const name = await topic(own('high-level'));
  const producer = await connect(new HighLevelProducer({ ...brokers }));
  producer.setValueSerializer((value) => Buffer.from(JSON.stringify(value)));
  producer.setKeySerializer(async (key) => Buffer.from(`key ${key}`));
  const send = (n) => called(`message ${n}`, (done) => producer.produce(name, 0, { n }, n, Date.now(), [{ n: String(n) }], done));
  assert.deepEqual([await send(0), await send(1)], [0, 1]);
  assert.deepEqual((await Promise.all(range(2, 50).map(send))).sort((a, b) => a - b), range(2, 50));
  await disconnect(producer);

  const consumer = await reader(own('high-level'));
  consumer.assign([{ topic: name, partition: 0, offset: 0 }]);
  const [first] = await take(consumer, 50);
  assert.deepEqual([String(first.value), String(first.key)], ['{"n":0}', 'key 0']);
  assert.deepEqual(first.headers.map((header) => ({ ...header })), [{ n: Buffer.from('0') }]);
  await disconnect(consumer);
};

stories.callback_flowing_consumer = async () => {
  const name = await topic(own('flowing'));
  await fill(name, 10);
  const commits = [];
  const properties = {
    rebalance_cb: true,
    offset_commit_cb: (error, partitions) => commits.push([error, partitions]),
    'enable.partition.eof': true,
  };
  const consumer = await reader(own('flowing'), properties);
  const [messages, rebalances] = [[], []];
  consumer.on('data', (message) => messages.push(message));
  consumer.on('rebalance', ({ code }, partitions) => rebalances.push([code, partitions.length]));
  const end = emitted(consumer, 'partition.eof');
  const subscribed = emitted(consumer, 'subscribed');
  consumer.subscribe([name]);
  assert.deepEqual(await subscribed, [[name]]);
  consumer.consume();
  const [{ topic: ended, partition, offset }] = await end;
  assert.deepEqual([ended, partition, offset], [name, 0, 10]);
  assert.deepEqual(messages.map((message) => message.offset), range(0, 10));
  const [first] = messages;
  assert.deepEqual([first.topic, first.partition, first.value, String(first.key), first.timestamp, first.size],
    [name, 0, Buffer.from('value 0'), 'key 0', 1000, 7]);
  assert.deepEqual(consumer.subscription(), [name]);
  assert.deepEqual(consumer.assignments().map((one) => [one.topic, one.partition]), [[name, 0]]);
  assert.deepEqual(consumer.position().map((one) => one.offset), [10]);
  const { lowOffset, highOffset } = consumer.getWatermarkOffsets(name, 0);
  assert.deepEqual([lowOffset, highOffset], [0, 10]);

  consumer.commitMessage(messages[3]);
  await eventually('the callback of a commit', async () => commits.length === 1);
  const [[error, [committed]]] = commits;
  assert.deepEqual([error ?? null, committed.topic, committed.partition, committed.offset], [null, name, 0, 4]);

  await fill(name, 5);
  await eventually('15 messages', async () => messages.length === 15);
  consumer.pause([{ topic: name, partition: 0 }]);
  await fill(name, 1);
  await pause(SILENCE_MS);
  assert.equal(messages.length, 15, 'the partition is paused');
  consumer.resume([{ topic: name, partition: 0 }]);
  await eventually('the message of the pause', async () => messages.length === 16);
  const position = { topic: name, partition: 0, offset: 12 };
  await reread(consumer, position, async () => messages.length >= 20 && messages.at(-1).offset === 15);
  assert.deepEqual(messages.slice(-4).map((message) => message.offset), range(12, 16));
  const unsubscribed = emitted(consumer, 'unsubscribed');
  consumer.unsubscribe();
  await unsubscribed;
  await eventually('two rebalances', async () => rebalances.length === 2);
  assert.deepEqual(rebalances, [[ERRORS.ERR__ASSIGN_PARTITIONS, 1], [ERRORS.ERR__REVOKE_PARTITIONS, 1]]);
  await disconnect(consumer);
};

stories.callback_non_flowing_consumer = async () => {
  const name = await topic(own('non-flowing'));
  await fill(name, 20);
  const at = { topic: name, partition: 0 };
  const assigned = [];
  const rebalance = function rebalance(error, partitions) {
    if (error.code === ERRORS.ERR__ASSIGN_PARTITIONS) {
      assigned.push(...partitions);
      this.assign(partitions);
    } else {
      this.unassign();
    }
  };
  const consumer = await reader(own('non-flowing'), { rebalance_cb: rebalance });
  consumer.setDefaultConsumeTimeout(200);
  consumer.subscribe([name]);
  const messages = await take(consumer, 12);
  assert.deepEqual(messages.map(({ offset }) => offset), range(0, 12));
  assert.deepEqual(assigned.map(({ topic: of, partition }) => [of, partition]), [[name, 0]]);
  // At most as many as the call asks for.
  const few = await called('3 messages', (done) => consumer.consume(3, done));
  assert(few.length <= 3, few.length);
  consumer.commitMessageSync(messages[4]);
  const committed = async () => (await called('committed', (done) => consumer.committed([at], PATIENCE_MS, done)))[0];
  assert.equal((await committed()).offset, 5);
  consumer.commitSync({ ...at, offset: 8, metadata: 'eight' });
  const { offset, metadata } = await committed();
  assert.deepEqual([offset, metadata], [8, 'eight']);
  const times = await called('times', (done) => consumer.offsetsForTimes([{ ...at, offset: 1015 }], PATIENCE_MS, done));
  assert.deepEqual(times.map((one) => one.offset), [15]);
  const again = [];
  await reread(consumer, { ...at, offset: 2 }, async () => {
    again.push(...await called('messages', (done) => consumer.consume(20, done)));
    return again.length >= 18 && again.at(-1).offset === 19;
  });
  assert.deepEqual(again.slice(-18).map((message) => message.offset), range(2, 20));
  assert.deepEqual(await called('nothing', (done) => consumer.consume(1, done)), []);
  await disconnect(consumer);

  // The stored offset is committed at the end.
  const storing = await reader(own('non-flowing'), { 'enable.auto.commit': true, 'enable.auto.offset.store': false });
  storing.subscribe([name]);
  const [next] = await take(storing, 1);
  assert.equal(next.offset, 8);
  storing.offsetsStore([{ ...at, offset: 9 }]);
  await disconnect(storing);
  const last = await reader(own('non-flowing'));
  last.subscribe([name]);
  assert.equal((await take(last, 1))[0].offset, 9);
  await disconnect(last);

  // The application may not want the topic: it is not created.
  const missing = own('missing');
  const unknown = await reader(own('missing'), { 'allow.auto.create.topics': false });
  unknown.setDefaultConsumeTimeout(200);
  unknown.subscribe([missing]);
  await eventually('the error of an unknown topic', async () => {
    try {
      await called('messages', (done) => unknown.consume(1, done));
      return false;
    } catch (error) {
      assert.equal(error.code, ERRORS.ERR_UNKNOWN_TOPIC_OR_PART);
      return true;
    }
  });
  await disconnect(unknown);
};

/** The application gives its partitions up late: a close revokes them once, and waits. */
stories.callback_slow_revocation = async () => {
  const name = await topic(own('late'), 2);
  await fill(name, 1);
  const revocations = [];
  let isGivenUp = false;
  const rebalance = function rebalance({ code }, partitions) {
    if (code === ERRORS.ERR__ASSIGN_PARTITIONS) {
      this.assign(partitions);
      return;
    }
    revocations.push(partitions.length);
    setTimeout(() => {
      isGivenUp = true;
      this.unassign();
    }, SILENCE_MS);
  };
  const consumer = await reader(own('late'), { rebalance_cb: rebalance });
  consumer.subscribe([name]);
  await take(consumer, 1);
  consumer.unsubscribe();
  // The revocation is in the queue, and no call has returned it.
  await pause(SILENCE_MS);
  await disconnect(consumer);
  assert(isGivenUp);
  assert.deepEqual(revocations, [2]);
};

stories.callback_streams = async () => {
  const name = await topic(own('streams'));
  const writer = createWriteStream({ ...brokers }, {}, { topic: name });
  await emitted(writer.producer, 'ready');
  for (const n of range(0, 100)) writer.write(Buffer.from(`value ${n}`));
  const written = emitted(writer.producer, 'disconnected');
  writer.end();
  await written;

  const properties = { ...brokers, 'group.id': own('streams'), 'enable.auto.commit': false };
  const stream = createReadStream(properties, { 'auto.offset.reset': 'earliest' }, { topics: name, fetchSize: 10 });
  const values = [];
  stream.on('data', ({ value }) => values.push(String(value)));
  await eventually('100 messages', async () => values.length >= 100);
  assert.deepEqual(values, range(0, 100).map((n) => `value ${n}`));
  await within('closed', new Promise((resolve) => stream.close(resolve)));
};

module.exports = { stories };
