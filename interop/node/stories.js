'use strict';

// Tests of @confluentinc/kafka-javascript: `stories.js STORY BOOTSTRAP NAME`. A failed test prints its error and exits with 1.
//
// Its topics and groups begin with NAME. These stories use the API of KafkaJS; those in `callbacks.js` use the API of
// node-rdkafka. The package has both.

const assert = require('node:assert/strict');
const { inspect } = require('node:util');
const RdKafka = require('@confluentinc/kafka-javascript');
const { Kafka, logLevel, ErrorCodes, ConsumerGroupStates, ConsumerGroupTypes, IsolationLevel } = RdKafka.KafkaJS;

const { BOOTSTRAP, PATIENCE_MS, SILENCE_MS, within, pause, eventually, called, refused, own, range } = require('./waits.js');

// Members of a classic group learn of a rebalance with their next heartbeat.
const HEARTBEAT_MS = 200;

const kafka = () => new Kafka({ kafkaJS: { brokers: [BOOTSTRAP], logLevel: logLevel.ERROR } });

/** Connects a client, runs `use` with it, and disconnects it. */
async function connected(client, use) {
  await within('connected', client.connect());
  const result = await use(client);
  await within('disconnected', client.disconnect());
  return result;
}

const administered = (use) => connected(kafka().admin(), use);

/** Creates a topic and waits until the brokers have it. */
async function topic(name, numPartitions = 1, configEntries = []) {
  await administered(async (admin) => {
    const created = await within(name, admin.createTopics({ topics: [{ topic: name, numPartitions, configEntries }] }));
    assert(created, `${name} exists already`);
    await eventually(`${numPartitions} partitions of ${name}`, async () => {
      try {
        const [found] = await admin.fetchTopicMetadata({ topics: [name] });
        return found.partitions.length === numPartitions && found.partitions.every((partition) => partition.leader >= 0);
      } catch (error) {
        if (error.code === ErrorCodes.ERR_UNKNOWN_TOPIC_OR_PART) return false;
        throw error;
      }
    });
  });
  return name;
}

/** Delivers `count` messages to each partition. */
async function fill(name, count, partitions = [0], prefix = 'value') {
  await connected(kafka().producer(), async (producer) => {
    const numbers = Array.from({ length: count }, (_, n) => n);
    const messages = partitions.flatMap((partition) => numbers.map((n) => ({ partition, value: `${prefix} ${n}` })));
    await within(`${messages.length} messages`, producer.send({ topic: name, messages }));
  });
}

/** A consumer of a group that starts at the first message. */
function reader(groupId, settings = {}, properties = {}) {
  const kafkaJS = { groupId, fromBeginning: true, autoCommit: false, ...settings };
  return kafka().consumer({ kafkaJS, ...properties });
}

/** Starts a consumer that appends each message to the returned list. */
async function collect(consumer, name, onMessage = async () => {}) {
  const messages = [];
  await within('connected', consumer.connect());
  await consumer.subscribe({ topics: [name] });
  await consumer.run({
    eachMessage: async (payload) => {
      const { partition, message } = payload;
      messages.push({ partition, offset: Number(message.offset), text: String(message.value), message });
      await onMessage(payload, messages);
    },
  });
  return messages;
}

/** The offsets of the messages of a partition, in their order. */
const offsetsOf = (messages, partition) =>
  messages.filter((message) => message.partition === partition).map((message) => message.offset);

const partitionsOf = (consumer) => consumer.assignment().map((assigned) => assigned.partition).sort();

const stories = {};

stories.produce_and_consume = async () => {
  assert.match(RdKafka.librdkafkaVersion, /^2\.\d+\.\d+/);
  assert(RdKafka.features.includes('ssl'), RdKafka.features);
  const [first, second] = [await topic(own('first'), 2), await topic(own('second'))];
  const bytes = Buffer.from([0, 255, 10]);
  await connected(kafka().producer({ kafkaJS: { compression: 'lz4' } }), async (producer) => {
    const headers = { origin: 'js', bytes, again: ['a', 'b'] };
    const sent = await within('4 messages', producer.send({
      topic: first,
      messages: [
        { partition: 1, key: 'k', value: 'v', timestamp: '1234567890123', headers },
        { partition: 1, key: Buffer.from('tombstone'), value: null },
        { partition: 1, value: bytes },
        { partition: 0, value: 'other' },
      ],
    }));
    const result = (topicName, partition, baseOffset) =>
      ({ topicName, partition, errorCode: 0, baseOffset, logAppendTime: '-1', logStartOffset: '0' });
    sent.sort((a, b) => a.partition - b.partition);
    // One result for each partition, with its first offset.
    assert.deepEqual(sent.map((one) => ({ ...one })), [result(first, 0, '0'), result(first, 1, '0')]);
    const batch = await within('a batch', producer.sendBatch({
      topicMessages: [
        { topic: first, messages: [{ partition: 1, value: 'fourth' }] },
        { topic: second, messages: [{ value: 'a' }, { value: 'b' }] },
      ],
    }));
    assert.deepEqual(batch.map((one) => ({ ...one })), [result(first, 1, '3'), result(second, 0, '0')]);

    // Not awaited: flush waits for it.
    let delivered = false;
    producer.send({ topic: second, messages: [{ value: 'c' }] }).then(() => { delivered = true; });
    await within('flushed', producer.flush({ timeout: PATIENCE_MS }));
    await eventually('the message is delivered', async () => delivered);
  });

  const consumer = reader(own('both'));
  const messages = await collect(consumer, first);
  await consumer.subscribe({ topics: [second] });
  await eventually('8 messages of two topics', async () => messages.length >= 8);
  const [full, tombstone, binary, fourth] = messages.filter((message) => message.partition === 1).map((one) => one.message);
  assert.deepEqual([full.key, full.value], [Buffer.from('k'), Buffer.from('v')]);
  assert.equal(full.timestamp, '1234567890123');
  assert.deepEqual({ ...full.headers }, { origin: Buffer.from('js'), bytes, again: [Buffer.from('a'), Buffer.from('b')] });
  assert.deepEqual([tombstone.key, tombstone.value, tombstone.headers], [Buffer.from('tombstone'), null, undefined]);
  assert.deepEqual([binary.key, binary.value], [null, bytes]);
  assert.deepEqual([fourth.offset, fourth.attributes], ['3', 0]);
  assert(Math.abs(Number(fourth.timestamp) - Date.now()) < 2 * PATIENCE_MS, fourth.timestamp);
  assert.equal(messages.length, 8);
  await within('disconnected', consumer.disconnect());
};

stories.batches = async () => {
  const name = await topic(own('batches'), 3);
  await fill(name, 100, [0, 1, 2]);
  const consumer = reader(own('batches'), {}, { 'js.consumer.max.batch.size': 20 });
  const seen = [[], [], []];
  const [sizes, highWatermarks] = [new Set(), new Set()];
  let isThrown = false;
  await within('connected', consumer.connect());
  await consumer.subscribe({ topic: name });
  await consumer.run({
    eachBatchAutoResolve: false,
    partitionsConsumedConcurrently: 2,
    eachBatch: async ({ batch, resolveOffset, commitOffsetsIfNecessary, isRunning, isStale, heartbeat }) => {
      sizes.add(batch.messages.length);
      highWatermarks.add(batch.highWatermark);
      assert(isRunning() && !isStale() && !batch.isEmpty());
      assert.equal(batch.firstOffset(), batch.messages[0].offset);
      assert.equal(Number(batch.offsetLag()), 99 - Number(batch.lastOffset()));
      for (const message of batch.messages) {
        if (message.offset === '50' && !isThrown) {
          isThrown = true;
          throw new Error('expected by the test: the rest of the batch comes again');
        }
        seen[batch.partition].push(Number(message.offset));
        resolveOffset(message.offset);
      }
      await heartbeat();
      await commitOffsetsIfNecessary();
    },
  });
  await eventually('300 messages', async () => seen.flat().length >= 300);
  assert.deepEqual(seen, [range(0, 100), range(0, 100), range(0, 100)]);
  assert(isThrown && Math.max(...sizes) === 20, [...sizes]);
  assert.deepEqual([...highWatermarks], ['100']);
  const everywhere = [0, 1, 2].map((partition) => ({ topic: name, partition }));
  await eventually('the last batch is committed', async () => {
    const offsets = await consumer.committed(everywhere, PATIENCE_MS);
    return offsets.every(({ offset }) => offset === '100');
  });
  await within('disconnected', consumer.disconnect());
};

stories.commits = async () => {
  const name = await topic(own('commits'));
  await fill(name, 10);
  const at = [{ topic: name, partition: 0 }];
  const consumer = reader(own('commits'));
  const before = await collect(consumer, name, async ({ message }) => {
    if (message.offset === '3') await consumer.commitOffsets([{ ...at[0], offset: '4', metadata: 'after three' }]);
  });
  await eventually('10 messages', async () => before.length === 10);
  const [{ offset, metadata, leaderEpoch }] = await within('committed', consumer.committed(at, PATIENCE_MS));
  assert.deepEqual([offset, metadata], ['4', 'after three'], leaderEpoch);
  await within('disconnected', consumer.disconnect());

  // The offsets of processed messages are committed in intervals, and at the end.
  const automatic = reader(own('commits'), { autoCommit: true, autoCommitInterval: 100 });
  const after = await collect(automatic, name);
  await eventually('6 messages', async () => after.length === 6);
  assert.deepEqual(offsetsOf(after, 0), range(4, 10));
  await eventually('a commit of the interval', async () => (await automatic.committed(null, PATIENCE_MS))[0].offset === '10');
  await fill(name, 1);
  await eventually('7 messages', async () => after.length === 7);
  await within('disconnected', automatic.disconnect());
  await administered(async (admin) => {
    const fetched = await within('offsets', admin.fetchOffsets({ groupId: own('commits'), topics: [name] }));
    assert.deepEqual(fetched.map((one) => [one.topic, one.partitions[0].offset]), [[name, '11']]);
  });

  // A callback that throws gets its message again.
  let attempts = 0;
  const failing = reader(own('attempts'));
  const messages = await collect(failing, name, async ({ message }) => {
    if (message.offset === '2' && ++attempts < 3) throw new Error('expected by the test: the message comes again');
  });
  await eventually('13 calls', async () => messages.length >= 13);
  assert.deepEqual(offsetsOf(messages, 0), [0, 1, 2, 2, 2, ...range(3, 11)]);
  await within('disconnected', failing.disconnect());
};

stories.seek_pause_resume = async () => {
  const name = await topic(own('seek'), 2);
  await fill(name, 10, [0, 1]);
  const consumer = reader(own('seek'));
  let resumeLater = null;
  const messages = await collect(consumer, name, async ({ message, partition, pause: pausePartition }) => {
    if (partition === 1 && message.offset === '10') resumeLater = pausePartition();
  });
  await eventually('20 messages', async () => messages.length === 20);

  consumer.pause([{ topic: name, partitions: [0] }]);
  assert.deepEqual(consumer.paused(), [{ topic: name, partitions: [0] }]);
  await fill(name, 1, [0, 1]);
  await eventually('a message of partition 1', async () => offsetsOf(messages, 1).length === 11);
  await pause(SILENCE_MS);
  assert.deepEqual(offsetsOf(messages, 0), range(0, 10), 'partition 0 is paused');
  assert.deepEqual(consumer.paused(), [{ topic: name, partitions: [0, 1] }], 'the callback paused partition 1');
  consumer.resume([{ topic: name, partitions: [0] }]);
  await eventually('a message of partition 0', async () => offsetsOf(messages, 0).length === 11);

  await fill(name, 1, [1]);
  await pause(SILENCE_MS);
  assert.deepEqual(offsetsOf(messages, 1), range(0, 11), 'partition 1 is paused');
  resumeLater();
  await eventually('the next message of partition 1', async () => offsetsOf(messages, 1).length === 12);

  consumer.seek({ topic: name, partition: 0, offset: '7' });
  await eventually('4 messages again', async () => offsetsOf(messages, 0).length === 15);
  assert.deepEqual(offsetsOf(messages, 0), [...range(0, 11), ...range(7, 11)]);
  // -2 is the first offset.
  consumer.seek({ topic: name, partition: 0, offset: '-2' });
  await eventually('11 messages again', async () => offsetsOf(messages, 0).length === 26);
  assert.deepEqual(offsetsOf(messages, 0).slice(15), range(0, 11));
  await within('disconnected', consumer.disconnect());

  // Before the assignment: it begins at this offset.
  const later = reader(own('seek-first'));
  const fewer = [];
  await within('connected', later.connect());
  await later.subscribe({ topics: [name] });
  later.seek({ topic: name, partition: 1, offset: '9' });
  await later.run({ eachMessage: async ({ partition, message }) => { fewer.push({ partition, offset: Number(message.offset) }); } });
  await eventually('14 messages', async () => fewer.length >= 14);
  assert.deepEqual([offsetsOf(fewer, 0), offsetsOf(fewer, 1)], [range(0, 11), range(9, 12)]);
  await within('disconnected', later.disconnect());
};

/** A second member joins and leaves; every message is seen once. Returns the rebalances of each member. */
async function twoMembers(name, settings, properties = {}) {
  await topic(name, 4);
  const rebalances = { a: [], b: [] };
  const member = (letter) => reader(name, settings, {
    'client.id': letter,
    rebalance_cb: (error, assignment) => {
      const partitions = assignment.map(({ partition }) => partition).sort();
      rebalances[letter].push([error.code === ErrorCodes.ERR__ASSIGN_PARTITIONS ? 'assign' : 'revoke', partitions]);
    },
    ...properties,
  });
  const [a, b] = [member('a'), member('b')];
  const ofA = await collect(a, name);
  await eventually('a has all', async () => partitionsOf(a).length === 4);
  const ofB = await collect(b, name);
  await eventually('both have two', async () => {
    const [mine, theirs] = [partitionsOf(a), partitionsOf(b)];
    return mine.length === 2 && theirs.length === 2 && new Set([...mine, ...theirs]).size === 4;
  });
  const split = { a: partitionsOf(a), b: partitionsOf(b) };
  await fill(name, 50, range(0, 4));
  await eventually('200 messages', async () => ofA.length + ofB.length >= 200);
  const seen = new Set([...ofA, ...ofB].map(({ partition, offset }) => `${partition}/${offset}`));
  assert.deepEqual([ofA.length, ofB.length, seen.size], [100, 100, 200]);
  assert(ofA.every(({ partition }) => split.a.includes(partition)));
  await administered(async (admin) => {
    const { groups: [group] } = await within('described', admin.describeGroups([name]));
    assert.equal(group.state, ConsumerGroupStates.STABLE);
    assert.deepEqual(group.members.map(({ clientId }) => clientId).sort(), ['a', 'b']);
    const counts = group.members.map(({ assignment }) => assignment.topicPartitions.length);
    assert.deepEqual(counts, [2, 2]);
  });
  await within('b has left', b.disconnect());
  await eventually('a has all again', async () => partitionsOf(a).length === 4);
  await within('a has left', a.disconnect());
  assert.deepEqual(rebalances.a[0], ['assign', [0, 1, 2, 3]]);
  return rebalances;
}

stories.eager_group = async () => {
  const { a } = await twoMembers(own('eager'), { partitionAssigners: ['roundrobin'], heartbeatInterval: HEARTBEAT_MS });
  assert.deepEqual(a[1], ['revoke', [0, 1, 2, 3]], 'an eager member revokes all');
};

stories.cooperative_group = async () => {
  const settings = { partitionAssigners: ['cooperative-sticky'], heartbeatInterval: HEARTBEAT_MS };
  const { a } = await twoMembers(own('cooperative'), settings);
  const [, revoked] = a.find(([what]) => what === 'revoke');
  assert.equal(revoked.length, 2, `only the partitions of the other member are revoked: ${JSON.stringify(a)}`);
};

stories.next_generation_group = async () => {
  await twoMembers(own('next'), {}, { 'group.protocol': 'consumer' });
};

/** The application gives its partitions up late: a disconnect revokes them once, and waits. */
stories.slow_revocation = async () => {
  const name = await topic(own('slow'), 2);
  await fill(name, 1, [0, 1]);
  const revocations = [];
  let isGivenUp = false;
  const consumer = reader(own('slow'), {}, {
    rebalance_cb: async (error, assignment) => {
      if (error.code !== ErrorCodes.ERR__REVOKE_PARTITIONS) return;
      revocations.push(assignment.map(({ partition }) => partition).sort());
      await pause(SILENCE_MS);
      isGivenUp = true;
    },
  });
  const messages = await collect(consumer, name);
  await eventually('2 messages', async () => messages.length === 2);
  await within('disconnected', consumer.disconnect());
  assert(isGivenUp);
  assert.deepEqual(revocations, [[0, 1]]);
};

stories.transactions = async () => {
  const [source, sink] = [await topic(own('source')), await topic(own('sink'))];
  await fill(source, 10, [0], 'r');
  const consumer = reader(own('movers'));
  const messages = await collect(consumer, source);
  await eventually('10 messages', async () => messages.length === 10);
  const settings = { kafkaJS: { transactionalId: own('mover') } };
  const producer = kafka().producer(settings);
  await within('connected', producer.connect());
  await refused('a commit without a transaction', producer.commit(), ErrorCodes.ERR__STATE);

  const at = [{ topic: source, partition: 0 }];
  const end = async () => (await within('committed', consumer.committed(at, PATIENCE_MS)))[0].offset;
  const none = await end();
  const outcomes = [];
  for (const [outcome, first, last] of [['abort', 0, 5], ['commit', 0, 5], ['commit', 5, 10]]) {
    const transaction = await within('begun', producer.transaction());
    assert(transaction.isActive());
    const moved = messages.slice(first, last).map(({ text }) => ({ value: `${text} ${outcome}` }));
    await within('sent', transaction.send({ topic: sink, messages: moved }));
    const offsets = [{ topic: source, partitions: [{ partition: 0, offset: String(last) }] }];
    await within('offsets are sent', transaction.sendOffsets({ consumer, topics: offsets }));
    await within(outcome, transaction[outcome]());
    assert(!transaction.isActive());
    outcomes.push(await end());
  }
  assert.deepEqual(outcomes, [none, '5', '10'], 'an aborted transaction commits no offset');

  const committed = messages.map(({ text }) => `${text} commit`);
  const aborted = messages.slice(0, 5).map(({ text }) => `${text} abort`);
  for (const [readUncommitted, expected] of [[false, committed], [true, [...aborted, ...committed]]]) {
    const isolated = reader(own(`isolated-${readUncommitted}`), { readUncommitted });
    const found = await collect(isolated, sink);
    await eventually(`${expected.length} messages`, async () => found.length >= expected.length);
    assert.deepEqual(found.map(({ text }) => text), expected);
    await within('disconnected', isolated.disconnect());
  }
  await within('disconnected', consumer.disconnect());

  const newer = kafka().producer(settings);
  await within('connected', newer.connect());
  await within('begun', producer.transaction());
  const fenced = producer.send({ topic: sink, messages: [{ value: 'fenced' }] }).then(() => producer.commit());
  const codes = ['ERR__FENCED', 'ERR__FATAL', 'ERR__PURGE_QUEUE', 'ERR_INVALID_PRODUCER_EPOCH', 'ERR_PRODUCER_FENCED', 'ERR__STATE'];
  await refused('the older producer', fenced, ...codes.map((code) => ErrorCodes[code]));
  await within('disconnected', producer.disconnect());
  const transaction = await within('begun', newer.transaction());
  await within('sent', transaction.send({ topic: sink, messages: [{ value: 'newer' }] }));
  await within('committed', transaction.commit());
  await within('disconnected', newer.disconnect());
};

stories.admin_topics = async () => {
  const name = own('admin');
  await topic(name, 3, [{ name: 'retention.ms', value: '3600000' }]);
  await administered(async (admin) => {
    const create = (settings) => within('created', admin.createTopics({ topics: [settings] }));
    assert.equal(await create({ topic: name }), false, 'the topic exists');
    await assert.rejects(create({ topic: own('no replicas'), replicationFactor: 1 }), (error) => {
      const [culprit] = error.errors;
      assert.deepEqual([error.name, culprit.topic, culprit.code],
        ['KafkaJSAggregateError', own('no replicas'), ErrorCodes.ERR_TOPIC_EXCEPTION]);
      return true;
    });
    const wrong = [{ name: 'no.such.setting', value: '1' }];
    await assert.rejects(create({ topic: own('wrong'), configEntries: wrong }), (error) => {
      assert.equal(error.errors[0].code, ErrorCodes.ERR_INVALID_CONFIG);
      return true;
    });
    assert((await within('topics', admin.listTopics())).includes(name));

    const [described] = await within('metadata', admin.fetchTopicMetadata({ topics: [name], includeAuthorizedOperations: true }));
    assert.deepEqual([described.name, described.isInternal, described.partitions.length], [name, false, 3]);
    assert(described.authorizedOperations.includes(RdKafka.AclOperationTypes.WRITE), described.authorizedOperations);
    const [partition] = described.partitions;
    assert(partition.isr.includes(partition.leader) && partition.replicas.includes(partition.leader));
    assert(partition.leaderNode.host && BOOTSTRAP.includes(String(partition.leaderNode.port)), partition.leaderNode);
    assert(String(described.topicId.base64 ?? described.topicId).length > 0, described.topicId);
    await refused('an unknown topic', admin.fetchTopicMetadata({ topics: [own('unknown')] }), ErrorCodes.ERR_UNKNOWN_TOPIC_OR_PART);

    const before = Date.now() - 1;
    await fill(name, 10, [0, 1]);
    const offsets = async () => {
      const options = { isolationLevel: IsolationLevel.READ_COMMITTED, timeout: PATIENCE_MS };
      const found = await within('offsets', admin.fetchTopicOffsets(name, options));
      return found.map(({ partition: id, low, high }) => [id, low, high]).sort();
    };
    assert.deepEqual(await offsets(), [[0, '0', '10'], [1, '0', '10'], [2, '0', '0']]);
    const since = async (time) => {
      const found = await within('offsets', admin.fetchTopicOffsetsByTimestamp(name, time, { timeout: PATIENCE_MS }));
      return found.sort((a, b) => a.partition - b.partition).map(({ offset }) => offset);
    };
    assert.deepEqual(await since(before), ['0', '0', '0']);
    assert.deepEqual(await since(Date.now() + 3600000), ['10', '10', '0']);
    assert.deepEqual(await since(undefined), ['10', '10', '0']);

    // -1 is the end.
    const partitions = [{ partition: 0, offset: '4' }, { partition: 1, offset: '-1' }];
    const deleted = await within('records', admin.deleteTopicRecords({ topic: name, partitions }));
    assert.deepEqual(deleted.map(({ lowWatermark }) => lowWatermark), [4, 10]);
    assert.deepEqual(await offsets(), [[0, '4', '10'], [1, '10', '10'], [2, '0', '0']]);
    const beyond = admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: '11' }] });
    await assert.rejects(within('records', beyond), (error) => {
      assert.equal(error.partitions[0].error.code, ErrorCodes.ERR_OFFSET_OUT_OF_RANGE);
      return true;
    });

    const older = RdKafka.AdminClient.create({ 'bootstrap.servers': BOOTSTRAP });
    await called('5 partitions', (done) => older.createPartitions(name, 5, PATIENCE_MS, done));
    older.disconnect();
    await eventually('5 partitions', async () => (await offsets()).length === 5);

    await within('deleted', admin.deleteTopics({ topics: [name] }));
    await eventually('the topic is gone', async () => !(await admin.listTopics()).includes(name));
    await refused('an unknown topic', admin.deleteTopics({ topics: [own('unknown')] }), ErrorCodes.ERR_UNKNOWN_TOPIC_OR_PART);
  });

  // An admin client on the connections of a producer.
  await connected(kafka().producer(), (producer) => connected(producer.dependentAdmin(), async (admin) => {
    assert(Array.isArray(await within('topics', admin.listTopics({ timeout: PATIENCE_MS }))));
  }));
};

stories.admin_groups_and_offsets = async () => {
  const [name, group] = [await topic(own('groups'), 2), own('group')];
  await fill(name, 5, [0, 1]);
  const consumer = reader(group, {}, { 'client.id': 'listed' });
  const messages = await collect(consumer, name);
  await eventually('10 messages', async () => messages.length === 10);
  await within('committed', consumer.commitOffsets([{ topic: name, partition: 0, offset: '3', metadata: 'note' }]));
  await administered(async (admin) => {
    const states = { matchConsumerGroupStates: [ConsumerGroupStates.STABLE] };
    const { groups } = await within('groups', admin.listGroups(states));
    const listed = groups.find(({ groupId }) => groupId === group);
    assert.deepEqual([listed.protocolType, listed.isSimpleConsumerGroup, listed.state], ['consumer', false, ConsumerGroupStates.STABLE]);
    const empty = await within('groups', admin.listGroups({ matchConsumerGroupStates: [ConsumerGroupStates.EMPTY] }));
    assert(!empty.groups.some(({ groupId }) => groupId === group));
    const classic = await within('groups', admin.listGroups({ matchConsumerGroupTypes: [ConsumerGroupTypes.CLASSIC] }));
    assert.equal(classic.groups.find(({ groupId }) => groupId === group).type, ConsumerGroupTypes.CLASSIC);

    const described = await within('described', admin.describeGroups([group, own('absent')], { includeAuthorizedOperations: true }));
    const [present, absent] = described.groups;
    assert.deepEqual([present.groupId, present.protocolType, present.partitionAssignor], [group, 'consumer', 'roundrobin']);
    assert(present.authorizedOperations.includes(RdKafka.AclOperationTypes.READ), present.authorizedOperations);
    assert.deepEqual([present.members[0].clientId, present.members[0].clientHost], ['listed', present.members[0].clientHost]);
    assert.deepEqual(present.members[0].assignment.topicPartitions.map(({ partition }) => partition).sort(), [0, 1]);
    assert.equal(absent.state, ConsumerGroupStates.DEAD);

    const topics = [{ topic: name, partitions: [0, 1] }];
    const [fetched] = await within('offsets', admin.fetchOffsets({ groupId: group, topics, requireStableOffsets: true }));
    assert.equal(fetched.topic, name);
    const offsets = fetched.partitions.map(({ partition, offset, metadata, error }) => [partition, offset, metadata, error]).sort();
    assert.deepEqual(offsets, [[0, '3', 'note', null], [1, '-1001', null, null]], JSON.stringify(fetched));

    await assert.rejects(within('deleted', admin.deleteGroups([group])), (error) => {
      assert.deepEqual([error.groups[0].groupId, error.groups[0].errorCode, error.groups[0].error.code],
        [group, ErrorCodes.ERR_NON_EMPTY_GROUP, ErrorCodes.ERR_NON_EMPTY_GROUP]);
      return true;
    });
    await within('disconnected', consumer.disconnect());
    const [report] = await eventually('the group is deleted', async () => {
      try {
        return await admin.deleteGroups([group]);
      } catch (error) {
        if (error.groups?.[0].errorCode === ErrorCodes.ERR_NON_EMPTY_GROUP) return null;
        throw error;
      }
    });
    assert.equal(report.groupId, group);
    await assert.rejects(within('deleted', admin.deleteGroups([group])), (error) => {
      assert.equal(error.groups[0].errorCode, ErrorCodes.ERR_GROUP_ID_NOT_FOUND);
      return true;
    });
    const left = await within('groups', admin.listGroups());
    assert(!left.groups.some(({ groupId }) => groupId === group) && left.errors.length === 0);
  });
};

stories.errors = async () => {
  const name = await topic(own('small'), 1, [{ name: 'max.message.bytes', value: '1000' }]);
  const send = (producer, to, message) => producer.send({ topic: to, messages: [message] });
  await connected(kafka().producer(), async (producer) => {
    // More than message.max.bytes: the client refuses it.
    const large = { value: Buffer.alloc(1500000) };
    const error = await refused('a large message', send(producer, name, large), ErrorCodes.ERR_MSG_SIZE_TOO_LARGE);
    assert.match(error.message, /too large/i);
    // More than the topic's limit: the broker refuses it.
    const smaller = { value: Buffer.alloc(2000) };
    const limited = await refused('a message for the topic', send(producer, name, smaller), ErrorCodes.ERR_MSG_SIZE_TOO_LARGE);
    assert.equal(limited.name, 'KafkaJSProtocolError');
    assert.deepEqual([limited.retriable, limited.fatal, limited.abortable], [false, false, false]);
    await refused('partition 7', send(producer, name, { partition: 7, value: 'x' }), ErrorCodes.ERR__UNKNOWN_PARTITION);
    // The second code if the broker's answer comes before the message is in its queue.
    const codes = [ErrorCodes.ERR_TOPIC_EXCEPTION, ErrorCodes.ERR__UNKNOWN_TOPIC];
    await refused('a topic with a space', send(producer, own('no topic'), { value: 'x' }), ...codes);
    // The producer still works.
    const [sent] = await within('sent', send(producer, name, { value: 'small' }));
    assert.equal(sent.baseOffset, '0');
  });

  const missing = own('missing');
  const lines = [];
  const logger = { info() {}, warn() {}, debug() {}, error: (line) => lines.push(line), namespace: () => logger, setLogLevel() {} };
  const consumer = reader(own('missing'), { allowAutoTopicCreation: false, logger });
  const messages = await collect(consumer, missing);
  await eventually('an error in the log', async () => lines.some((line) => line.includes('Unknown topic or partition')));
  assert.deepEqual([messages, consumer.assignment()], [[], []]);
  await within('disconnected', consumer.disconnect());
  await administered(async (admin) => {
    await refused('metadata', admin.fetchTopicMetadata({ topics: [missing] }), ErrorCodes.ERR_UNKNOWN_TOPIC_OR_PART);
    assert(!(await within('topics', admin.listTopics())).includes(missing), 'the topic is not created');
  });

  const unknown = kafka().producer({ 'no.such.property': 1 });
  await assert.rejects(within('connected', unknown.connect()), /no\.such\.property/);
  const early = kafka().producer();
  await refused('a message before the connection', send(early, name, { value: 'x' }), ErrorCodes.ERR__STATE);
};

/** Runs a story. Its clients keep the program alive until they have ended. */
async function main() {
  const story = { ...stories, ...require('./callbacks.js').stories }[process.argv[2]];
  assert(story, `no story ${process.argv[2]}`);
  await story();
  setTimeout(() => fail(new Error(`the program does not end within ${PATIENCE_MS} ms`)), PATIENCE_MS).unref();
}

function fail(error) {
  console.error(inspect(error, { depth: 4 }));
  process.exit(1);
}

process.on('unhandledRejection', fail);
process.on('uncaughtException', fail);
main().catch(fail);
