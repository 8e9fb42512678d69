package statemark.spark

import java.util.concurrent.atomic.AtomicReference
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import statemark.testkit.{CountingAbstractFileSystem, CountingFileSystem}

/** The counting file system, in which something may happen just before somebody learns the status of a file, and whose
  * times may be those of another clock.
  */
class MomentsFileSystem extends CountingFileSystem {
  override def getFileStatus(f: Path): FileStatus = {
    MomentsFileSystem.reached(f)
    val told = super.getFileStatus(f)
    new FileStatus(
      told.getLen,
      told.isDirectory,
      told.getReplication.toInt,
      told.getBlockSize,
      MomentsFileSystem.times.get()(told.getModificationTime),
      told.getPath
    )
  }
}

object MomentsFileSystem {
  private val armed = new AtomicReference(Option.empty[(String, () => Unit)])
  private val times = new AtomicReference[Long => Long](identity[Long])

  def in(conf: Configuration): Configuration = {
    conf.set("fs.counting.impl", classOf[MomentsFileSystem].getName)
    conf.setBoolean("fs.counting.impl.disable.cache", true)
    conf.set(
      "fs.AbstractFileSystem.counting.impl",
      classOf[CountingAbstractFileSystem].getName
    )
    conf
  }

  /** Runs `body`, and `action` when somebody first asks for the status of a file of that name.
    * @throws IllegalStateException where nobody does
    */
  def beforeStatusOf[A](name: String)(action: => Unit)(body: => A): A = {
    armed.set(Some((name, () => action)))
    try {
      val result = body
      if (armed.get.isDefined) throw new IllegalStateException(s"nobody asked for $name")
      result
    } finally armed.set(None)
  }

  /** Runs `action` when somebody first asks for the status of a file of that name. */
  def atStatusOf(name: String)(action: => Unit): Unit = armed.set(Some((name, () => action)))

  /** Runs `body` with times of files as `told` makes them. */
  def withTimes[A](told: Long => Long)(body: => A): A = {
    times.set(told)
    try body
    finally times.set(identity[Long])
  }

  private def reached(path: Path): Unit = {
    val was = armed.get
    for ((name, action) <- was)
      if (path.getName == name && armed.compareAndSet(was, None)) action()
  }
}
