package statemark.spark.stress

import java.nio.file.{Files, Path}
import org.apache.spark.SparkThrowable
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import scala.collection.mutable
import scala.util.Random
import statemark.common.Causes
import statemark.spark.errors.CheckpointDamagedException
import statemark.spark.model._

/** Spark's own provider on the checkpoint of the history, in the place of ours for some versions. */
private[stress] final class SparkSpells(world: World, random: Random) {
  import world.head

  /** Versions of which Spark's provider has written a snapshot, or a changelog, in some history of the query. */
  private val snapshots = mutable.Set.empty[Long]
  private val changelogs = mutable.Set.empty[Long]

  /** In format v1: beside a new changelog of Spark's stands a snapshot of a history that was left. Spark's provider
    * takes that for the version; ours must not.
    */
  private var misleadsSpark = false

  /** Versions that Spark's maintenance has taken a snapshot of, in some history of the query. */
  private val maintained = mutable.Set.empty[Long]

  /** Versions of the last spell whose snapshot may be cut. */
  private var newest = Set.empty[Long]

  private def isV1: Boolean = world.settings.formatVersion == 1

  /** Writes up to four versions, most often after a rollback by hand; whether any was written. */
  def run(): Boolean = {
    val most = 1 + random.nextInt(SparkSpells.MostVersions)
    if (random.nextInt(3) > 0) rollBack(most)
    val stale = zips.filter(_ > head.version)
    // A changelog of Spark's beside a snapshot of Spark's: nothing tells that they are of two histories.
    val hasChangelogs = random.nextBoolean() && !(isV1 && stale.exists(snapshots))
    if (isV1 && hasChangelogs && stale.nonEmpty) misleadsSpark = true
    world.log += s"Spark's provider, changelogs $hasChangelogs, $most versions on ${head.version}"
    world.isSharedWithSpark = true
    val spark = world.sparksProvider(hasChangelogs)
    val versions =
      try
        Iterator.continually(batch(spark)).take(most).takeWhile(identity)
          .map(_ => head.version).toSet
      finally spark.close()
    // A run that was there before may take an overdue snapshot concurrently, until Spark's changelog takes the place of its own.
    if (isV1 && hasChangelogs && (zips & versions).exists(!maintained(_))) misleadsSpark = true
    // A changelog that Spark's provider left in another history leads to wrong rows where the snapshot is cut.
    newest = if (isV1 && !hasChangelogs && versions.exists(changelogs)) Set.empty else versions
    snapshots ++= versions
    if (hasChangelogs) changelogs ++= versions
    // The query has stopped to change its provider.
    world.goOn(world.newRun(world.current.disk), isUnloaded = random.nextBoolean())
    versions.nonEmpty
  }

  private def rollBack(versions: Int): Unit = if (head.version > 1) {
    val far = if (random.nextBoolean()) versions else Steps.MostBack
    world.head = head.lineage(1 + random.nextInt(math.min(far, head.version - 1).toInt))
    world.log += s"rolled back to ${head.version}"
  }

  private def batch(spark: StateStoreProvider): Boolean = opened(spark).exists { open =>
    try world.write(open, random.nextInt(20))
    catch {
      case e: Throwable =>
        open.writer.foreach(_.abort())
        throw e
    }
    world.head = world.commit(open, isSparks = true)
    if (random.nextInt(3) == 0) {
      val before = zips
      spark.doMaintenance()
      maintained ++= zips -- before
    }
    true
  }

  private def zips: Set[Long] = world.files.snapshots.map(_._1).toSet

  private def opened(spark: StateStoreProvider): Option[OpenStore] =
    try Some(world.open(spark))
    catch {
      case e: Disagreement if misleadsSpark =>
        world.log += s"Spark's provider is misled itself: $e"
        None
    }

  /** Reads the head by ours while a snapshot that Spark has just written is cut: its rows are right, or it says what
    * is damaged. Whether there was one.
    */
  def readsDamaged(): Boolean = {
    val zips = world.files.snapshots.filter(s => newest(s._1))
    zips.nonEmpty && {
      val (version, id) = if (random.nextBoolean()) zips.last else zips(random.nextInt(zips.size))
      val name = s"$version${id.fold("")("_" + _)}.zip"
      val sidecars = Seq(s"$name.crc", s".$name.crc")
      val kept = (name +: sidecars).map(world.storeDir.resolve).filter(Files.exists(_))
        .map(file => file -> Files.readAllBytes(file))
      try {
        cut(world.storeDir.resolve(name), kept.drop(1).map(_._1))
        orDamaged(world.readAside(world.settings.formatVersion))
        val run = world.newRun(world.current.disk)
        try orDamaged(world.open(run).writer.foreach(_.abort()))
        finally run.close()
        true
      } finally kept.foreach { case (file, bytes) => Files.write(file, bytes) }
    }
  }

  // So little that it can still be told who has written it.
  private def cut(file: Path, sidecars: Seq[Path]): Unit = {
    val bytes = Files.readAllBytes(file)
    Files.write(file, bytes.dropRight(1 + random.nextInt(SparkSpells.MostCut)))
    if (random.nextBoolean()) sidecars.foreach(Files.delete)
    world.log += s"${file.getFileName} is cut"
  }

  private def orDamaged(read: => Unit): Unit =
    try read
    catch {
      case e: Exception if Causes.of(e).exists(SparkSpells.isNamed) => ()
    }
}

private object SparkSpells {
  val MostVersions = 4
  val MostCut = 40

  /** Whether a failure says which file of the checkpoint stands in the way. */
  def isNamed(failure: Throwable): Boolean = failure match {
    case _: CheckpointDamagedException => true
    case spark: SparkThrowable => spark.getCondition.startsWith("CANNOT_LOAD_STATE_STORE")
    case _ => false
  }
}
