import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Produces 5 records and 3 in a transaction, and consumes them in a group, with a client of any age from 0.11. */
public class RoundTrip {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("acks", "all");
        config.put("compression.type", "gzip");
        config.put("group.id", "billing");
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (int i = 0; i < 5; i++) {
                producer.send(new ProducerRecord<>("orders", "key", "value " + i)).get();
            }
        }
        config.put("transactional.id", "billing");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int i = 0; i < 3; i++) {
                producer.send(new ProducerRecord<>("orders", "key", "in a transaction " + i));
            }
            producer.commitTransaction();
        }
        int consumed = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of("orders"));
            long deadline = System.currentTimeMillis() + 30_000;
            while (consumed < 8 && System.currentTimeMillis() < deadline) {
                // Clients of 0.11 have this form, and those of 4 only the one with a Duration.
                ConsumerRecords<String, String> records = poll(consumer);
                consumed += records.count();
            }
            consumer.commitSync();
        }
        System.out.println("transactional 3 consumed " + consumed);
    }

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            return (ConsumerRecords<String, String>) KafkaConsumer.class
                .getMethod("poll", java.time.Duration.class).invoke(consumer, java.time.Duration.ofMillis(200));
        } catch (NoSuchMethodException older) {
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 200L);
        }
    }
}
