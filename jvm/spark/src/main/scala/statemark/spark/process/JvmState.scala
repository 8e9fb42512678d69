package statemark.spark.process

import java.util.concurrent.CopyOnWriteArrayList
import org.apache.spark.SparkEnv
import statemark.transaction.CommitObserver

/** The values that all stores, reads and queries of the JVM share. Each is a [[JvmValue]], which stands where its type
  * is known and is listed here, so that one call brings the JVM back to where a new one begins.
  *
  * Resources are no such values, as they outlive applications and are closed by their owners: open stores, locks of
  * directories, native memory, threads.
  *
  * ''Thread:'' any.
  */
private[spark] object JvmState {
  private val all = new CopyOnWriteArrayList[JvmValue[_]]

  /** The observer that each commit tells of its phases. Tests set it. */
  val observer: JvmValue[CommitObserver] = value(CommitObserver.none)

  /** Returns what the driver says of the query of the running task. Tests and benchmarks set it. */
  val runningTask: JvmValue[() => TaskInfo] = value(() => TaskInfo.now())

  /** Tells whether other executors may run tasks: not where the driver does. Tests set it. */
  val runsOnCluster: JvmValue[() => Boolean] =
    value(() => Option(SparkEnv.get).exists(_.executorId != Executors.Driver))

  /** Asks the driver, and waits for its answer; None without the plugin, which sets it. */
  val askDriver: JvmValue[Option[AnyRef => AnyRef]] = value(None)

  /** Tells the driver, and waits for no answer; None without the plugin, which sets it where the driver is elsewhere. */
  val tellDriver: JvmValue[Option[AnyRef => Unit]] = value(None)

  /** Makes a value that lives as long as the JVM.
    * @param initial what it is in a new JVM
    */
  def value[A](initial: => A): JvmValue[A] = listed(new JvmValue(() => initial, isOfJvm = true))

  /** Makes a value that lives as long as an application: the next one in this JVM begins anew. */
  def ofApplication[A](initial: => A): JvmValue[A] =
    listed(new JvmValue(() => initial, isOfJvm = false))

  /** Makes every value what it is in a new JVM. */
  def clear(): Unit = all.forEach(_.clear())

  /** Makes every value of an application what it is in a new one. The plugin calls it in the driver. */
  def applicationBegan(): Unit = all.forEach(value => if (!value.isOfJvm) value.clear())

  private def listed[A](value: JvmValue[A]): JvmValue[A] = {
    all.add(value): Unit
    value
  }
}

/** A value of the JVM.
  *
  * ''Thread:'' any; what it holds says itself who may use it.
  */
private[spark] final class JvmValue[A] private[process] (
    initial: () => A,
    private[process] val isOfJvm: Boolean
) {
  @volatile private var current = initial()

  def apply(): A = current

  def set(value: A): Unit = current = value

  /** Makes it what it is in a new JVM. */
  def clear(): Unit = current = initial()
}
