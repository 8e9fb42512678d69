package statemark.spark

import java.io.InterruptedIOException
import java.net.URI
import java.util.concurrent.CompletableFuture
import java.util.concurrent.atomic.AtomicReference
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.impl.OpenFileParameters
import statemark.testkit.{CountingAbstractFileSystem, CountingFileSystem}

/** The counting file system, whose reader may be interrupted when it opens a file. */
class InterruptingFileSystem extends CountingFileSystem {
  override def open(f: Path, bufferSize: Int): FSDataInputStream = {
    InterruptingFileSystem.reached(f)
    super.open(f, bufferSize)
  }

  override protected def openFileWithOptions(
      path: Path,
      parameters: OpenFileParameters
  ): CompletableFuture[FSDataInputStream] = {
    InterruptingFileSystem.reached(path)
    super.openFileWithOptions(path, parameters)
  }
}

class InterruptingAbstractFileSystem(uri: URI, conf: Configuration)
    extends CountingAbstractFileSystem(uri, conf) {
  override def open(f: Path, bufferSize: Int): FSDataInputStream = {
    InterruptingFileSystem.reached(f)
    super.open(f, bufferSize)
  }
}

object InterruptingFileSystem {
  private val armed = new AtomicReference(Option.empty[String => Boolean])

  def in(conf: Configuration): Configuration = {
    conf.set("fs.counting.impl", classOf[InterruptingFileSystem].getName)
    conf.setBoolean("fs.counting.impl.disable.cache", true)
    conf.set(
      "fs.AbstractFileSystem.counting.impl",
      classOf[InterruptingAbstractFileSystem].getName
    )
    conf
  }

  /** Runs `body`, and interrupts who first opens a file of such a path.
    * @throws IllegalStateException where nobody does
    */
  def interrupting[A](path: String => Boolean)(body: => A): A = {
    armed.set(Some(path))
    try {
      val result = body
      if (armed.get.isDefined) throw new IllegalStateException("nobody opened such a file")
      result
    } finally armed.set(None)
  }

  private[spark] def reached(path: Path): Unit = {
    val was = armed.get
    if (was.exists(_(path.toString)) && armed.compareAndSet(was, None))
      throw new InterruptedIOException(s"interrupted while $path was opened")
  }
}
