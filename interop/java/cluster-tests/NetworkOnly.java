package ottla.card;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.metadata.MetadataCache;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;
import org.opentest4j.TestAbortedException;

/**
 * Aborts each test that needs more of its cluster than the brokers' network: the objects or the metrics of a broker in the test's own
 * process, or the network of controllers. The same tests apply to Apache Kafka and to Ottla.
 */
public final class NetworkOnly implements InvocationInterceptor {
    private static final Set<String> INTERNALS = Set.of(
        "controllers", "controllerIds", "controllerBoundPorts", "bootstrapControllers", "authorizers");
    /** The metrics of all brokers in the process, without a network. */
    private static final String METRICS = "org.apache.kafka.server.metrics.KafkaYammerMetrics";

    @Override
    public <T> T interceptTestClassConstructor(
            Invocation<T> invocation, ReflectiveInvocationContext<Constructor<T>> context, ExtensionContext extension) throws Throwable {
        if (!usesCluster(context)) {
            return invocation.proceed();
        }
        invocation.skip();
        Constructor<T> constructor = context.getExecutable();
        constructor.setAccessible(true);
        try {
            return constructor.newInstance(arguments(context));
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    @Override
    public void interceptBeforeEachMethod(
            Invocation<Void> invocation, ReflectiveInvocationContext<Method> context, ExtensionContext extension) throws Throwable {
        call(invocation, context);
    }

    @Override
    public void interceptAfterEachMethod(
            Invocation<Void> invocation, ReflectiveInvocationContext<Method> context, ExtensionContext extension) throws Throwable {
        call(invocation, context);
    }

    @Override
    public void interceptTestTemplateMethod(
            Invocation<Void> invocation, ReflectiveInvocationContext<Method> context, ExtensionContext extension) throws Throwable {
        if (MethodUses.uses(context.getExecutable(), METRICS)) {
            invocation.skip();
            throw aborted("KafkaYammerMetrics");
        }
        call(invocation, context);
    }

    private static void call(Invocation<Void> invocation, ReflectiveInvocationContext<Method> context) throws Throwable {
        if (!usesCluster(context)) {
            invocation.proceed();
            return;
        }
        invocation.skip();
        Method method = context.getExecutable();
        method.setAccessible(true);
        try {
            method.invoke(context.getTarget().orElse(null), arguments(context));
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    private static boolean usesCluster(ReflectiveInvocationContext<?> context) {
        return context.getArguments().stream().anyMatch(ClusterInstance.class::isInstance);
    }

    private static Object[] arguments(ReflectiveInvocationContext<?> context) {
        List<Object> arguments = context.getArguments();
        return arguments.stream()
            .map(argument -> argument instanceof ClusterInstance cluster ? networkOnly(cluster) : argument)
            .toArray();
    }

    private static ClusterInstance networkOnly(ClusterInstance cluster) {
        return proxy(ClusterInstance.class, (proxy, method, arguments) -> {
            String name = method.getName();
            boolean isOfControllers = name.equals("admin") && arguments != null && arguments.length == 2
                && Boolean.TRUE.equals(arguments[1]);
            if (INTERNALS.contains(name) || isOfControllers) {
                throw aborted(name);
            }
            if (name.equals("brokers")) {
                return brokers(cluster, IntStream.range(0, cluster.config().numBrokers()).boxed());
            }
            if (name.equals("aliveBrokers")) {
                return brokers(cluster, cluster.aliveBrokers().keySet().stream());
            }
            try {
                return method.invoke(cluster, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        });
    }

    /** Objects with nothing but their state and the list of nodes, which the share consumer's tests wait for. */
    private static Map<Integer, KafkaBroker> brokers(ClusterInstance cluster, Stream<Integer> ids) {
        MetadataCache cache = proxy(MetadataCache.class, (proxy, method, arguments) -> {
            if (!method.getName().equals("getAliveBrokerNodes")) {
                throw aborted("MetadataCache." + method.getName());
            }
            try (Admin admin = cluster.admin()) {
                return List.copyOf(admin.describeCluster().nodes().get());
            }
        });
        return ids.collect(Collectors.toMap(id -> id, id -> broker(cluster, id, cache)));
    }

    /** A broker can be started and shut down, which its cluster can do. */
    private static KafkaBroker broker(ClusterInstance cluster, int id, MetadataCache cache) {
        return proxy(KafkaBroker.class, (proxy, method, arguments) -> {
            switch (method.getName()) {
                case "metadataCache":
                    return cache;
                case "isShutdown":
                    return !cluster.aliveBrokers().containsKey(id);
                case "startup":
                    cluster.startBroker(id);
                    return null;
                case "shutdown":
                    cluster.shutdownBroker(id);
                    return null;
                case "awaitShutdown":
                    return null;
                default:
                    throw aborted("KafkaBroker." + method.getName());
            }
        });
    }

    private static TestAbortedException aborted(String name) {
        return new TestAbortedException("the test needs more than the brokers' network: " + name);
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
