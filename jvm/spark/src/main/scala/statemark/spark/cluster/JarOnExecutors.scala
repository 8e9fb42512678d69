package statemark.spark.cluster

import java.util.concurrent.atomic.AtomicBoolean
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorRemoved}
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.common.{Causes, InvalidInputException}
import statemark.spark.process.JvmState

/** Checks that executors have Statemark's jar, before the first task of a query needs it. Without it tasks fail with
  * errors of Java's, which name neither the jar nor a setting; and where `spark.plugins` names Statemark's plugin,
  * executors do not even start, and Spark starts others in their place until it gives the application up.
  *
  * A jar that Spark ships is there. So it is where an executor's plugin has answered. In all other cases one task of one
  * small job asks: a jar may be part of the executors' installation, and no setting of the driver says so.
  *
  * ''Thread:'' any.
  */
private[spark] object JarOnExecutors {
  private lazy val log = LoggerFactory.getLogger("statemark.spark.cluster.JarOnExecutors")
  private val Plugin = "statemark.spark.StatemarkPlugin"

  /** The name under which the job that asks can be cancelled. */
  private val Tag = "statemark-jar"

  private val isKnown = JvmState.ofApplication(new AtomicBoolean)
  private val isMissing = JvmState.ofApplication(new AtomicBoolean)

  /** Notes that an executor has the jar, as its plugin has answered. */
  def found(): Unit = isKnown().set(true)

  /** Tells whether an executor has been found to have the jar. */
  private[spark] def isFound: Boolean = isKnown().get

  /** Notes executors that end because they do not find the plugin. What waits for an executor to ask it is ended. */
  def watch(context: SparkContext): Unit =
    if (!context.isLocal) context.addSparkListener(new SparkListener {
      override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit =
        if (!isFound && lacksPlugin(removed.reason)) {
          if (isMissing().compareAndSet(false, true))
            log.error(missing(context, removed.reason, None).getMessage)
          context.cancelJobsWithTag(Tag, s"executors end: ${removed.reason}")
        }
    })

  /** Tells whether an executor ended because it did not find Statemark's plugin. */
  private[spark] def lacksPlugin(reason: String): Boolean =
    reason.contains("Unable to create executor") && reason.contains(Plugin)

  /** Returns at once where executors are known to have the jar; else asks one.
    * @throws InvalidInputException where they do not have it
    */
  def check(context: SparkContext): Unit =
    if (!context.isLocal && !isFound && !isShipped(context.listJars())) {
      if (!isMissing().get) ask(context)
      if (isMissing().get && !isFound)
        throw missing(context, s"they do not find $Plugin, which spark.plugins names", None)
    }

  /** Tells whether one of the jars that Spark sends to executors is Statemark's, by its name. */
  private[spark] def isShipped(jars: Seq[String]): Boolean =
    own.exists(path => jars.exists(_.split('/').last == path.split('/').last))

  private def ask(context: SparkContext): Unit = {
    context.addJobTag(Tag)
    try {
      // The function is Statemark's: an executor without the jar cannot read it.
      context.parallelize(Seq(0), 1).map(JarOnExecutors.answer).collect(): Unit
      found()
    } catch {
      case NonFatal(e) if lacksClass(e) => throw missing(context, reasonOf(e), Some(e))
      // Every other failure is the batch's, which says it itself.
      case NonFatal(e) => log.debug("Executors were not asked for the jar.", e)
    } finally context.removeJobTag(Tag)
  }

  private def answer(number: Int): Int = number

  /** Tells whether a task failed because a class of Statemark's was not there. Java hides that where a function is read,
    * and says that it cannot assign the function's serialized form.
    */
  private[spark] def lacksClass(failure: Throwable): Boolean =
    Causes.of(failure).flatMap(cause => Option(cause.getMessage)).exists { said =>
      said.contains("java.lang.invoke.SerializedLambda") ||
      (said.contains("ClassNotFoundException") || said.contains("NoClassDefFoundError")) &&
      said.contains("statemark.")
    } || Causes.of(failure).exists {
      case e @ (_: ClassNotFoundException | _: NoClassDefFoundError) =>
        Option(e.getMessage).exists(_.startsWith("statemark"))
      case _ => false
    }

  private def reasonOf(failure: Throwable): String =
    s"a task that uses it failed with ${Causes.of(failure).toSeq.last.getClass.getName}"

  private def missing(context: SparkContext, reason: String, cause: Option[Throwable]) =
    new InvalidInputException(
      s"executors of ${context.master} do not have Statemark's jar\n" +
        s"  reason: $reason; the driver has the jar from ${own.getOrElse("its class path")}, and Spark sends no jar " +
        "of the driver's class path (spark.driver.extraClassPath) to executors\n" +
        "  remedy: give Spark the jar with --jars or spark.jars, or configure the session with " +
        "statemark.configure; where it is installed on the executors' machines, name it in " +
        "spark.executor.extraClassPath",
      cause
    )

  /** The path of the jar that this class is from; None where Java does not tell. */
  private def own: Option[String] = for {
    source <- Option(getClass.getProtectionDomain.getCodeSource)
    location <- Option(source.getLocation)
  } yield location.getPath
}
