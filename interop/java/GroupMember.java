import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * A member of a group: consumes a topic until SIGTERM, and commits each batch before it prints it.
 *
 * <p>Its output has a line "owns PARTITION.." for each change of its assignment, and a line "record PARTITION OFFSET" for each
 * record. The last line is "left".
 */
public class GroupMember {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("group.protocol", args[3]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        if (args[3].equals("classic")) {
            config.put("session.timeout.ms", "6000");
            config.put("heartbeat.interval.ms", "300");
        }
        config.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config);
        Thread main = Thread.currentThread();
        AtomicBoolean stops = new AtomicBoolean();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            // Not consumer.wakeup(): it can interrupt a commit that the broker carries out, and the one that repeats it, too.
            stops.set(true);
            try {
                main.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(args[1]), new Ownership());
        while (!stops.get()) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            if (!records.isEmpty()) {
                consumer.commitSync();
            }
            for (ConsumerRecord<byte[], byte[]> record : records) {
                System.out.println("record " + record.partition() + " " + record.offset());
            }
        }
        consumer.close();
        System.out.println("left");
    }

    private static class Ownership implements ConsumerRebalanceListener {
        private final TreeSet<Integer> owned = new TreeSet<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(at -> owned.add(at.partition()));
            show();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(at -> owned.remove(at.partition()));
            show();
        }

        private void show() {
            StringBuilder line = new StringBuilder("owns");
            owned.forEach(partition -> line.append(' ').append(partition));
            System.out.println(line);
        }
    }
}
