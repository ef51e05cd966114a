import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Commits transactions of one record, one after the other, as {@code ottla bench transactions} does. Arguments: bootstrap
 * servers, topic, transactions, those before the measurement.
 */
public class Transactions {
    private static final int MESSAGE_BYTES = 100;

    public static void main(String[] arguments) {
        var topic = arguments[1];
        long count = Long.parseLong(arguments[2]);
        long warmup = Long.parseLong(arguments[3]);
        var properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", "bench-" + System.nanoTime());
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            commit(producer, topic, warmup);
            var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            long cpu = system.getProcessCpuTime();
            long began = System.nanoTime();
            commit(producer, topic, count);
            double seconds = (System.nanoTime() - began) / 1e9;
            cpu = system.getProcessCpuTime() - cpu;
            System.out.printf("{\"cpu_ns_per_msg\":%d,\"msgs_per_s\":%d}%n", cpu / count, (long) (count / seconds));
        }
    }

    private static void commit(KafkaProducer<byte[], byte[]> producer, String topic, long count) {
        for (long n = 0; n < count; n++) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, new byte[MESSAGE_BYTES]));
            producer.commitTransaction();
        }
    }
}
