import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Reads groups from standard input, in the format of crates/client/tests/assignor_cases, and prints the assignments of Java's assignors. */
public class Assignors {
    record Member(String instance, String rack, Integer generation, List<String> topics, List<TopicPartition> owned) {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Member> members = new TreeMap<>();
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "case" -> {
                    partitions.clear();
                    members.clear();
                    out.append(line).append('\n');
                }
                case "topic" -> topic(words[1], words[2], partitions);
                case "member" -> members.put(words[1], new Member(word(words[2]), word(words[3]),
                    word(words[4]) == null ? null : Integer.valueOf(words[4]), list(words[5], ","), owned(words[6])));
                case "end" -> {
                    Cluster cluster = new Cluster("cluster", nodes(partitions), partitions, Set.of(), Set.of());
                    for (ConsumerPartitionAssignor assignor : List.of(new RangeAssignor(), new RoundRobinAssignor(),
                            new StickyAssignor(), new CooperativeStickyAssignor())) {
                        assign(assignor, cluster, members, out);
                    }
                    out.append("end\n");
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(out);
    }

    static void assign(ConsumerPartitionAssignor assignor, Cluster cluster, Map<String, Member> members, StringBuilder out)
            throws Exception {
        Map<String, Subscription> subscriptions = new TreeMap<>();
        StringBuilder userData = new StringBuilder();
        for (Map.Entry<String, Member> entry : members.entrySet()) {
            Member member = entry.getValue();
            // A member's own assignor instance remembers its last assignment.
            ConsumerPartitionAssignor own = assignor.getClass().getConstructor().newInstance();
            if (member.generation != null) {
                own.onAssignment(new Assignment(member.owned),
                    new ConsumerGroupMetadata("group", member.generation, entry.getKey(), Optional.empty()));
            }
            ByteBuffer data = own.subscriptionUserData(new HashSet<>(member.topics));
            userData.append(' ').append(entry.getKey()).append('=').append(data == null ? "-" : hex(data.duplicate()));
            Subscription subscription = new Subscription(member.topics, data, member.owned,
                member.generation == null ? -1 : member.generation, Optional.ofNullable(member.rack));
            subscription.setGroupInstanceId(Optional.ofNullable(member.instance));
            subscriptions.put(entry.getKey(), subscription);
        }
        Map<String, Assignment> assigned = assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        out.append(assignor.name());
        new TreeMap<>(assigned).forEach((member, assignment) -> out.append(' ').append(member).append('=')
            .append(partitions(assignment.partitions())));
        out.append('\n').append(assignor.name()).append(".data").append(userData).append('\n');
    }

    static void topic(String name, String racks, List<PartitionInfo> partitions) {
        int number = 0;
        for (String replicas : racks.split(";")) {
            Node[] nodes = list(replicas, ",").stream().map(rack -> new Node(rack.hashCode(), "host", 1, rack))
                .toArray(Node[]::new);
            partitions.add(new PartitionInfo(name, number++, nodes.length == 0 ? Node.noNode() : nodes[0], nodes, nodes));
        }
    }

    static Set<Node> nodes(List<PartitionInfo> partitions) {
        return partitions.stream().flatMap(partition -> Arrays.stream(partition.replicas())).collect(Collectors.toSet());
    }

    static String word(String word) {
        return word.equals("-") ? null : word;
    }

    static List<String> list(String words, String separator) {
        return words.equals("-") ? Collections.emptyList() : Arrays.asList(words.split(separator));
    }

    static List<TopicPartition> owned(String words) {
        return list(words, ",").stream().map(word -> {
            int at = word.lastIndexOf(':');
            return new TopicPartition(word.substring(0, at), Integer.parseInt(word.substring(at + 1)));
        }).collect(Collectors.toList());
    }

    static String partitions(List<TopicPartition> partitions) {
        if (partitions.isEmpty()) {
            return "-";
        }
        return partitions.stream().map(at -> at.topic() + ":" + at.partition()).collect(Collectors.joining(","));
    }

    static String hex(ByteBuffer bytes) {
        StringBuilder text = new StringBuilder();
        while (bytes.hasRemaining()) {
            text.append(String.format("%02x", bytes.get()));
        }
        return text.toString();
    }
}
