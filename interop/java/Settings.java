import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints the settings of Apache Kafka 4.3, one a line: kind of resource, name, type, default, mode. */
public class Settings {
    private static final Map<String, String> MODES = DynamicBrokerConfig.dynamicConfigUpdateModes();

    public static void main(String[] args) {
        print("topic", LogConfig.configDefCopy());
        print("broker", kafka.server.KafkaConfig.configDef());
        print("group", GroupConfig.CONFIG_DEF);
        print("client", ClientMetricsConfigs.configDef());
    }

    private static void print(String scope, ConfigDef settings) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            if (!key.internalConfig) {
                String type = key.type.toString().toLowerCase();
                System.out.println(String.join("\t", scope, key.name, type, defaultOf(key), last(scope, key.name)));
            }
        }
    }

    private static String defaultOf(ConfigDef.ConfigKey key) {
        if (key.defaultValue == null || key.defaultValue == ConfigDef.NO_DEFAULT_VALUE) {
            return "<null>";
        }
        String text = ConfigDef.convertToString(key.defaultValue, key.type);
        return text.isEmpty() ? "<empty>" : text;
    }

    private static String last(String scope, String name) {
        if (scope.equals("broker")) {
            return MODES.getOrDefault(name, "read-only");
        }
        if (!scope.equals("topic")) {
            return "-";
        }
        StringBuilder names = new StringBuilder();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, java.util.List.of())
            .forEach(synonym -> names.append(names.length() == 0 ? "" : ",").append(synonym.name()));
        return names.length() == 0 ? "-" : names.toString();
    }
}
