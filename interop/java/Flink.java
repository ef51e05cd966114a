import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Copies the topic "source" to "sink" with Flink's exactly-once sink. A record's value has its number, and its key the partition.
 * Arguments: bootstrap servers, and the directory of checkpoints, from the newest of which it continues. Runs until it is killed.
 */
public class Flink {
    private static final long CHECKPOINT_EVERY_MS = 300;

    public static void main(String[] arguments) throws Exception {
        var checkpoints = Path.of(arguments[1]);
        var configuration = new Configuration();
        configuration.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        configuration.setString("execution.checkpointing.storage", "filesystem");
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("execution.checkpointing.num-retained", "3");
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "1000000");
        configuration.setString("restart-strategy.fixed-delay.delay", "200 ms");
        newest(checkpoints).ifPresent(path -> {
            configuration.setString("execution.state-recovery.path", path.toUri().toString());
            System.out.println("continues from " + path);
        });
        var flink = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        flink.setParallelism(2);
        flink.enableCheckpointing(CHECKPOINT_EVERY_MS);
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics("source")
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(KafkaRecordDeserializationSchema.valueOnly(StringDeserializer.class))
            .build();
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(new Serializer())
            .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
        System.out.println("starts");
        flink.execute("copy");
    }

    /** The newest checkpoint that is complete. */
    private static Optional<Path> newest(Path checkpoints) throws IOException {
        try (var files = Files.walk(checkpoints)) {
            return files
                .filter(file -> file.endsWith("_metadata"))
                .max(Comparator.comparingLong(file -> file.toFile().lastModified()))
                .map(Path::getParent);
        }
    }

    /** The number of the source's partition is the remainder of the value. */
    private static class Serializer implements KafkaRecordSerializationSchema<String> {
        @Override
        public ProducerRecord<byte[], byte[]> serialize(String value, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>("sink", Integer.parseInt(value) % 2, null, value.getBytes());
        }
    }
}
