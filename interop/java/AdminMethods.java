import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Calls every method of Admin, and prints a line per call: the outcome without what differs from run to run. */
public class AdminMethods {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    /** For calls that are repeated until their time is over. */
    private static final int SHORT_MS = 1500;

    private static Admin admin;

    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("default.api.timeout.ms", "15000");
        config.put("request.timeout.ms", "10000");
        admin = Admin.create(config);
        try {
            topics();
            records(args[0]);
            configs();
            cluster();
            replicas();
            groups();
            producers(args[0]);
            quotas();
            credentials();
            acls();
            tokens();
            features();
            quorum();
            otherGroups();
            metrics();
        } finally {
            admin.close(Duration.ofSeconds(5));
        }
    }

    private static void call(String name, Callable<Object> call) {
        String outcome;
        try {
            outcome = String.valueOf(call.call());
        } catch (ExecutionException e) {
            outcome = e.getCause().getClass().getSimpleName();
        } catch (Exception e) {
            outcome = "thrown " + e.getClass().getSimpleName();
        }
        System.out.println(name + "\t" + outcome.replace('\n', ' '));
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(PATIENCE.toMillis(), TimeUnit.MILLISECONDS);
    }

    /** The outcome of each of several futures. */
    private static <K> Object each(Map<K, ? extends KafkaFuture<?>> futures) throws Exception {
        Map<String, String> outcomes = new TreeMap<>();
        for (Map.Entry<K, ? extends KafkaFuture<?>> entry : futures.entrySet()) {
            String outcome;
            try {
                outcome = String.valueOf(get(entry.getValue()));
            } catch (ExecutionException e) {
                outcome = e.getCause().getClass().getSimpleName();
            }
            outcomes.put(String.valueOf(entry.getKey()), outcome);
        }
        return outcomes;
    }

    private static TopicPartition at(String topic, int partition) {
        return new TopicPartition(topic, partition);
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    private static String described(TopicPartitionInfo partition) {
        return partition.partition() + " leader " + partition.leader().id() + " replicas " + ids(partition.replicas())
            + " isr " + ids(partition.isr());
    }

    private static void topics() {
        List<NewTopic> topics = List.of(new NewTopic("orders", 2, (short) 1), new NewTopic("bad name", 1, (short) 1),
            new NewTopic("wide", 1, (short) 9), new NewTopic("none", 0, (short) 1),
            new NewTopic("assigned", Map.of(0, List.of(1))), new NewTopic("lost", Map.of(0, List.of(9))));
        call("createTopics", () -> {
            CreateTopicsResult result = admin.createTopics(topics);
            return each(result.values()) + " " + get(result.numPartitions("orders"))
                + get(result.replicationFactor("orders"));
        });
        call("createTopics again", () -> each(admin.createTopics(topics.subList(0, 1)).values()));
        call("createTopics validateOnly", () -> each(admin.createTopics(List.of(new NewTopic("dry", 3, (short) 1)),
            new CreateTopicsOptions().validateOnly(true)).values()));
        call("listTopics", () -> new TreeSet<>(get(admin.listTopics().names())));
        call("describeTopics", () -> {
            TopicDescription topic = get(admin.describeTopics(List.of("orders")).allTopicNames()).get("orders");
            return topic.name() + topic.isInternal() + topic.authorizedOperations()
                + topic.partitions().stream().map(AdminMethods::described).collect(Collectors.toList());
        });
        call("describeTopics missing", () -> each(admin.describeTopics(List.of("missing")).topicNameValues()));
        call("describeTopics by id", () -> {
            Uuid id = get(admin.describeTopics(List.of("orders")).allTopicNames()).get("orders").topicId();
            Set<Uuid> one = Set.of(id);
            return get(admin.describeTopics(TopicCollection.ofTopicIds(one)).allTopicIds()).get(id).name();
        });
        call("describeTopics with operations", () -> get(admin.describeTopics(List.of("orders"),
            new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames()).get("orders")
            .authorizedOperations().stream().map(Enum::name).collect(Collectors.toCollection(TreeSet::new)));
        call("createPartitions", () -> each(admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(3),
            "assigned", NewPartitions.increaseTo(1), "missing", NewPartitions.increaseTo(2))).values()));
        call("createPartitions assigned", () -> each(admin.createPartitions(
            Map.of("assigned", NewPartitions.increaseTo(2, List.of(List.of(9))))).values()));
        call("deleteTopics", () -> each(admin.deleteTopics(List.of("assigned", "missing")).topicNameValues()));
    }

    private static void records(String bootstrap) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producing(bootstrap))) {
            for (int i = 0; i < 5; i++) {
                producer.send(new ProducerRecord<>("orders", 0, 1000L * i, null, new byte[100])).get();
            }
        }
        call("listOffsets", () -> {
            Map<String, String> offsets = new TreeMap<>();
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
                    OffsetSpec.forTimestamp(2500), OffsetSpec.earliestLocal(), OffsetSpec.latestTiered())) {
                ListOffsetsResult.ListOffsetsResultInfo info =
                    get(admin.listOffsets(Map.of(at("orders", 0), spec)).partitionResult(at("orders", 0)));
                String timestamp = spec instanceof OffsetSpec.MaxTimestampSpec ? " " + info.timestamp() : "";
                offsets.put(spec.getClass().getSimpleName(), info.offset() + timestamp);
            }
            return offsets;
        });
        call("listOffsets missing", () -> get(admin.listOffsets(Map.of(at("orders", 7), OffsetSpec.latest()),
            new ListOffsetsOptions().timeoutMs(SHORT_MS)).all()));
        call("deleteRecords", () -> {
            Map<String, Object> low = new TreeMap<>();
            Map<TopicPartition, RecordsToDelete> before = Map.of(at("orders", 0), RecordsToDelete.beforeOffset(2),
                at("orders", 1), RecordsToDelete.beforeOffset(9));
            for (var entry : admin.deleteRecords(before).lowWatermarks().entrySet()) {
                try {
                    low.put(entry.getKey().toString(), get(entry.getValue()).lowWatermark());
                } catch (ExecutionException e) {
                    low.put(entry.getKey().toString(), e.getCause().getClass().getSimpleName());
                }
            }
            return low;
        });
    }

    private static Map<String, Object> producing(String bootstrap) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        return config;
    }

    private static void configs() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "orders");
        ConfigResource missing = new ConfigResource(ConfigResource.Type.TOPIC, "missing");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "billing");
        AlterConfigOp retention =
            new AlterConfigOp(new ConfigEntry("retention.ms", "5000"), AlterConfigOp.OpType.SET);
        AlterConfigOp bad = new AlterConfigOp(new ConfigEntry("no.such", "1"), AlterConfigOp.OpType.SET);
        call("incrementalAlterConfigs", () -> each(admin.incrementalAlterConfigs(
            Map.of(topic, List.of(retention), missing, List.of(retention), group, List.of(bad))).values()));
        call("describeConfigs", () -> {
            ConfigEntry entry = get(admin.describeConfigs(List.of(topic)).all()).get(topic).get("retention.ms");
            return entry.value() + entry.source() + entry.isReadOnly() + entry.isSensitive();
        });
        call("describeConfigs missing", () -> get(admin.describeConfigs(List.of(missing)).all()));
        call("listConfigResources", () -> get(admin.listConfigResources(Set.of(ConfigResource.Type.BROKER,
            ConfigResource.Type.TOPIC), new ListConfigResourcesOptions()).all()).stream().map(Object::toString)
            .filter(name -> !name.contains("__")).collect(Collectors.toCollection(TreeSet::new)));
    }

    private static void cluster() {
        call("describeCluster", () -> {
            DescribeClusterResult cluster = admin.describeCluster(new DescribeClusterOptions()
                .includeAuthorizedOperations(true));
            return ids(get(cluster.nodes())) + " controller " + get(cluster.controller()).id() + " "
                + get(cluster.authorizedOperations()).stream().map(Enum::name)
                    .collect(Collectors.toCollection(TreeSet::new));
        });
        call("describeCluster without operations", () ->
            get(admin.describeCluster().authorizedOperations()));
        call("describeCluster with fenced brokers", () -> ids(get(admin.describeCluster(
            new DescribeClusterOptions().includeFencedBrokers(true)).nodes())));
        call("unregisterBroker", () -> get(admin.unregisterBroker(9).all()));
    }

    private static String described(LogDirDescription dir) {
        Map<String, String> replicas = new TreeMap<>();
        dir.replicaInfos().forEach((at, info) -> {
            if (at.topic().equals("orders")) {
                replicas.put(at.toString(), (info.size() > 0) + " lag " + info.offsetLag() + info.isFuture());
            }
        });
        return (dir.error() == null) + " " + replicas + " " + (dir.totalBytes().orElse(0) > 0)
            + (dir.usableBytes().orElse(0) > 0);
    }

    private static void replicas() throws Exception {
        call("describeLogDirs", () -> get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).values().stream()
            .map(AdminMethods::described).collect(Collectors.toList()));
        TopicPartitionReplica first = new TopicPartitionReplica("orders", 0, 1);
        TopicPartitionReplica missing = new TopicPartitionReplica("missing", 0, 1);
        call("describeReplicaLogDirs", () -> {
            Map<String, Object> dirs = new TreeMap<>();
            get(admin.describeReplicaLogDirs(List.of(first, missing)).all()).forEach((replica, info) ->
                dirs.put(replica.toString(), (info.getCurrentReplicaLogDir() != null) + " "
                    + info.getCurrentReplicaOffsetLag() + " " + info.getFutureReplicaLogDir() + " "
                    + info.getFutureReplicaOffsetLag()));
            return dirs;
        });
        call("alterReplicaLogDirs to the same", () -> {
            String dir = get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).keySet().iterator().next();
            return each(admin.alterReplicaLogDirs(Map.of(first, dir, missing, dir)).values());
        });
        call("alterReplicaLogDirs to a missing one", () ->
            each(admin.alterReplicaLogDirs(Map.of(first, "/no/such/dir", missing, "/no/such/dir")).values()));
        call("electLeaders preferred", () -> each(elected(ElectionType.PREFERRED,
            Set.of(at("orders", 0), at("orders", 9), at("missing", 0)))));
        call("electLeaders unclean", () -> each(elected(ElectionType.UNCLEAN, Set.of(at("orders", 0)))));
        call("electLeaders all", () -> elected(ElectionType.PREFERRED, null).size());
        call("listPartitionReassignments", () -> get(admin.listPartitionReassignments().reassignments()));
        call("listPartitionReassignments of some", () -> get(admin.listPartitionReassignments(
            Set.of(at("orders", 0), at("orders", 9), at("missing", 0))).reassignments()));
        for (List<Integer> replicas : List.of(List.of(1), List.<Integer>of(), List.of(9), List.of(1, 1),
                List.of(1, 9), List.of(-1))) {
            call("alterPartitionReassignments to " + replicas, () -> each(admin.alterPartitionReassignments(
                Map.of(at("orders", 0), Optional.of(new NewPartitionReassignment(replicas)))).values()));
        }
        Map<TopicPartition, Optional<NewPartitionReassignment>> several = new HashMap<>();
        several.put(at("orders", 0), Optional.empty());
        several.put(at("orders", 9), Optional.of(new NewPartitionReassignment(List.of(1))));
        several.put(at("missing", 0), Optional.empty());
        call("alterPartitionReassignments of several", () ->
            each(admin.alterPartitionReassignments(several).values()));
    }

    private static Map<TopicPartition, KafkaFuture<Object>> elected(ElectionType type, Set<TopicPartition> partitions)
            throws Exception {
        Map<TopicPartition, KafkaFuture<Object>> futures = new HashMap<>();
        get(admin.electLeaders(type, partitions).partitions()).forEach((at, error) -> futures.put(at,
            KafkaFuture.completedFuture(error.map(e -> e.getClass().getSimpleName()).orElse("none"))));
        return futures;
    }

    private static void groups() {
        call("alterConsumerGroupOffsets", () -> {
            AlterConsumerGroupOffsetsResult result = admin.alterConsumerGroupOffsets("billing",
                Map.of(at("orders", 0), new OffsetAndMetadata(3, "note"), at("orders", 1), new OffsetAndMetadata(0)));
            return get(result.partitionResult(at("orders", 0)));
        });
        call("listConsumerGroupOffsets", () ->
            new TreeMap<>(Map.of("billing", get(admin.listConsumerGroupOffsets("billing").partitionsToOffsetAndMetadata())
                .get(at("orders", 0)).toString())));
        call("listGroups", () -> get(admin.listGroups().all()).stream().map(group -> group.groupId() + group.protocol()
            + group.type() + group.groupState()).collect(Collectors.toList()));
        call("listConsumerGroups", () -> get(admin.listConsumerGroups().all()).stream().map(group -> group.groupId()
            + group.isSimpleConsumerGroup() + group.state()).collect(Collectors.toList()));
        call("describeConsumerGroups", () -> {
            ConsumerGroupDescription group =
                get(admin.describeConsumerGroups(List.of("billing")).all()).get("billing");
            return group.groupState() + " " + group.isSimpleConsumerGroup() + group.members() + group.type()
                + group.coordinator().id() + group.authorizedOperations();
        });
        call("describeConsumerGroups missing", () -> each(admin.describeConsumerGroups(List.of("missing"))
            .describedGroups()));
        call("describeClassicGroups", () -> {
            ClassicGroupDescription group = get(admin.describeClassicGroups(List.of("billing")).all()).get("billing");
            return group.state() + group.protocol() + group.protocolData() + group.members();
        });
        call("removeMembersFromConsumerGroup", () -> get(admin.removeMembersFromConsumerGroup("billing",
            new RemoveMembersFromConsumerGroupOptions()).all()));
        call("removeMembersFromConsumerGroup missing", () -> get(admin.removeMembersFromConsumerGroup("billing",
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("instance")))).all()));
        call("deleteConsumerGroupOffsets", () -> {
            DeleteConsumerGroupOffsetsResult result =
                admin.deleteConsumerGroupOffsets("billing", Set.of(at("orders", 0)));
            return get(result.partitionResult(at("orders", 0)));
        });
        call("deleteConsumerGroups", () ->
            each(admin.deleteConsumerGroups(List.of("billing", "missing")).deletedGroups()));
    }

    private static void producers(String bootstrap) throws Exception {
        Map<String, Object> config = producing(bootstrap);
        config.put("transactional.id", "till");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("orders", 1, null, new byte[1])).get();
        call("describeProducers", () -> get(admin.describeProducers(List.of(at("orders", 1))).all())
            .get(at("orders", 1)).activeProducers().stream().map(state -> state.lastSequence() + " "
                + state.currentTransactionStartOffset()).collect(Collectors.toList()));
        call("listTransactions", () -> get(admin.listTransactions().all()).stream().map(transaction ->
            transaction.transactionalId() + transaction.state()).collect(Collectors.toList()));
        call("describeTransactions", () -> {
            TransactionDescription transaction = get(admin.describeTransactions(List.of("till")).all()).get("till");
            return transaction.coordinatorId() + " " + transaction.state() + transaction.topicPartitions()
                + transaction.transactionTimeoutMs();
        });
        call("describeTransactions missing", () ->
            get(admin.describeTransactions(List.of("missing")).all()));
        call("forceTerminateTransaction", () -> get(admin.forceTerminateTransaction("till").result()));
        call("fenceProducers", () -> get(admin.fenceProducers(List.of("till")).all()));
        call("abortTransaction", () ->
            get(admin.abortTransaction(new AbortTransactionSpec(at("orders", 9), 1, (short) 0, 0),
                new AbortTransactionOptions().timeoutMs(SHORT_MS)).all()));
        producer.close(Duration.ZERO);
    }

    private static ClientQuotaEntity entity(String... parts) {
        Map<String, String> entries = new HashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            entries.put(parts[i], parts[i + 1]);
        }
        return new ClientQuotaEntity(entries);
    }

    private static Object altered(boolean dry, ClientQuotaEntity entity, Object... ops) throws Exception {
        List<ClientQuotaAlteration.Op> all = new ArrayList<>();
        for (int i = 0; i < ops.length; i += 2) {
            all.add(new ClientQuotaAlteration.Op((String) ops[i], (Double) ops[i + 1]));
        }
        return each(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, all)),
            new AlterClientQuotasOptions().validateOnly(dry)).values());
    }

    private static void quotas() {
        ClientQuotaEntity both = entity("user", "anna", "client-id", "till");
        List<ClientQuotaEntity> entities = List.of(both, entity("user", "anna"), entity("user", null),
            entity("client-id", "till"), entity("client-id", null), entity("user", null, "client-id", "till"));
        for (ClientQuotaEntity entity : entities) {
            call("alterClientQuotas " + new TreeMap<>(entity.entries()), () ->
                altered(false, entity, "producer_byte_rate", 1000.0, "request_percentage", 12.5));
        }
        call("alterClientQuotas ip", () -> altered(false, entity("ip", "127.0.0.1"), "connection_creation_rate", 10.0));
        call("alterClientQuotas validateOnly", () ->
            altered(true, entity("user", "dry"), "consumer_byte_rate", 1.0));
        call("alterClientQuotas fraction", () -> altered(false, entity("user", "bo"), "consumer_byte_rate", 1.5));
        call("alterClientQuotas unknown key", () -> altered(false, entity("user", "bo"), "no_such_rate", 1.0));
        call("alterClientQuotas ip key", () ->
            altered(false, entity("user", "bo"), "connection_creation_rate", 1.0));
        call("alterClientQuotas user key of ip", () ->
            altered(false, entity("ip", "127.0.0.1"), "producer_byte_rate", 1.0));
        call("alterClientQuotas bad ip", () ->
            altered(false, entity("ip", "no address"), "connection_creation_rate", 1.0));
        call("alterClientQuotas ip and user", () ->
            altered(false, entity("ip", "127.0.0.1", "user", "bo"), "connection_creation_rate", 1.0));
        call("alterClientQuotas no entity", () -> altered(false, entity(), "producer_byte_rate", 1.0));
        call("alterClientQuotas unknown type", () -> altered(false, entity("team", "a"), "producer_byte_rate", 1.0));
        call("alterClientQuotas empty name", () -> altered(false, entity("user", ""), "producer_byte_rate", 1.0));
        call("alterClientQuotas negative", () -> altered(false, entity("user", "neg"), "producer_byte_rate", -1.0));
        call("alterClientQuotas zero", () -> altered(false, entity("user", "zero"), "producer_byte_rate", 0.0));
        call("alterClientQuotas remove unset", () -> altered(false, both, "consumer_byte_rate", null));
        call("alterClientQuotas remove", () -> altered(false, both, "request_percentage", null));
        call("alterClientQuotas mutation", () -> altered(false, both, "controller_mutation_rate", 0.5));
        call("describeClientQuotas all", () -> quotas(ClientQuotaFilter.all()));
        List<ClientQuotaFilterComponent> components = List.of(ClientQuotaFilterComponent.ofEntity("user", "anna"),
            ClientQuotaFilterComponent.ofDefaultEntity("user"), ClientQuotaFilterComponent.ofEntityType("client-id"),
            ClientQuotaFilterComponent.ofEntityType("ip"), ClientQuotaFilterComponent.ofEntityType("team"));
        for (ClientQuotaFilterComponent component : components) {
            call("describeClientQuotas " + component, () ->
                quotas(ClientQuotaFilter.contains(List.of(component))));
            call("describeClientQuotas only " + component, () ->
                quotas(ClientQuotaFilter.containsOnly(List.of(component))));
        }
        call("describeClientQuotas user and client", () -> quotas(ClientQuotaFilter.contains(
            List.of(components.get(0), components.get(2)))));
        call("describeClientQuotas user and ip", () -> quotas(ClientQuotaFilter.contains(
            List.of(components.get(0), components.get(3)))));
        call("describeClientQuotas user twice", () -> quotas(ClientQuotaFilter.contains(
            List.of(components.get(0), components.get(1)))));
        call("describeClientQuotas only nothing", () -> quotas(ClientQuotaFilter.containsOnly(List.of())));
    }

    private static Object quotas(ClientQuotaFilter filter) throws Exception {
        Map<String, Object> quotas = new TreeMap<>();
        get(admin.describeClientQuotas(filter).entities()).forEach((entity, values) ->
            quotas.put(new TreeMap<>(entity.entries()).toString(), new TreeMap<>(values)));
        return quotas;
    }

    private static void credentials() {
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        ScramCredentialInfo large = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192);
        call("alterUserScramCredentials", () -> each(admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("anna", info, "secret"),
            new UserScramCredentialUpsertion("bo", large, "secret"),
            new UserScramCredentialUpsertion("few", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), "x"),
            new UserScramCredentialUpsertion("many", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 20000), "x"),
            new UserScramCredentialUpsertion("", info, "x"),
            new UserScramCredentialUpsertion("twice", info, "x"),
            new UserScramCredentialUpsertion("twice", large, "x"),
            new UserScramCredentialDeletion("missing", ScramMechanism.SCRAM_SHA_256))).values()));
        call("alterUserScramCredentials unknown mechanism", () -> each(admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("anna", ScramMechanism.UNKNOWN))).values()));
        call("describeUserScramCredentials", () ->
            new TreeMap<>(get(admin.describeUserScramCredentials().all())));
        call("describeUserScramCredentials missing", () -> {
            DescribeUserScramCredentialsResult result = admin.describeUserScramCredentials(List.of("missing", "bo"));
            return get(result.users()) + " " + get(result.description("bo"))
                + each(Map.of("missing", result.description("missing")));
        });
        call("describeUserScramCredentials twice", () ->
            get(admin.describeUserScramCredentials(List.of("bo", "bo")).description("bo")));
        call("alterUserScramCredentials delete", () -> each(admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("anna", ScramMechanism.SCRAM_SHA_256),
            new UserScramCredentialDeletion("bo", ScramMechanism.SCRAM_SHA_256))).values()));
        call("describeUserScramCredentials after", () ->
            new TreeMap<>(get(admin.describeUserScramCredentials().all())));
    }

    private static void acls() {
        AclBinding binding = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
            new AccessControlEntry("User:anna", "*", AclOperation.READ, AclPermissionType.ALLOW));
        call("describeAcls", () -> get(admin.describeAcls(AclBindingFilter.ANY).values()));
        call("createAcls", () -> each(admin.createAcls(List.of(binding)).values()));
        call("deleteAcls", () -> each(admin.deleteAcls(List.of(binding.toFilter())).values()));
    }

    private static void tokens() {
        call("createDelegationToken", () -> get(admin.createDelegationToken().delegationToken()));
        call("renewDelegationToken", () -> get(admin.renewDelegationToken(new byte[] {1}).expiryTimestamp()));
        call("expireDelegationToken", () -> get(admin.expireDelegationToken(new byte[] {1}).expiryTimestamp()));
        call("describeDelegationToken", () -> get(admin.describeDelegationToken().delegationTokens()));
    }

    private static Object updated(String feature, int level, FeatureUpdate.UpgradeType type, boolean dry)
            throws Exception {
        return each(admin.updateFeatures(Map.of(feature, new FeatureUpdate((short) level, type)),
            new UpdateFeaturesOptions().validateOnly(dry)).values());
    }

    private static Object transactionVersion() throws Exception {
        FeatureMetadata features = get(admin.describeFeatures().featureMetadata());
        return features.finalizedFeatures().get("transaction.version") + " of "
            + features.supportedFeatures().get("transaction.version") + features.finalizedFeaturesEpoch().isPresent();
    }

    private static void features() {
        call("describeFeatures", AdminMethods::transactionVersion);
        String feature = "transaction.version";
        call("updateFeatures same", () -> updated(feature, 2, FeatureUpdate.UpgradeType.UPGRADE, false));
        call("updateFeatures too high", () -> updated(feature, 9, FeatureUpdate.UpgradeType.UPGRADE, false));
        call("updateFeatures unknown", () -> updated("no.such.version", 1, FeatureUpdate.UpgradeType.UPGRADE, false));
        call("updateFeatures down as upgrade", () -> updated(feature, 1, FeatureUpdate.UpgradeType.UPGRADE, false));
        call("updateFeatures validateOnly", () ->
            updated(feature, 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, true));
        call("describeFeatures after validateOnly", AdminMethods::transactionVersion);
        call("updateFeatures down", () -> updated(feature, 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, false));
        call("updateFeatures up as downgrade", () ->
            updated(feature, 2, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, false));
        call("describeFeatures after", () -> settled("1"));
        call("updateFeatures off", () -> updated(feature, 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE, false));
        call("describeFeatures off", () -> settled("null"));
        call("updateFeatures up", () -> updated(feature, 2, FeatureUpdate.UpgradeType.UPGRADE, false));
        call("describeFeatures up", () -> settled("2"));
    }

    /** The finalized level of transactions; a broker learns of a change a little later than the controller. */
    private static Object settled(String level) throws Exception {
        Object found = null;
        for (int i = 0; i < 50; i++) {
            FeatureMetadata features = get(admin.describeFeatures().featureMetadata());
            FinalizedVersionRange range = features.finalizedFeatures().get("transaction.version");
            found = range;
            if (range == null ? level.equals("null") : level.equals(String.valueOf(range.maxVersionLevel()))) {
                return found;
            }
            Thread.sleep(100);
        }
        return found;
    }

    private static void quorum() {
        call("describeMetadataQuorum", () -> {
            QuorumInfo quorum = get(admin.describeMetadataQuorum().quorumInfo());
            List<Integer> voters =
                quorum.voters().stream().map(QuorumInfo.ReplicaState::replicaId).collect(Collectors.toList());
            return quorum.leaderId() + " " + (quorum.leaderEpoch() > 0) + (quorum.highWatermark() > 0) + voters
                + quorum.observers() + (quorum.voters().get(0).logEndOffset() > 0)
                + quorum.voters().get(0).lastFetchTimestamp().isPresent()
                + quorum.voters().get(0).lastCaughtUpTimestamp().isPresent() + quorum.nodes().keySet();
        });
        call("addRaftVoter", () -> get(admin.addRaftVoter(9, Uuid.randomUuid(),
            Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1))).all()));
        call("removeRaftVoter", () -> get(admin.removeRaftVoter(9, Uuid.randomUuid()).all()));
    }

    private static void otherGroups() {
        call("describeShareGroups", () -> each(admin.describeShareGroups(List.of("missing")).describedGroups()));
        call("listShareGroupOffsets", () -> get(admin.listShareGroupOffsets(
            Map.of("missing", new ListShareGroupOffsetsSpec())).all()));
        call("alterShareGroupOffsets", () ->
            get(admin.alterShareGroupOffsets("missing", Map.of(at("orders", 0), 0L)).all()));
        call("deleteShareGroupOffsets", () -> get(admin.deleteShareGroupOffsets("missing", Set.of("orders")).all()));
        call("deleteShareGroups", () -> each(admin.deleteShareGroups(List.of("missing")).deletedGroups()));
        call("describeStreamsGroups", () -> each(admin.describeStreamsGroups(List.of("missing")).describedGroups()));
        call("listStreamsGroupOffsets", () -> get(admin.listStreamsGroupOffsets(
            Map.of("missing", new ListStreamsGroupOffsetsSpec())).all()));
        call("alterStreamsGroupOffsets", () -> get(admin.alterStreamsGroupOffsets("missing",
            Map.of(at("orders", 0), new OffsetAndMetadata(0))).all()));
        call("deleteStreamsGroupOffsets", () ->
            get(admin.deleteStreamsGroupOffsets("missing", Set.of(at("orders", 0))).all()));
        call("deleteStreamsGroups", () -> each(admin.deleteStreamsGroups(List.of("missing")).deletedGroups()));
    }

    private static void metrics() {
        call("listClientMetricsResources", () -> get(admin.listClientMetricsResources().all()));
        call("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(3)) != null);
        call("metrics", () -> !admin.metrics().isEmpty());
    }
}
