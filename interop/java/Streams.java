import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * Programs on Kafka Streams with exact results: a word count that loses its state directory, a join of two repartitioned
 * topics, two instances that share the work, and exactly_once_v2 with an instance that is killed.
 */
public class Streams {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final String[] WORDS = "the log is a sequence of records each with an offset".split(" ");
    private static String bootstrap;
    private static File directory;

    /** The arguments: the bootstrap servers, a scratch directory, and stories, of which one has a number behind it. */
    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        directory = new File(arguments[1]);
        var stories = List.of(arguments).subList(2, arguments.length).iterator();
        while (stories.hasNext()) {
            var story = stories.next();
            switch (story) {
                case "word-count" -> wordCountWithRestoration();
                case "join" -> joinWithRepartitioning();
                case "two-instances" -> twoInstancesShareTheWork();
                case "instance" -> instanceThatIsKilled();
                case "exactly-once" -> exactlyOnce(Integer.parseInt(stories.next()));
                default -> throw new IllegalArgumentException(story);
            }
            System.out.println(story + ": told");
        }
        System.out.println("all stories told");
    }

    /** Each count of each word comes out once, in order, also across a restart without the state directory. */
    private static void wordCountWithRestoration() throws Exception {
        var words = new WordCount("word-count", 2);
        var settings = settings(words.name, "first");
        // Small segments, cleaned soon: the store is restored from a compacted changelog.
        settings.put(StreamsConfig.topicPrefix("segment.ms"), "300");
        settings.put(StreamsConfig.topicPrefix("min.cleanable.dirty.ratio"), "0.01");
        String changelog = "word-count-words-changelog";
        try (var streams = start(words.topology(), settings)) {
            words.say(60);
            words.expectCounts();
            same(words.expected, stored(streams), "the store");
            same("compact", configuration(changelog, "cleanup.policy"), "the changelog's policy");
            same("-1", configuration("word-count-words-repartition", "retention.ms"), "repartition's retention");
            until(() -> {
                words.say(2);
                return records(changelog) < words.total() / 2;
            }, "compaction of the changelog");
            words.expectCounts();
        }
        int updates = words.total();
        delete(new File(directory, "first"));
        var restored = new AtomicLong();
        try (var streams = started(words.topology(), settings, restored)) {
            same(words.expected, stored(streams), "the restored store");
            check(restored.get() >= words.expected.size(), "restored records: " + restored);
            check(restored.get() < updates, "restored " + restored + " records of " + updates + " updates");
            words.say(20);
            words.expectCounts();
        }
        System.out.println(updates + " updates, " + restored + " records restored");
    }

    /** Every pair of an order and a payment of one customer within the window comes out once. */
    private static void joinWithRepartitioning() throws Exception {
        create(Map.of("orders", 3, "payments", 3, "paid", 2));
        var window = Duration.ofSeconds(5);
        var random = new Random(2);
        long begin = System.currentTimeMillis() - 600_000;
        var expected = new ArrayList<String>();
        var settings = settings("join", "join");
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put("repartition.purge.interval.ms", "200");
        try (var streams = start(joined(window), settings); var producer = producer()) {
            var times = new HashMap<String, List<long[]>>();
            for (int number = 0; number < 400; number++) {
                String topic = random.nextBoolean() ? "orders" : "payments";
                String customer = "c" + random.nextInt(10);
                long at = begin + number * 250L + random.nextInt(1000);
                producer.send(new ProducerRecord<>(topic, null, at, topic + number, customer + "." + number));
                for (long[] other : times.computeIfAbsent(customer + (topic.equals("orders") ? "p" : "o"), any -> new ArrayList<>())) {
                    if (Math.abs(other[0] - at) <= window.toMillis()) {
                        expected.add(topic.equals("orders") ? number + "+" + other[1] : other[1] + "+" + number);
                    }
                }
                times.computeIfAbsent(customer + (topic.equals("orders") ? "o" : "p"), any -> new ArrayList<>())
                    .add(new long[] {at, number});
            }
            producer.flush();
            Collections.sort(expected);
            check(expected.size() > 200, "pairs: " + expected.size());
            var found = new ArrayList<String>();
            read("paid", 2, expected.size()).values().forEach(found::addAll);
            Collections.sort(found);
            same(expected, found, "pairs");
            // Streams deletes the records of repartition topics that it has processed.
            for (String side : List.of("orders", "payments")) {
                String topic = "join-" + side + "-by-customer-repartition";
                until(() -> startOffsets(topic) > 0, "a deletion of records of " + topic);
            }
        }
        System.out.println(expected.size() + " pairs");
    }

    private static Topology joined(Duration window) {
        var builder = new StreamsBuilder();
        var byCustomer = new HashMap<String, KStream<String, String>>();
        for (String topic : List.of("orders", "payments")) {
            KStream<String, String> stream = builder.stream(topic);
            byCustomer.put(topic, stream
                .selectKey((id, value) -> value.substring(0, value.indexOf('.')))
                .mapValues(value -> value.substring(value.indexOf('.') + 1))
                .repartition(Repartitioned.as(topic + "-by-customer")));
        }
        byCustomer.get("orders")
            .join(byCustomer.get("payments"), (order, payment) -> order + "+" + payment,
                JoinWindows.ofTimeDifferenceAndGrace(window, Duration.ofHours(1)), StreamJoined.as("pairs"))
            .to("paid");
        return builder.build();
    }

    /** Both instances have tasks; after one is closed, the other has all. The counts are exact all the time. */
    private static void twoInstancesShareTheWork() throws Exception {
        var words = new WordCount("shared", 4);
        try (var one = start(words.topology(), settings(words.name, "one"))) {
            words.say(20);
            try (var two = start(words.topology(), settings(words.name, "two"))) {
                // Four tasks that split lines and four that count words.
                until(() -> {
                    words.say(1);
                    return tasks(one) > 0 && tasks(two) > 0 && tasks(one) + tasks(two) == 8;
                }, "tasks of both instances");
                System.out.println(tasks(one) + " and " + tasks(two) + " tasks");
                words.say(60);
                words.expectCounts();
                var both = stored(one);
                stored(two).forEach((word, count) -> check(both.put(word, count) == null, word + " in both stores"));
                same(words.expected, both, "both stores");
            }
            until(() -> tasks(one) == 8, "all tasks at the instance that is left");
            words.say(20);
            words.expectCounts();
            until(() -> words.expected.equals(stored(one)), "all words in one store");
        }
    }

    /** An instance of the program of {@link #exactlyOnce}, until it is killed. */
    private static void instanceThatIsKilled() throws Exception {
        var settings = settings("exactly-once", "exactly-once");
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        var processed = new AtomicLong();
        var builder = new StreamsBuilder();
        KStream<String, String> numbers = builder.stream("numbers");
        numbers.peek((key, value) -> {
                long count = processed.incrementAndGet();
                if (count % 100 == 0) {
                    System.out.println("processed " + count + " records");
                }
            })
            .groupByKey()
            .aggregate(() -> "", (key, number, last) -> {
                int count = last.isEmpty() ? 0 : Integer.parseInt(last.substring(last.indexOf('.') + 1));
                return number + "." + (count + 1);
            }, Materialized.as("numbered"))
            .toStream()
            .to("numbered");
        try (var streams = start(builder.build(), settings)) {
            Thread.currentThread().join();
        }
    }

    /** Feeds the instances, and checks that each number came out once, in order, with its count. */
    private static void exactlyOnce(int each) throws Exception {
        create(Map.of("numbers", 3, "numbered", 3));
        System.out.println("created");
        int keys = 30;
        try (var producer = producer()) {
            for (int number = 0; number < each; number++) {
                for (int key = 0; key < keys; key++) {
                    producer.send(new ProducerRecord<>("numbers", "k" + key, String.valueOf(number)));
                }
                producer.flush();
                Thread.sleep(10);
            }
        }
        System.out.println("fed");
        var byKey = read("numbered", 3, keys * each);
        var expected = IntStream.range(0, each).mapToObj(number -> number + "." + (number + 1)).toList();
        check(byKey.size() == keys, "keys: " + byKey.keySet());
        byKey.forEach((key, values) -> same(expected, values, key));
        System.out.println(sizes(byKey) + " records");
    }

    /** The word count of an application, its input, and the counts to expect. */
    private static class WordCount {
        final String name;
        final Map<String, Integer> expected = new TreeMap<>();
        private final Random random = new Random(1);

        WordCount(String name, int partitions) throws Exception {
            this.name = name;
            create(Map.of(name + "-lines", partitions, name + "-counts", 2));
        }

        Topology topology() {
            var builder = new StreamsBuilder();
            KStream<String, String> lines = builder.stream(name + "-lines");
            lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.as("words"))
                .toStream()
                .mapValues(String::valueOf)
                .to(name + "-counts");
            return builder.build();
        }

        /** Produces lines of words, and counts them. */
        void say(int lines) {
            try (var producer = producer()) {
                for (int line = 0; line < lines; line++) {
                    var words = new ArrayList<String>();
                    for (int word = 0; word < 5; word++) {
                        words.add(WORDS[random.nextInt(WORDS.length)]);
                        expected.merge(words.get(word), 1, Integer::sum);
                    }
                    var text = String.join(" ", words);
                    producer.send(new ProducerRecord<>(name + "-lines", "k" + random.nextInt(), text));
                }
            }
        }

        int total() {
            return expected.values().stream().mapToInt(Integer::intValue).sum();
        }

        /** The output has each count of each word once, in order. */
        void expectCounts() {
            var byWord = read(name + "-counts", 2, total());
            same(expected.keySet(), byWord.keySet(), "words");
            expected.forEach((word, count) -> {
                var counts = IntStream.rangeClosed(1, count).mapToObj(String::valueOf).toList();
                same(counts, byWord.get(word), word);
            });
        }
    }

    private static int sizes(Map<String, List<String>> lists) {
        return lists.values().stream().mapToInt(List::size).sum();
    }

    private static Map<String, Integer> stored(KafkaStreams streams) {
        var store = streams.store(
            StoreQueryParameters.fromNameAndType("words", QueryableStoreTypes.<String, Long>keyValueStore()));
        var words = new TreeMap<String, Integer>();
        try (var all = store.all()) {
            all.forEachRemaining(entry -> words.put(entry.key, entry.value.intValue()));
        }
        return words;
    }

    private static int tasks(KafkaStreams streams) {
        return streams.metadataForLocalThreads().stream().mapToInt(thread -> thread.activeTasks().size()).sum();
    }

    private static KafkaStreams start(Topology topology, Properties settings) {
        return started(topology, settings, new AtomicLong());
    }

    /** Starts an instance, and waits until it is running: its stores are restored. */
    private static KafkaStreams started(Topology topology, Properties settings, AtomicLong restored) {
        var streams = new KafkaStreams(topology, settings);
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition at, String store, long from, long to) {}

            @Override
            public void onBatchRestored(TopicPartition at, String store, long last, long count) {}

            @Override
            public void onRestoreEnd(TopicPartition at, String store, long count) {
                restored.addAndGet(count);
            }
        });
        streams.start();
        until(() -> streams.state() == KafkaStreams.State.RUNNING && tasks(streams) > 0, "state RUNNING");
        return streams;
    }

    private static Properties settings(String application, String instance) {
        var settings = base();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, instance);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, new File(directory, instance).getPath());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        // Without a cache, each update of a store comes out.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // An instance of Streams does not leave its group when it is closed: its session expires.
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "1500");
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "300");
        // The transaction of a killed instance, unless the next one has its state directory.
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "2000");
        return settings;
    }

    private static Properties base() {
        var settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private static void create(Map<String, Integer> topics) throws Exception {
        try (var admin = Admin.create(base())) {
            var all = new ArrayList<NewTopic>();
            topics.forEach((name, partitions) -> all.add(new NewTopic(name, partitions, (short) 1)));
            admin.createTopics(all).all().get();
        }
    }

    private static String configuration(String topic, String key) throws Exception {
        try (var admin = Admin.create(base())) {
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value();
        }
    }

    private static KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(base(), new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer() {
        var settings = base();
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static List<TopicPartition> partitions(KafkaConsumer<?, ?> consumer, String topic) {
        var all = new ArrayList<TopicPartition>();
        consumer.partitionsFor(topic).forEach(found -> all.add(new TopicPartition(topic, found.partition())));
        return all;
    }

    /** The sum of the first offsets of a topic's partitions. */
    private static long startOffsets(String topic) {
        try (var consumer = consumer()) {
            return consumer.beginningOffsets(partitions(consumer, topic)).values().stream().mapToLong(at -> at).sum();
        }
    }

    /** The number of records that a topic has, all keys counted. */
    private static long records(String topic) {
        long count = 0;
        try (var consumer = consumer()) {
            var all = partitions(consumer, topic);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            var ends = consumer.endOffsets(all);
            while (!all.stream().allMatch(at -> consumer.position(at) >= ends.get(at))) {
                count += consumer.poll(Duration.ofMillis(50)).count();
            }
        }
        return count;
    }

    /** The committed values of each key, once there are as many, with what else comes within half a second. */
    private static Map<String, List<String>> read(String topic, int partitions, int count) {
        var byKey = new TreeMap<String, List<String>>();
        try (var consumer = consumer()) {
            var all = IntStream.range(0, partitions).mapToObj(index -> new TopicPartition(topic, index)).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Runnable poll = () -> consumer.poll(Duration.ofMillis(50)).forEach(record ->
                byKey.computeIfAbsent(record.key(), any -> new ArrayList<>()).add(record.value()));
            while (sizes(byKey) < count) {
                // The patience is that for the next record: instances may be killed meanwhile.
                int before = sizes(byKey);
                until(() -> {
                    poll.run();
                    return sizes(byKey) > before;
                }, "more than " + before + " of " + count + " records in " + topic);
            }
            long deadline = System.nanoTime() + Duration.ofMillis(500).toNanos();
            while (System.nanoTime() < deadline) {
                poll.run();
            }
        }
        return byKey;
    }

    private static void delete(File file) {
        var inside = file.listFiles();
        if (inside != null) {
            for (File child : inside) {
                delete(child);
            }
        }
        check(file.delete(), "cannot delete " + file);
    }

    private static void until(BooleanSupplier condition, String what) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "no " + what + " in time");
            try {
                Thread.sleep(20);
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }
    }

    private static void same(Object expected, Object found, String what) {
        check(expected.equals(found), what + ": " + found + " instead of " + expected);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
