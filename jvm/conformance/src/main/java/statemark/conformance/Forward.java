package statemark.conformance;

import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import net.bytebuddy.implementation.bind.annotation.AllArguments;
import net.bytebuddy.implementation.bind.annotation.Origin;
import net.bytebuddy.implementation.bind.annotation.RuntimeType;
import net.bytebuddy.implementation.bind.annotation.SuperCall;
import net.bytebuddy.implementation.bind.annotation.This;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;

/**
 * Calls on an instance of one of Spark's providers go to an instance of the target. So suites that
 * write {@code new RocksDBStateStoreProvider()}, extend it or wrap it run on the target too; what
 * they cast to classes of Spark's stays Spark's.
 */
public final class Forward {
  private static final Map<Object, Object> TARGETS = new WeakHashMap<>();

  private Forward() {}

  @RuntimeType
  public static Object call(
      @This Object provider, @Origin Method method, @AllArguments Object[] arguments)
      throws Throwable {
    Object target = targetOf(provider);
    Method same = target.getClass().getMethod(method.getName(), method.getParameterTypes());
    try {
      return same.invoke(target, arguments);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  /**
   * The HDFS provider itself stays what it is, as some tests want its refusals; classes of tests that
   * extend it run on the target.
   */
  public static final class Subclasses {
    private Subclasses() {}

    @RuntimeType
    public static Object call(
        @This Object provider,
        @Origin Method method,
        @AllArguments Object[] arguments,
        @SuperCall Callable<?> own)
        throws Throwable {
      boolean isOwn = provider.getClass().getName().equals(Agent.HDFS_PROVIDER);
      return isOwn ? own.call() : Forward.call(provider, method, arguments);
    }
  }

  private static Object targetOf(Object provider) throws ReflectiveOperationException {
    synchronized (TARGETS) {
      Object target = TARGETS.get(provider);
      if (target == null) {
        Class<?> type = Class.forName(Target.provider, true, provider.getClass().getClassLoader());
        target = type.getConstructor().newInstance();
        TARGETS.put(provider, target);
      }
      return target;
    }
  }

  /** Spark's provider asks its RocksDB; the files in the checkpoint say the same for any provider. */
  public static final class LatestVersion {
    private static final Pattern VERSION = Pattern.compile("(\\d+)(_[^.]+)?\\.(zip|changelog)");

    private LatestVersion() {}

    public static long of(@This Object provider) throws ReflectiveOperationException {
      StateStoreId id = ((StateStoreProvider) targetOf(provider)).stateStoreId();
      String[] names = new File(id.storeCheckpointLocation().toUri().getPath()).list();
      return Stream.of(names == null ? new String[0] : names)
          .map(VERSION::matcher)
          .filter(Matcher::matches)
          .mapToLong(found -> Long.parseLong(found.group(1)))
          .max()
          .orElse(0L);
    }
  }

  /** Who has the store checked out: Statemark keeps that in the same class of Spark's. */
  public static final class StateMachine {
    private StateMachine() {}

    @RuntimeType
    public static Object of(@This Object provider) throws ReflectiveOperationException {
      Object target = targetOf(provider);
      Method context = target.getClass().getDeclaredMethod("context");
      context.setAccessible(true);
      Object found = context.invoke(target);
      return found.getClass().getMethod("stateMachine").invoke(found);
    }
  }
}
