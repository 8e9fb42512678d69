package statemark.testkit

import java.nio.file.{FileAlreadyExistsException, Files, NoSuchFileException, Path, Paths}
import java.util.concurrent.locks.LockSupport
import java.util.function.Consumer

/** Told of every phase of the exactly-once sink, in whatever process passes it; a test says by files in one folder what
  * happens there.
  *
  *   - `seen` has a line for each phase that was passed, with the process id;
  *   - `die-<phase>` with a number: at the so-many-th time the process ends as by SIGKILL. Its name is then `died-<phase>`;
  *   - `hold-<phase>`: who passes it makes `held-<phase>-<process id>` and waits until the file is gone;
  *   - `hold-<phase>-<process id>`: the same for one process.
  */
final class KafkaProbe extends Consumer[String] {
  private val folder = Paths.get(System.getProperty(KafkaProbe.Folder))

  override def accept(phase: String): Unit = {
    note(phase)
    if (isLast(folder.resolve(s"die-$phase")) && isFirst(folder.resolve(s"died-$phase")))
      Runtime.getRuntime.halt(137)
    val own = s"$phase-${ProcessHandle.current.pid}"
    val holds = Seq(phase, own).map(name => folder.resolve(s"hold-$name"))
    if (holds.exists(Files.exists(_))) {
      isFirst(folder.resolve(s"held-$own")): Unit
      while (holds.exists(Files.exists(_))) LockSupport.parkNanos(KafkaProbe.PollNanos)
    }
  }

  private def note(phase: String): Unit = synchronized {
    import java.nio.file.StandardOpenOption.{APPEND, CREATE}
    val line = s"$phase ${ProcessHandle.current.pid}\n".getBytes
    Files.write(folder.resolve("seen"), line, CREATE, APPEND): Unit
  }

  /** Counts down. */
  private def isLast(file: Path): Boolean = synchronized {
    try {
      val left = new String(Files.readAllBytes(file)).trim.toInt - 1
      Files.write(file, left.toString.getBytes): Unit
      left == 0
    } catch { case _: NoSuchFileException => false }
  }

  private def isFirst(file: Path): Boolean =
    try {
      Files.createFile(file): Unit
      true
    } catch { case _: FileAlreadyExistsException => false }
}

private object KafkaProbe {
  val Folder: String = "statemark.testkit.kafkaProbe"
  val PollNanos: Long = 5000000L
}
