package org.apache.kafka.common.test.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;

/** A cluster in one process of {@code ottla broker}; the system property {@code ottla.binary} is its program. */
class OttlaCluster implements ClusterInstance {
    /** Some tests compare all that is printed meanwhile, and replace the output for it. */
    private static final PrintStream OUTPUT = System.out;
    private static final String READY_LINE = "listening on ";
    private static final Pattern REFUSED = Pattern.compile("no broker property is called `([^`]+)`");
    private static final String UNSTABLE_FEATURES = "unstable.feature.versions.enable";
    private static final long STOP_SECONDS = 10;
    private static final long CHANGED_WITHIN_MS = 60_000;
    /**
     * The longest time after which Java's clients try to connect again ({@code reconnect.backoff.max.ms} with its jitter), and some for
     * the connection. A broker of Apache Kafka takes longer to start; until then the requests of clients fail without being sent.
     */
    private static final long RECONNECTED_WITHIN_MS = 1_500;

    private final ClusterConfig config;
    private final List<String> addresses = new ArrayList<>();
    private final Set<Integer> shutDown = new ConcurrentSkipListSet<>();
    private Process process;
    private Path dir;
    private boolean isStarted;
    private boolean isStopped;

    OttlaCluster(ClusterConfig config) {
        this.config = config;
    }

    @Override
    public void start() {
        if (isStarted) {
            return;
        }
        isStarted = true;
        Map<String, String> properties = properties();
        try {
            dir = Files.createTempDirectory("ottla-card-");
            // Apache Kafka ignores properties that it does not know. Ottla refuses them, and does not have all of Apache Kafka's.
            for (String refused = launch(properties); refused != null; refused = launch(properties)) {
                System.out.println("without the property " + refused);
                String name = refused;
                // A test has a sentence for a name, which ends at its first space.
                if (!properties.keySet().removeIf(key -> key.equals(name) || key.startsWith(name + " "))) {
                    throw new IllegalStateException("ottla broker refuses " + refused);
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Starts the broker, or returns the property that it refuses. */
    private String launch(Map<String, String> properties) throws IOException {
        Path file = dir.resolve("server.properties");
        Files.write(file, properties.entrySet().stream().map(property -> property.getKey() + "=" + property.getValue()).toList());
        List<String> command = new ArrayList<>(List.of(
            System.getProperty("ottla.binary"), "broker", "--data", dir.resolve("data").toString(),
            // As Apache Kafka, which leaves the sync of its files to the operating system.
            "--durability", "os",
            "--config", file.toString(), "--nodes", Integer.toString(config.numBrokers()), "--control", control()));
        if (config.brokerSecurityProtocol() == SecurityProtocol.PLAINTEXT) {
            command.addAll(List.of("--listen", "127.0.0.1:0", "--advertise", "localhost"));
        }
        // As kafka-storage.sh format, with which Apache Kafka's clusters for tests begin.
        command.addAll(List.of("--release-version", config.metadataVersion().version()));
        config.features().forEach((feature, level) -> command.addAll(List.of("--feature", feature.featureName() + "=" + level)));
        process = new ProcessBuilder(command).redirectErrorStream(true).start();
        return readAddresses(new BufferedReader(new InputStreamReader(process.getInputStream())));
    }

    /** The properties of the test, and those that Apache Kafka's clusters for tests have. */
    private Map<String, String> properties() {
        Map<String, String> properties = new LinkedHashMap<>(Map.of(
            // The first id of Apache Kafka's brokers, which tests have as a constant.
            "node.id", "0",
            // The first controller of Apache Kafka's clusters for tests: errors of features name it.
            "controller.quorum.voters", "3000@localhost:9093",
            "group.initial.rebalance.delay.ms", "0",
            "log.cleaner.dedupe.buffer.size", "2097152",
            "offsets.topic.num.partitions", "5",
            "transaction.state.log.num.partitions", "5",
            "share.coordinator.state.topic.num.partitions", "5"));
        properties.putAll(config.serverProperties());
        // A node of Ottla has no properties of its own: those that are equal for all brokers are the cluster's.
        var ofBrokers = brokerIds().stream().map(id -> config.perServerOverrideProperties().getOrDefault(id, Map.of())).toList();
        ofBrokers.get(0).forEach((name, value) -> {
            if (ofBrokers.stream().allMatch(others -> value.equals(others.get(name)))) {
                properties.put(name, value);
            }
        });
        // The one process is the controller, too, whose properties count where no broker has its own.
        config.perServerOverrideProperties().forEach((id, own) -> {
            if (!brokerIds().contains(id)) {
                own.forEach((name, value) -> {
                    if (ofBrokers.stream().noneMatch(ofBroker -> ofBroker.containsKey(name))) {
                        properties.put(name, value);
                    }
                });
            }
        });
        var racks = ofBrokers.stream().map(own -> own.get("broker.rack")).toList();
        // Apache Kafka's clusters for tests have the levels of features that are not for production.
        var unstable = ofBrokers.stream()
            .map(own -> own.getOrDefault(UNSTABLE_FEATURES, properties.getOrDefault(UNSTABLE_FEATURES, "true"))).toList();
        properties.put(UNSTABLE_FEATURES, Set.copyOf(unstable).size() == 1 ? unstable.get(0) : String.join(",", unstable));
        if (racks.stream().allMatch(Objects::nonNull)) {
            properties.put("broker.rack", String.join(",", racks));
        }
        SecurityProtocol protocol = config.brokerSecurityProtocol();
        if (protocol == SecurityProtocol.SASL_PLAINTEXT) {
            String listener = config.brokerListenerName().value();
            properties.put("listeners", listener + "://127.0.0.1:0");
            properties.put("listener.security.protocol.map", listener + ":" + protocol);
            properties.put("sasl.enabled.mechanisms", "PLAIN");
            properties.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
            properties.putIfAbsent("allow.everyone.if.no.acl.found", "false");
            properties.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
            properties.put("listener.name." + listener.toLowerCase(Locale.ROOT) + ".plain.sasl.jaas.config",
                "org.apache.kafka.common.security.plain.PlainLoginModule required"
                    + user(JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD)
                    + user(JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD) + ";");
        } else if (protocol != SecurityProtocol.PLAINTEXT) {
            throw new IllegalStateException("the report card starts Ottla without TLS");
        }
        return properties;
    }

    private static String user(String name, String password) {
        return " user_" + name + "=\"" + password + "\"";
    }

    /**
     * Reads until each node has an address, or returns the property that the broker refuses. The rest of the output is copied, so
     * that the broker can write it.
     */
    private String readAddresses(BufferedReader output) throws IOException {
        List<String> lines = new ArrayList<>();
        while (addresses.size() < config.numBrokers()) {
            String line = output.readLine();
            if (line == null) {
                Matcher refused = REFUSED.matcher(String.join(" ", lines));
                if (refused.find()) {
                    return refused.group(1);
                }
                throw new IllegalStateException("ottla broker does not start: " + String.join(" ", lines));
            }
            lines.add(line);
            int at = line.indexOf(READY_LINE);
            if (at >= 0) {
                addresses.add(line.substring(at + READY_LINE.length()).split(" ")[0]);
            }
        }
        Thread copy = new Thread(() -> output.lines().forEach(line -> OUTPUT.println("ottla broker: " + line)));
        copy.setUncaughtExceptionHandler((thread, error) -> { });
        copy.setDaemon(true);
        copy.start();
        return null;
    }

    private String control() {
        return "unix:" + dir.resolve("control");
    }

    @Override
    public void stop() {
        isStopped = true;
        if (process == null) {
            return;
        }
        process.destroy();
        try {
            if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        process = null;
        try (var paths = Files.walk(dir)) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        } catch (IOException error) {
            System.out.println("not removed: " + error);
        }
    }

    @Override
    public void shutdownBroker(int id) {
        fault(id, "stop");
        shutDown.add(id);
    }

    @Override
    public void startBroker(int id) {
        fault(id, "start");
        shutDown.remove(id);
        try {
            Thread.sleep(RECONNECTED_WITHIN_MS);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The ids without objects: {@code NetworkOnly} replaces those. */
    @Override
    public Map<Integer, KafkaBroker> aliveBrokers() {
        Map<Integer, KafkaBroker> alive = new HashMap<>();
        brokerIds().stream().filter(id -> !shutDown.contains(id)).forEach(id -> alive.put(id, null));
        return alive;
    }

    private void fault(int id, String verb) {
        List<String> command = List.of(
            System.getProperty("ottla.binary"), "fault", "node", Integer.toString(id), verb, "--control", control());
        try {
            Process fault = new ProcessBuilder(command).redirectErrorStream(true).start();
            String output = new String(fault.getInputStream().readAllBytes());
            if (fault.waitFor() != 0) {
                throw new IllegalStateException(output.trim());
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public boolean started() {
        return isStarted;
    }

    @Override
    public boolean stopped() {
        return isStopped;
    }

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public Set<Integer> brokerIds() {
        return IntStream.range(0, config.numBrokers()).boxed().collect(Collectors.toCollection(TreeSet::new));
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return String.join(",", addresses).replace("127.0.0.1", "localhost");
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return addresses.stream().map(address -> Integer.valueOf(address.substring(address.lastIndexOf(':') + 1))).toList();
    }

    @Override
    public String clusterId() {
        try (Admin admin = admin()) {
            return admin.describeCluster().clusterId().get();
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.values());
    }

    // Requests are answered after their changes are visible to all clients.

    @Override
    public void waitForReadyBrokers() {
    }

    @Override
    public void ensureConsistentMetadata() {
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        waitTopicCreation(topic, 0);
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        waitUntil("topic " + topic + " has " + partitions + " partitions", admin -> {
            var topics = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            int now = !topics.contains(topic) ? 0
                : admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            return now == partitions;
        });
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        waitUntil("the access list is " + entries, admin -> {
            var found = admin.describeAcls(filter).values().get().stream().map(AclBinding::entry).collect(Collectors.toSet());
            return found.equals(Set.copyOf(entries));
        });
    }

    private interface Condition {
        boolean holds(Admin admin) throws ExecutionException, InterruptedException;
    }

    private void waitUntil(String what, Condition condition) throws InterruptedException {
        long end = System.currentTimeMillis() + CHANGED_WITHIN_MS;
        try (Admin admin = admin()) {
            while (!condition.holds(admin)) {
                if (System.currentTimeMillis() > end) {
                    throw new AssertionError("not within a minute: " + what);
                }
                Thread.sleep(50);
            }
        } catch (ExecutionException error) {
            throw new IllegalStateException(what, error.getCause());
        }
    }

    // NetworkOnly aborts a test before it calls one of the next four.

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        throw new UnsupportedOperationException();
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        throw new UnsupportedOperationException();
    }

    @Override
    public Set<Integer> controllerIds() {
        throw new UnsupportedOperationException();
    }

    @Override
    public String bootstrapControllers() {
        throw new UnsupportedOperationException();
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }
}
