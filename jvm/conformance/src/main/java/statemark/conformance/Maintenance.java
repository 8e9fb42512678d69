package statemark.conformance;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import net.bytebuddy.asm.Advice;

/**
 * How maintenance ends between tests.
 *
 * <p>StateStore.stop holds the lock of the loaded providers while it waits, up to six minutes, for the
 * maintenance threads; each of them takes that lock at the end of its work, to ask the coordinator
 * whether its store is still wanted. So a test that ends during maintenance hangs, whatever the
 * provider, and the work that is queued behind is lost to the checks that follow. Spark's suites call
 * stopMaintenanceTaskWithoutLock where they know of it; here every stop does.
 */
public final class Maintenance {
  private Maintenance() {}

  /** Waits for the maintenance that is under way while nobody holds the lock. */
  public static void end(Object stateStore) throws IllegalAccessException {
    Method stop;
    try {
      stop = stateStore.getClass().getMethod("stopMaintenanceTaskWithoutLock");
    } catch (NoSuchMethodException before41) {
      return;
    }
    try {
      stop.invoke(stateStore);
    } catch (InvocationTargetException e) {
      throw new IllegalStateException("Maintenance did not end", e.getCause());
    }
  }

  /** StateStore.stop. */
  public static final class OnStop {
    @Advice.OnMethodEnter
    static void enter(@Advice.This Object stateStore) throws IllegalAccessException {
      end(stateStore);
    }
  }
}
