package statemark.conformance;

import static net.bytebuddy.matcher.ElementMatchers.isMethod;
import static net.bytebuddy.matcher.ElementMatchers.nameEndsWith;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;
import static net.bytebuddy.matcher.ElementMatchers.not;
import static net.bytebuddy.matcher.ElementMatchers.takesNoArguments;
import static net.bytebuddy.matcher.ElementMatchers.isAbstract;

import java.lang.instrument.Instrumentation;
import java.nio.file.Path;
import java.util.function.UnaryOperator;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.implementation.MethodDelegation;
import net.bytebuddy.matcher.ElementMatcher;

/**
 * Turns Spark's own suites, as they are published, to another state store provider, and counts which
 * provider opened a store.
 *
 * <p>{@code -javaagent:conformance.jar=<provider class>;<directory of the counts>}. A class that
 * cannot be woven fails the process: a suite that silently ran on Spark's provider proves nothing.
 */
public final class Agent {
  private static final String STATE = "org.apache.spark.sql.execution.streaming.state.";
  static final String ROCKSDB_PROVIDER = STATE + "RocksDBStateStoreProvider";
  static final String HDFS_PROVIDER = STATE + "HDFSBackedStateStoreProvider";

  /** What a provider does; each is in Spark's StateStoreProvider or SupportsFineGrainedReplay. */
  private static final String[] PROVIDER_METHODS = {
    "init",
    "stateStoreId",
    "close",
    "getStore",
    "getReadStore",
    "upgradeReadStoreToWriteStore",
    "doMaintenance",
    "supportedCustomMetrics",
    "supportedInstanceMetrics",
    "replayStateFromSnapshot",
    "replayReadStateFromSnapshot",
    "getStateStoreChangeDataReader"
  };

  private Agent() {}

  public static void premain(String arguments, Instrumentation instrumentation) {
    String[] parts = arguments.split(";", 2);
    Target.provider = parts[0];
    Opened.in(Path.of(parts[1]));

    AgentBuilder builder =
        new AgentBuilder.Default()
            .disableClassFormatChanges()
            .with(AgentBuilder.TypeStrategy.Default.DECORATE)
            .with(new FailOnError());
    builder =
        advise(
            builder,
            "org.apache.spark.sql.internal.SQLConf",
            Target.OnSet.class,
            named("setConfWithCheck"));
    builder =
        advise(
            builder,
            "org.apache.spark.sql.internal.SQLConf",
            Target.OnDefault.class,
            named("stateStoreProviderClass"));
    builder =
        advise(
            builder,
            STATE + "RocksDBConf",
            Target.OnLockTimeout.class,
            named("lockAcquireTimeoutMs"));
    builder =
        advise(
            builder,
            STATE + "StateStore$",
            Maintenance.OnStop.class,
            named("stop").and(takesNoArguments()));
    builder = advise(builder, parts[0], Opened.ByTarget.class, opens());
    if (!parts[0].equals(ROCKSDB_PROVIDER)) {
      builder = advise(builder, STATE + "RocksDB", Opened.BySpark.class, named("load"));
    }
    builder = advise(builder, HDFS_PROVIDER, Opened.BySpark.class, opens());
    builder.installOn(instrumentation);

    if (!parts[0].equals(ROCKSDB_PROVIDER)) {
      transform(
          ROCKSDB_PROVIDER,
          instrumentation,
          type ->
              forward(type, Forward.class)
                  .method(named("latestVersion"))
                  .intercept(MethodDelegation.to(Forward.LatestVersion.class))
                  .method(nameEndsWith("stateMachine").and(takesNoArguments()))
                  .intercept(MethodDelegation.to(Forward.StateMachine.class)));
      transform(HDFS_PROVIDER, instrumentation, type -> forward(type, Forward.Subclasses.class));
    }
  }

  private static void transform(
      String type,
      Instrumentation instrumentation,
      UnaryOperator<DynamicType.Builder<?>> transformation) {
    new AgentBuilder.Default()
        .with(new FailOnError())
        .type(named(type))
        .transform(
            (made, description, loader, module, domain) -> transformation.apply(made))
        .installOn(instrumentation);
  }

  private static DynamicType.Builder<?> forward(DynamicType.Builder<?> type, Class<?> to) {
    return type.method(isMethod().and(not(isAbstract())).and(namedOneOf(PROVIDER_METHODS)))
        .intercept(MethodDelegation.to(to));
  }

  private static ElementMatcher.Junction<MethodDescription> opens() {
    return namedOneOf(
        "getStore", "getReadStore", "replayStateFromSnapshot", "replayReadStateFromSnapshot");
  }

  private static AgentBuilder advise(
      AgentBuilder builder, String type, Class<?> advice, ElementMatcher<MethodDescription> methods) {
    return builder
        .type(named(type))
        .transform(
            (made, description, loader, module, domain) ->
                made.visit(Advice.to(advice).on(isMethod().and(not(isAbstract())).and(methods))));
  }

  private static final class FailOnError extends AgentBuilder.Listener.Adapter {
    @Override
    public void onError(
        String type,
        ClassLoader loader,
        net.bytebuddy.utility.JavaModule module,
        boolean loaded,
        Throwable cause) {
      System.err.println("The conformance agent cannot weave " + type + ", so this run stops.");
      cause.printStackTrace();
      Runtime.getRuntime().halt(70);
    }
  }
}
