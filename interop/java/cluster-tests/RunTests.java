package ottla.card;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs methods with tests of clusters, one after the other in this process, and prints a line for each as soon as it has ended:
 * {@code RESULT}, the method, {@code passed}, {@code failed}, {@code hung} or {@code skipped}, the milliseconds, and the reason.
 * JUnit's console would start a JVM for each method, or tell the result of none before all have ended.
 *
 * <p>The arguments are methods in the form of JUnit's option {@code --select-method}.
 */
public final class RunTests {
    private static final Map<String, String> SETTINGS = Map.of(
        "junit.jupiter.extensions.autodetection.enabled", "true",
        // All tests have a limit, and a thread of their own, so that the next one runs after a test that hangs.
        "junit.jupiter.execution.timeout.default", "120s",
        "junit.jupiter.execution.timeout.thread.mode.default", "SEPARATE_THREAD");

    public static void main(String[] methods) {
        for (String method : methods) {
            LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
                .selectors(DiscoverySelectors.selectMethod(method))
                .configurationParameters(SETTINGS)
                .build();
            Runs runs = new Runs();
            long started = System.nanoTime();
            LauncherFactory.create().execute(request, runs);
            System.out.printf("%nRESULT\t%s\t%s\t%d\t%s%n", method, runs.verdict(), (System.nanoTime() - started) / 1_000_000, runs.reason());
            System.out.flush();
        }
        // Threads of a test that hung would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    /** The runs of one method: a test runs once for each type of cluster and each value of its parameters. */
    private static final class Runs implements TestExecutionListener {
        private final List<Throwable> failures = new ArrayList<>();
        private final List<String> skipped = new ArrayList<>();
        private int passed;

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            skipped.add(reason);
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            switch (result.getStatus()) {
                case FAILED:
                    Throwable failure = result.getThrowable().orElseGet(() -> new AssertionError(test.getDisplayName()));
                    System.out.println(test.getDisplayName());
                    failure.printStackTrace(System.out);
                    failures.add(failure);
                    break;
                case ABORTED:
                    skipped.add(result.getThrowable().map(Throwable::getMessage).orElse(test.getDisplayName()));
                    break;
                default:
                    passed += test.isTest() ? 1 : 0;
            }
        }

        String verdict() {
            if (!failures.isEmpty()) {
                return isLate(failures.get(0)) ? "hung" : "failed";
            }
            // A test of several runs passes if one does and the others do not apply.
            return passed > 0 ? "passed" : "skipped";
        }

        String reason() {
            if (!failures.isEmpty()) {
                return oneLine(failures.get(0).toString());
            }
            return passed > 0 ? "" : oneLine(skipped.isEmpty() ? "no test was found" : String.valueOf(skipped.get(0)));
        }

        private static boolean isLate(Throwable failure) {
            return failure instanceof java.util.concurrent.TimeoutException
                && String.valueOf(failure.getMessage()).contains(") timed out after ");
        }

        private static String oneLine(String text) {
            return text.replaceAll("\\s+", " ");
        }
    }
}
