package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.opentest4j.TestAbortedException;

/**
 * One run of a test on a cluster of Ottla. The class has the name of Apache Kafka's class for the same purpose, which it
 * replaces: it precedes that class in the class path.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean isRepeated;

    /** Apache Kafka runs a test twice, with controllers in processes of their own and in those of brokers. Here one run is enough. */
    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
        this.isRepeated = isCombined && config.clusterTypes().contains(Type.KRAFT);
    }

    @Override
    public String getDisplayName(int invocation) {
        return name + " [" + invocation + "] " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OttlaCluster cluster = new OttlaCluster(config);
        BeforeEachCallback before = context -> {
            if (isRepeated) {
                throw new TestAbortedException("this broker has no controllers, so it would be the same run");
            }
            if (config.isAutoStart()) {
                cluster.start();
            }
        };
        AfterEachCallback after = context -> cluster.stop();
        return List.of(before, after, new ClusterInstanceParameterResolver(cluster));
    }
}
