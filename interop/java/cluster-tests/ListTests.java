package ottla.card;

import java.lang.annotation.Annotation;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;
import java.util.stream.Collectors;

/** Prints the methods of classes that are tests of a cluster, in the form of JUnit's option {@code --select-method}. */
public final class ListTests {
    public static void main(String[] classes) throws ClassNotFoundException {
        for (String name : classes) {
            Class<?> test = Class.forName(name, false, ListTests.class.getClassLoader());
            Arrays.stream(test.getDeclaredMethods())
                .filter(ListTests::isTestOfCluster)
                .sorted(Comparator.comparing(Method::getName))
                .forEach(method -> System.out.println(name + "#" + method.getName() + parameters(method)));
        }
    }

    private static boolean isTestOfCluster(Method method) {
        return Arrays.stream(method.getAnnotations())
            .map(Annotation::annotationType)
            .anyMatch(type -> type.getName().startsWith("org.apache.kafka.common.test.api.Cluster"));
    }

    private static String parameters(Method method) {
        return Arrays.stream(method.getParameterTypes()).map(Class::getName).collect(Collectors.joining(",", "(", ")"));
    }
}
