package statemark.conformance;

import net.bytebuddy.asm.Advice;

/** What Spark's settings shall say while a suite runs: above all, the provider. */
public final class Target {
  /** Set before the first class of Spark is loaded. */
  static volatile String provider;

  private static final String SETTING = "spark.sql.streaming.stateStore.providerClass";

  private Target() {}

  /** What `value` becomes when a suite sets `key` to it. */
  public static String valueFor(String key, String value) {
    return SETTING.equals(key) ? named(value) : value;
  }

  /**
   * Spark's two providers become the target; Spark's test providers that extend the HDFS one become
   * their twins that extend the RocksDB one. Any other class is the suite's own and stays.
   */
  public static String named(String providerClass) {
    if (providerClass.endsWith(".HDFSBackedStateStoreProvider")
        || providerClass.endsWith(".RocksDBStateStoreProvider")) {
      return provider;
    }
    return providerClass.replace(".HDFSBackedSkipMaintenance", ".RocksDBSkipMaintenance");
  }

  /** SQLConf.setConfWithCheck: every way to set a setting ends there. */
  public static final class OnSet {
    @Advice.OnMethodEnter
    static void enter(
        @Advice.Argument(0) String key, @Advice.Argument(value = 1, readOnly = false) String value) {
      value = valueFor(key, value);
    }
  }

  /** SQLConf.stateStoreProviderClass: the default of a configuration that sets nothing. */
  public static final class OnDefault {
    @Advice.OnMethodExit
    static void exit(@Advice.Return(readOnly = false) String returned) {
      returned = named(returned);
    }
  }

  /**
   * RocksDBConf.lockAcquireTimeoutMs, two minutes by default: nobody gives back a store that a test left
   * checked out, and tests wait five seconds for maintenance that waits for one.
   */
  public static final class OnLockTimeout {
    @Advice.OnMethodExit
    static void exit(@Advice.Return(readOnly = false) long returned) {
      returned = Math.min(returned, 2_000L);
    }
  }
}
