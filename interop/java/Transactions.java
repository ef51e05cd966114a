import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of Java's client, of 3.6 and later: commits, aborts, fencing, timeouts, offsets. Each story throws when it
 * meets something else than at Apache Kafka.
 */
public class Transactions {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (var admin = admin()) {
            var topics = new ArrayList<NewTopic>();
            for (String name : List.of("ends", "fenced", "slow", "source", "sink", "empty")) {
                topics.add(new NewTopic(name, 2, (short) 1));
            }
            admin.createTopics(topics).all().get();
        }
        commitsAndAborts();
        aNewerProducerFencesTheOlder();
        aZombieWithoutTransactionIsFenced();
        aTransactionThatTakesTooLongIsAborted();
        offsetsOfATransaction();
        transactionsWithoutRecords();
        System.out.println("all stories told");
    }

    private static void commitsAndAborts() {
        var expected = new ArrayList<String>();
        try (var producer = initialized("ends")) {
            for (int number = 0; number < 12; number++) {
                producer.beginTransaction();
                for (int n = 0; n < 4; n++) {
                    producer.send(new ProducerRecord<>("ends", n % 2, null, number + "." + n));
                }
                if (number % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    for (int n = 0; n < 4; n++) {
                        expected.add(number + "." + n);
                    }
                }
            }
        }
        Collections.sort(expected);
        same(expected, read("ends", "read_committed"), "committed");
        check(read("ends", "read_uncommitted").size() == 48, "all records are in the log");
    }

    private static void aNewerProducerFencesTheOlder() {
        try (var older = initialized("fenced")) {
            older.beginTransaction();
            older.send(new ProducerRecord<>("fenced", 0, null, "of the older"));
            older.flush();
            try (var newer = initialized("fenced")) {
                expectFenced(older::commitTransaction);
                newer.beginTransaction();
                newer.send(new ProducerRecord<>("fenced", 0, null, "of the newer"));
                newer.commitTransaction();
            }
        }
        same(List.of("of the newer"), read("fenced", "read_committed"), "fenced");
    }

    private static void aZombieWithoutTransactionIsFenced() {
        try (var zombie = initialized("zombie"); var newer = initialized("zombie")) {
            zombie.beginTransaction();
            expectFenced(() -> {
                try {
                    zombie.send(new ProducerRecord<>("fenced", 1, null, "late")).get();
                } catch (ExecutionException error) {
                    throw (KafkaException) error.getCause();
                } catch (InterruptedException error) {
                    throw new AssertionError(error);
                }
                zombie.commitTransaction();
            });
            newer.beginTransaction();
            newer.send(new ProducerRecord<>("fenced", 1, null, "in time"));
            newer.commitTransaction();
        }
        same(List.of("in time", "of the newer"), read("fenced", "read_committed"), "zombie");
    }

    private static void aTransactionThatTakesTooLongIsAborted() throws Exception {
        var settings = settings();
        settings.put("transactional.id", "slow");
        settings.put("transaction.timeout.ms", "1000");
        try (var slow = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            slow.initTransactions();
            slow.beginTransaction();
            slow.send(new ProducerRecord<>("slow", 0, null, "too slow")).get();
            try (var consumer = consumer("read_committed", null)) {
                var at = new TopicPartition("slow", 0);
                until(() -> consumer.endOffsets(List.of(at)).get(at) >= 2, "the coordinator's marker");
            }
            try {
                slow.commitTransaction();
                throw new AssertionError("a transaction after its timeout was committed");
            } catch (KafkaException aborted) {
                // Its class is the client version's choice.
            }
        }
        try (var next = initialized("slow")) {
            next.beginTransaction();
            next.send(new ProducerRecord<>("slow", 0, null, "in time"));
            next.commitTransaction();
        }
        same(List.of("in time"), read("slow", "read_committed"), "slow");
    }

    private static void offsetsOfATransaction() throws Exception {
        try (var filler = new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < 10; n++) {
                filler.send(new ProducerRecord<>("source", 0, null, "r" + n)).get();
            }
        }
        var at = new TopicPartition("source", 0);
        try (var producer = initialized("mover"); var consumer = consumer("read_committed", "movers")) {
            consumer.subscribe(Set.of("source"));
            var taken = new ArrayList<ConsumerRecord<String, String>>();
            until(() -> {
                consumer.poll(Duration.ofMillis(100)).forEach(taken::add);
                return taken.size() == 10;
            }, "the records of the source");
            for (long offset : new long[] {4, 7, 10}) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("sink", 0, null, "up to " + offset));
                var offsets = Map.of(at, new OffsetAndMetadata(offset));
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (offset == 7) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                long expected = offset == 7 ? 4 : offset;
                until(() -> consumer.committed(Set.of(at)).get(at).offset() == expected, "offset " + expected);
            }
        }
        same(List.of("up to 10", "up to 4"), read("sink", "read_committed"), "sink");
        try (var admin = admin()) {
            var offsets = admin.listConsumerGroupOffsets("movers").partitionsToOffsetAndMetadata().get();
            check(offsets.get(at).offset() == 10, "the group's offset: " + offsets);
        }
    }

    private static void transactionsWithoutRecords() {
        try (var producer = initialized("empty")) {
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("empty", 0, null, "after nothing"));
            producer.commitTransaction();
        }
        same(List.of("after nothing"), read("empty", "read_committed"), "empty");
    }

    private static Properties settings() {
        var settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private static Admin admin() {
        return Admin.create(settings());
    }

    private static KafkaProducer<String, String> initialized(String id) {
        var settings = settings();
        settings.put("transactional.id", id);
        settings.put("enable.idempotence", "true");
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static KafkaConsumer<String, String> consumer(String isolation, String group) {
        var settings = settings();
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** The values of a topic up to its end, sorted. */
    private static List<String> read(String topic, String isolation) {
        var values = new ArrayList<String>();
        try (var consumer = consumer(isolation, null)) {
            var all = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            // The markers of the last transaction may be on their way: all are written when nothing is unstable.
            try (var uncommitted = consumer("read_uncommitted", null)) {
                until(() -> consumer.endOffsets(all).equals(uncommitted.endOffsets(all)), "markers in " + topic);
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            var ends = consumer.endOffsets(all);
            until(() -> {
                consumer.poll(Duration.ofMillis(50)).forEach(record -> values.add(record.value()));
                return all.stream().allMatch(at -> consumer.position(at) >= ends.get(at));
            }, "the end of " + topic);
        }
        Collections.sort(values);
        return values;
    }

    private static void expectFenced(Runnable commit) {
        try {
            commit.run();
        } catch (KafkaException error) {
            var cause = error instanceof ProducerFencedException || error.getCause() == null ? error : error.getCause();
            var name = cause.getClass().getSimpleName();
            check(name.equals("ProducerFencedException") || name.equals("InvalidProducerEpochException"), name);
            return;
        }
        throw new AssertionError("an older producer was not fenced");
    }

    private static void until(BooleanSupplier condition, String what) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "no " + what + " in time");
            try {
                Thread.sleep(5);
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }
    }

    private static void same(List<String> expected, List<String> found, String what) {
        check(expected.equals(found), what + ": " + found + " instead of " + expected);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
