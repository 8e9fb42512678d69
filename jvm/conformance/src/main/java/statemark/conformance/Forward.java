package statemark.conformance;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.WeakHashMap;
import net.bytebuddy.implementation.bind.annotation.AllArguments;
import net.bytebuddy.implementation.bind.annotation.Origin;
import net.bytebuddy.implementation.bind.annotation.RuntimeType;
import net.bytebuddy.implementation.bind.annotation.This;

/**
 * Calls on an instance of Spark's RocksDB provider go to an instance of the target. So suites that
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
}
