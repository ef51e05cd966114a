import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A producer with a transactional.id: prints the error of initTransactions and its duration in milliseconds. */
public class Transactional {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", "refused");
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            long start = System.nanoTime();
            try {
                producer.initTransactions();
                System.out.println("initialized");
            } catch (RuntimeException error) {
                System.out.println((System.nanoTime() - start) / 1_000_000 + " " + error);
            }
        }
    }
}
