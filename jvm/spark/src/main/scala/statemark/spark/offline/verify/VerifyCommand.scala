package statemark.spark.offline.verify

import org.apache.spark.TaskContext
import org.apache.spark.util.SerializableConfiguration
import org.json4s.JObject
import org.json4s.JsonDSL._
import scala.annotation.tailrec
import scala.collection.mutable
import statemark.spark.offline.checkpoint.{Jobs, QueryCheckpoint}
import statemark.spark.offline.cli.{Command, CommandContext, ExitCode, Fields, ProgressLines}

/** What `verify` has found.
  *
  * @param findings what is wrong, and stayed so when looked at again
  */
final case class Verification(
    stores: Seq[StoreReport],
    findings: Seq[Finding],
    batches: Seq[Long]
) {
  def files: Int = stores.map(_.files).sum
  def bytes: Long = stores.map(_.bytesRead).sum
  def leftovers: Int = stores.map(_.leftovers).sum
  def leftoverBytes: Long = stores.map(_.leftoverBytes).sum

  /** Batches that every store can be restored to. */
  def restorable: Seq[Long] = {
    val all = stores.filter(_.task.committed.nonEmpty)
    batches.filter { batch =>
      all.forall { s =>
        s.restorable.contains(batch + 1) || !s.task.committed.exists(_.version == batch + 1)
      }
    }
  }
}

/** Verifies all stores of a checkpoint, each in a task of its own.
  *
  * A query may run meanwhile: its files come and go between being listed and being read. So whatever
  * is found is looked for again, after a pause and from the logs as they are then, until it stays, or
  * is gone; a store in which somebody writes gets more time.
  */
final class CheckpointVerifier(context: CommandContext, location: String, isDeep: Boolean) {
  import CheckpointVerifier._

  def run(): Verification = {
    val plan = planNow()
    val reports = verify(plan, plan.stores)
    val first = Look(plan, reports)
    val (last, findings) = again(first, first.findings, Looks)
    val latest = last.reports.map(r => r.task.relative -> r).toMap
    Verification(
      reports.map(r => latest.getOrElse(r.task.relative, r)),
      findings,
      last.plan.committed
    )
  }

  @tailrec private def again(look: Look, suspects: Seq[Finding], left: Int): (Look, Seq[Finding]) =
    if (suspects.isEmpty || left == 0) (look, suspects)
    else {
      context.console.progress(
        s"verify: ${suspects.length} possible findings; looking again in ${PauseMs / 1000} s"
      )
      context.waiter.pause(PauseMs)
      val plan = planNow()
      val places = suspects.map(_.file)
      val concerned = plan.stores.filter(s => places.exists(p => p.startsWith(s"${s.relative}/")))
      val reports = verify(plan, concerned)
      val next = Look(plan, reports)
      val keys = suspects.map(_.key).toSet
      val stillThere = next.findings.filter(f => keys(f.key))
      val moved = concerned.nonEmpty && look.listing(reports) != next.listing(reports)
      // Two quiet looks in a row are enough.
      again(next, stillThere, if (moved) left - 1 else math.min(left - 1, QuietLooks))
    }

  private def planNow(): VerifyPlan =
    new VerifyPlan(QueryCheckpoint.open(location, context), isDeep)

  private def verify(plan: VerifyPlan, stores: Seq[StoreTask]): Seq[StoreReport] =
    if (stores.isEmpty) Nil
    else {
      val spark = context.spark.sparkContext
      val settings = plan.settings
      val conf = spark.broadcast(new SerializableConfiguration(context.hadoopConf))
      val reports = mutable.ArrayBuffer.empty[StoreReport]
      val total = stores.length
      val lines = new ProgressLines(context.console, context.clock)
      Jobs.run(spark.runJob(
        spark.parallelize(stores, total),
        (_: TaskContext, tasks: Iterator[StoreTask]) =>
          tasks.map(new StoreVerifier(_, settings, conf.value.value).run()).toVector,
        0 until total,
        (_: Int, done: Vector[StoreReport]) => {
          reports ++= done
          lines.show(always = reports.length == total) {
            val bytes = Sizes.text(reports.map(_.bytesRead).sum)
            s"verify: ${reports.length}/$total stores, $bytes read"
          }
        }
      ))
      reports.toSeq.sortBy(r => (r.task.operator, r.task.partition, r.task.name))
    }
}

object CheckpointVerifier {
  private val Looks = 12
  private val QuietLooks = 1
  private val PauseMs = 5000L

  private final case class Look(plan: VerifyPlan, reports: Seq[StoreReport]) {
    def findings: Seq[Finding] = plan.findings ++ reports.flatMap(_.findings)

    def listing(of: Seq[StoreReport]): Map[String, Int] = {
      val wanted = of.map(_.task.relative).toSet
      reports.filter(r => wanted(r.task.relative)).map(r => r.task.relative -> r.listing).toMap
    }
  }
}

/** `verify CHECKPOINT [--deep] [--json]`: whether every committed batch can be restored from whole files,
  * and no file is nobody's.
  */
object VerifyCommand extends Command {
  override val name: String = "verify"

  final case class Arguments(checkpoint: String, deep: Boolean, json: Boolean)

  override def read(fields: Fields): Arguments =
    Arguments(fields.checkpoint, fields.flag("deep"), fields.flag("json"))

  override def run(args: Arguments, context: CommandContext): ExitCode = {
    val checkpoint = QueryCheckpoint.open(args.checkpoint, context)
    val found = new CheckpointVerifier(context, args.checkpoint, args.deep).run()
    context.answer(args.json, json(checkpoint, found))(
      found.findings.flatMap(lines) :+ summary(found)
    )
    if (found.findings.isEmpty) ExitCode.Ok else ExitCode.Findings
  }

  private def lines(f: Finding): Seq[String] = {
    val concerned =
      if (f.versions.isEmpty) "no committed batch"
      else {
        val rest =
          if (f.lost.isEmpty) "; other files restore them"
          else if (f.lost == f.versions) "; nothing else restores them"
          else s"; nothing else restores ${Finding.ranges(f.lost.map(_ - 1))}"
        s"batches ${Finding.ranges(f.versions.map(_ - 1))} (versions ${Finding.ranges(f.versions)})$rest"
      }
    Seq(
      s"${f.file}: ${f.kind.name}: ${f.detail}",
      s"  affects: $concerned",
      s"  remedy: ${f.remedy}"
    )
  }

  private def summary(v: Verification): String = {
    val read = s"${v.stores.length} stores, ${v.files} files, ${Sizes.text(v.bytes)} read"
    val left =
      if (v.leftovers == 0) ""
      else
        s"; ${v.leftovers} files of lost attempts (${Sizes.text(v.leftoverBytes)}) wait for retention"
    val batches =
      if (v.batches.isEmpty) "no batch is committed yet"
      else if (v.restorable.isEmpty) "no committed batch can be restored"
      else s"batches ${Finding.ranges(v.restorable)} can be restored"
    if (v.findings.isEmpty) s"ok: $batches; $read$left"
    else s"${v.findings.length} findings: $batches; $read$left"
  }

  private def json(checkpoint: QueryCheckpoint, v: Verification): JObject =
    ("checkpoint" -> checkpoint.root.toString) ~
      ("queryId" -> checkpoint.queryId) ~
      ("ok" -> v.findings.isEmpty) ~
      ("committedBatches" -> v.batches) ~
      ("restorableBatches" -> v.restorable) ~
      ("stores" -> v.stores.length) ~
      ("files" -> v.files) ~
      ("bytesRead" -> v.bytes) ~
      ("leftovers" -> (("files" -> v.leftovers) ~ ("bytes" -> v.leftoverBytes))) ~
      ("findings" -> v.findings.map { f =>
        ("file" -> f.file) ~
          ("kind" -> f.kind.name) ~
          ("detail" -> f.detail) ~
          ("versions" -> f.versions) ~
          ("batches" -> f.versions.map(_ - 1)) ~
          ("lostBatches" -> f.lost.map(_ - 1)) ~
          ("remedy" -> f.remedy)
      })
}

/** Sizes for people. */
object Sizes {
  private val Units = Seq("B", "KiB", "MiB", "GiB", "TiB", "PiB")

  def text(bytes: Long): String = {
    val power = math.min(
      Iterator.iterate(bytes.toDouble)(_ / 1024).takeWhile(_ >= 1024).length,
      Units.length - 1
    )
    if (power == 0) s"$bytes B"
    else "%.1f %s".formatLocal(java.util.Locale.ROOT, bytes / math.pow(1024, power), Units(power))
  }
}
