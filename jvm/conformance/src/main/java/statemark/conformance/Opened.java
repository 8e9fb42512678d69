package statemark.conformance;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import net.bytebuddy.asm.Advice;

/**
 * How often stores were opened, in a mapped file of two big-endian longs per process: by the target,
 * by Spark's providers. A killed process keeps its counts.
 */
public final class Opened {
  private static final int BY_TARGET = 0;
  private static final int BY_SPARK = Long.BYTES;

  private static volatile MappedByteBuffer counts;

  private Opened() {}

  static void in(Path directory) {
    Path file = directory.resolve("opened-" + ProcessHandle.current().pid());
    try (FileChannel channel =
        FileChannel.open(
            file, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      counts = channel.map(FileChannel.MapMode.READ_WRITE, 0, 2 * Long.BYTES);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  public static void byTarget() {
    add(BY_TARGET);
  }

  public static void bySpark() {
    add(BY_SPARK);
  }

  private static synchronized void add(int at) {
    counts.putLong(at, counts.getLong(at) + 1);
  }

  /** A store or read store was handed out; a call that throws opens nothing. */
  public static final class ByTarget {
    @Advice.OnMethodExit
    static void exit() {
      byTarget();
    }
  }

  public static final class BySpark {
    @Advice.OnMethodExit
    static void exit() {
      bySpark();
    }
  }
}
