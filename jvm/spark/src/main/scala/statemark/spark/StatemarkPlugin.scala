package statemark.spark

import java.io.File
import java.util.{Map => JMap}
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}
import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.slf4j.{Logger, LoggerFactory}
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.spark.cluster.{
  AttemptBegun,
  AttemptRegistry,
  JarOnExecutors,
  JarVersions,
  LocalInventory,
  Placement,
  ReadServer,
  StoreReport,
  WriterOf
}
import statemark.spark.conf.StoreSettings
import statemark.spark.live.{EndedQueries, ReadRouter}
import statemark.spark.local.{LocalDisk, ReusableStores}
import statemark.spark.memory.{NativePool, UncommittedStores}
import statemark.spark.metrics.{GaugeGroup, Gauges}
import statemark.spark.process.{Executors, JvmState}
import statemark.spark.provider.OverdueSnapshots
import statemark.spark.reads.{LiveRead, ReadFigures, ReadService}

/** Brings partitions home: each executor tells the driver which stores its local directory holds, when it starts and
  * whenever that changes, and the driver prefers that executor for them when the query starts again. Without it, local
  * state is found by luck after a restart on a cluster. And it keeps count of attempts in checkpoint
  * format v1, where without it the checkpoint location is asked (docs/adr/0003). And live reads reach stores of
  * other executors over it.
  *
  * ''Source:'' Spark 4.2 `SparkPlugin`; set `spark.plugins` to this class.
  */
final class StatemarkPlugin extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new StatemarkDriverPlugin

  override def executorPlugin(): ExecutorPlugin = new StatemarkExecutorPlugin
}

private object StatemarkPlugin {

  /** Under this name reads are answered. */
  val Reads = "statemark-reads"

  /** Takes snapshots that are overdue. What fails is no reason for the application not to end. */
  def end(log: Logger): Unit =
    try OverdueSnapshots.applicationEnds()
    catch { case NonFatal(e) => log.warn("Stores end without the snapshots that are overdue.", e) }

  /** Shows the gauges of this process.
    * @param hasStores whether tasks run in it
    */
  def register(context: PluginContext, hasStores: Boolean): Unit = {
    val gauges = Gauges.current
    if (hasStores) gauges.group(Gauges.OfProcess)(new ProcessGauges): Unit
    ReadFigures.current(): Unit
    gauges.serve(context.metricRegistry())
  }
}

/** What the stores of this process take together. ''Thread:'' any. */
private final class ProcessGauges extends GaugeGroup {
  private val memory = UncommittedStores.memory
  private val disk = LocalDisk.shared

  override def isUsed: Boolean = true

  override def gauges: Seq[(String, () => Any)] = Seq(
    "openStores" -> (() => ReusableStores.count.toLong),
    "stagedBytes" -> (() => memory.staged),
    "preparedBytes" -> (() => memory.prepared),
    "rememberedBytes" -> (() => memory.remembered),
    "uncommittedUsedBytes" -> (() => memory.bytes),
    "uncommittedLimitBytes" -> (() => memory.limit.getOrElse(-1L)),
    "spills" -> (() => memory.spills),
    "spilledBytes" -> (() => memory.spilledBytes),
    "nativeBytes" -> (() => NativePool.usedBytes),
    "nativeLimitBytes" -> (() => NativePool.limitBytes.getOrElse(-1L)),
    "localDirBytes" -> (() => disk().usedBytes),
    "localDirFreeBytes" -> (() => disk().freeBytes)
  )
}

private final class StatemarkDriverPlugin extends DriverPlugin {
  private val log = LoggerFactory.getLogger(classOf[StatemarkDriverPlugin])
  @volatile private var hasStores = false

  override def init(sc: SparkContext, context: PluginContext): JMap[String, String] = {
    JarVersions.checkDriver(sc.getConf.getAll.toMap)
    hasStores = sc.isLocal
    JvmState.applicationBegan()
    JarOnExecutors.watch(sc)
    JarVersions.watch(sc)
    Placement.watch(sc)
    EndedQueries.watch(sc)
    LiveRead.remote.set(Some(ReadRouter.ask(_)))
    StatemarkBridge.serve(StatemarkPlugin.Reads, ReadRouter.ask(_)): Unit
    JarVersions.own.map(JarVersions.Key -> _).toMap.asJava
  }

  /** Shows those of stores where the driver is the executor, too. */
  override def registerMetrics(appId: String, context: PluginContext): Unit =
    StatemarkPlugin.register(context, hasStores)

  /** Waits for the stores where the driver is the executor, too: Spark does not wait for the end of that. */
  override def shutdown(): Unit = if (hasStores) StatemarkPlugin.end(log)

  override def receive(message: Any): AnyRef = message match {
    case attempt: AttemptBegun => AttemptRegistry.begun(attempt)
    case version: WriterOf => AttemptRegistry.writer(version)
    case inventory: LocalInventory =>
      Placement.add(inventory)
      None.orNull // an inventory asks for no answer, and Spark warns of one
    case report: StoreReport =>
      Placement.add(report)
      None.orNull
    case server: ReadServer =>
      JarOnExecutors.found()
      ReadRouter.add(server.executorId, server.endpoint)
      None.orNull
    case text: String =>
      JarVersions.noted(text): Unit
      None.orNull
    case _ => None.orNull
  }
}

private final class StatemarkExecutorPlugin extends ExecutorPlugin {
  private val log = LoggerFactory.getLogger(classOf[StatemarkExecutorPlugin])

  override def init(context: PluginContext, extraConf: JMap[String, String]): Unit = {
    JvmState.askDriver.set(Some(message => context.ask(message)))
    JarVersions.report(context.executorID(), Option(extraConf.get(JarVersions.Key)))
      .foreach(context.send(_))
    if (context.executorID() != Executors.Driver) {
      JvmState.tellDriver.set(Some(message => context.send(message)))
      serveReads(context)
      reportInventory(context)
      // Spark has no id of the application yet where the driver is the executor, and would warn of gauges without one.
      StatemarkPlugin.register(context, hasStores = true)
    }
  }

  override def shutdown(): Unit =
    try StatemarkPlugin.end(log)
    finally {
      JvmState.tellDriver.clear()
      JvmState.askDriver.clear()
    }

  private def serveReads(context: PluginContext): Unit = {
    val driver = StatemarkBridge.driversEndpoint(StatemarkPlugin.Reads)
    LiveRead.remote.set(Some(ReadService.askDriver(driver)(_)))
    val own = StatemarkBridge.serve(
      s"${StatemarkPlugin.Reads}-${context.executorID()}",
      ReadService.answer(_: Array[Byte])
    )
    context.send(ReadServer(context.executorID(), own))
  }

  private def reportInventory(context: PluginContext): Unit =
    try {
      val confs = context.conf().getAll.toMap
      val settings = StoreSettings.from(confs, Runtime.getRuntime.maxMemory)
      settings.localDir.foreach { root =>
        val host = Executors.host(SparkEnv.get)
        context.send(LocalInventory.of(context.executorID(), host, new File(root)))
      }
    } catch {
      case NonFatal(e) =>
        log.warn("The driver was not told what the local directory holds: stores are restored.", e)
    }
}
