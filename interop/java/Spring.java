import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Copies the topic "source" to the partitions of the same number of "sink" with Spring's listener container: each record is a
 * transaction of its own, with the offset of the group. Every fiftieth attempt fails after its record was sent, so that its
 * transaction is rolled back. Arguments: bootstrap servers, the prefix of the transactional ids. Runs until it is killed.
 */
public class Spring {
    private static final AtomicInteger ATTEMPTS = new AtomicInteger();

    public static void main(String[] arguments) throws InterruptedException {
        var producers = new DefaultKafkaProducerFactory<String, String>(Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 10_000));
        producers.setTransactionIdPrefix(arguments[1]);
        var template = new KafkaTemplate<>(producers);
        var consumers = new DefaultKafkaConsumerFactory<String, String>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            ConsumerConfig.GROUP_ID_CONFIG, "spring",
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6_000,
            ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 500,
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class));
        var properties = new ContainerProperties("source");
        properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        properties.setMessageListener((MessageListener<String, String>) record -> copy(template, record));
        var container = new ConcurrentMessageListenerContainer<>(consumers, properties);
        container.setConcurrency(2);
        container.setAfterRollbackProcessor(
            new DefaultAfterRollbackProcessor<>(new FixedBackOff(0, FixedBackOff.UNLIMITED_ATTEMPTS)));
        container.start();
        new CountDownLatch(1).await();
    }

    private static void copy(KafkaTemplate<String, String> template, ConsumerRecord<String, String> record) {
        template.send(new ProducerRecord<>("sink", record.partition(), record.key(), record.value()));
        int attempt = ATTEMPTS.incrementAndGet();
        if (attempt % 50 == 0) {
            throw new IllegalStateException("an attempt that shall be rolled back");
        }
        if (attempt % 100 == 1) {
            System.out.println("attempts " + attempt);
        }
    }
}
