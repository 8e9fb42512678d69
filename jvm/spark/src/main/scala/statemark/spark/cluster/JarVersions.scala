package statemark.spark.cluster

import java.util.concurrent.ConcurrentHashMap
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorRemoved}
import org.slf4j.LoggerFactory
import scala.jdk.CollectionConverters._
import statemark.common.InvalidInputException
import statemark.spark.conf.StoreSettings
import statemark.spark.process.JvmState

/** Compares the versions of the jar that driver and executors have with each other, and with the Python package that has
  * set the session up. Processes of several versions would not understand each other's messages and bytes, and would say
  * so in errors that name neither version.
  *
  * The driver is compared when the application starts, an executor when it starts. A query on an executor with another
  * version is refused before its first task.
  *
  * ''Thread:'' any.
  */
private[spark] object JarVersions {
  private lazy val log = LoggerFactory.getLogger("statemark.spark.cluster.JarVersions")

  /** The key by which the driver's plugin hands its version to those of executors. */
  val Key: String = "jar-version"

  // Plain text: an executor of another version may have other classes.
  private val Report = "statemark-jar-version ([^ ]+) ([^ ]+)".r

  /** The executors that have another version than the driver, with their versions. */
  private val others = JvmState.ofApplication(new ConcurrentHashMap[String, String])

  /** The version of the jar that this class is from; None where the class comes from no jar. */
  val own: Option[String] = Option(getClass.getPackage.getImplementationVersion)

  /** Compares the driver's jar with the Python package, whose version `packageVersion` is.
    *
    * @param confs the settings of the application
    * @param jar the version of the driver's jar
    * @throws InvalidInputException where they differ
    */
  def checkDriver(confs: Map[String, String], jar: Option[String] = own): Unit =
    for {
      wanted <- StoreSettings.packageVersion(confs)
      has <- jar if has != wanted
    } throw new InvalidInputException(
      s"the driver has the jar of Statemark $has, and the Python package is $wanted\n" +
        "  reason: another jar of Statemark's stands before the package's on the driver's class path (spark.jars, " +
        "spark.driver.extraClassPath, the jars folder of Spark), or the application was set up by another package; the " +
        s"package has set ${StoreSettings.PackageVersion.key}\n" +
        s"  remedy: remove the jar of $has, or pip install statemark==$has"
    )

  /** Lets the driver forget executors that are gone. */
  def watch(context: SparkContext): Unit =
    if (!context.isLocal) context.addSparkListener(new SparkListener {
      override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit =
        JarVersions.removed(removed.executorId)
    })

  /** Returns the message by which an executor reports that its version is another than the driver's; None where both have
    * the same, or where one of them does not say it.
    *
    * @param executor id of the executor
    * @param driver version of the driver's jar, None where it did not say it
    * @param jar version of the executor's jar
    */
  def report(executor: String, driver: Option[String], jar: Option[String] = own): Option[String] =
    for {
      wanted <- driver
      has <- jar if has != wanted
    } yield {
      log.warn(message(executor, has, wanted))
      s"statemark-jar-version $executor $has"
    }

  /** Notes an executor's report in the driver; false where the message is none. */
  def noted(message: String): Boolean = message match {
    case Report(executor, has) =>
      others().put(executor, has): Unit
      log.error(this.message(executor, has, own.getOrElse("unknown")))
      true
    case _ => false
  }

  /** Forgets an executor that is gone. */
  private[spark] def removed(executor: String): Unit = others().remove(executor): Unit

  /** Returns where no executor has reported another version.
    * @throws InvalidInputException where one has
    */
  def check(): Unit =
    others().asScala.toSeq.sorted.headOption.foreach { case (executor, has) =>
      throw new InvalidInputException(message(executor, has, own.getOrElse("unknown")))
    }

  private def message(executor: String, has: String, driver: String) =
    s"executor $executor has the jar of Statemark $has, and the driver that of $driver\n" +
      "  reason: a jar that is installed on the executor's machine (spark.executor.extraClassPath, the jars folder of " +
      "Spark) comes before the one that Spark sends, or is the only one\n" +
      s"  remedy: replace that jar by the one of $driver, or remove it and give Spark the jar with --jars or spark.jars"
}
