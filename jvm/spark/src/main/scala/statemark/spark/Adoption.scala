package statemark.spark

import java.io.File
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.{ReopenedStore, TransactionalStore}
import statemark.common.{Clock, Distrust, DistrustException, StoreUnusableException}
import statemark.engine.VersionId
import statemark.transaction.CommitPhase

/** What [[Adoption.adopt]] found.
  *
  * @param adopted a store at the version that was asked for
  * @param rest homes that are still held, and are of no use once another has confirmed a version
  */
final case class Adopted(
    adopted: Option[(Generation, LoadFigures)],
    rest: Seq[Home],
    distrusted: Seq[Distrust]
)

/** Finds homes of a store that earlier processes or runs left, and uses the newest that identity and
  * history prove to be a prefix of the checkpoint's own history (I6). Nothing is listed, counted or
  * copied in proportion to the state.
  *
  * ''Thread:'' the owner of the store.
  *
  * @param catchUp replays the changelogs up to a version, None where it cannot
  */
final class Adoption(
    context: LoadContext,
    lineages: CheckpointLineage,
    catchUp: (TransactionalStore, VersionId) => Option[LoadFigures]
) {
  private val log = LoggerFactory.getLogger(classOf[Adoption])

  /** @param held homes of this store that the caller holds already */
  def adopt(at: VersionId, held: Seq[Home]): Adopted = {
    val (found, ms) = Clock.timedMs(context.clock) {
      if (at.version == 0) Adopted(None, held ++ context.homes.abandoned(), Nil)
      else {
        val homes = copies() ++ held ++ context.homes.abandoned()
        val (refused, opened) = homes.partitionMap(home => open(home).map((home, _)))
        firstProven(at, opened.sortBy(-_._2.store.base.version).toList)
          .reporting(refused.map(_._1), refused.map(_._2))
      }
    }
    found.copy(adopted = found.adopted.map { case (generation, figures) =>
      (generation, figures.copy(localMs = math.max(ms - figures.replayMs, 0)))
    })
  }

  /** An open store of the same process, an earlier run's: a copy of hard links is ours at once. */
  private def copies(): Seq[Home] =
    context.homes.parent.toSeq.flatMap(LiveStores.of).flatMap { live =>
      val home = context.homes.create()
      try
        if (live.copyTo(home.base)) Some(home)
        else {
          home.delete()
          None
        }
      catch {
        case NonFatal(e) =>
          home.delete()
          log.info(s"The open store of an earlier run of ${context.identity} cannot be copied.", e)
          None
      }
    }

  private def open(home: Home): Either[(Home, Distrust), ReopenedStore] =
    try
      Right(TransactionalStore.reopen(
        home.base,
        context.options,
        context.identity,
        context.usesFamilies,
        context.observer
      ))
    catch { case e: DistrustException => Left((home, refused(home, e))) }

  private def firstProven(at: VersionId, candidates: List[(Home, ReopenedStore)]): Adopted =
    candidates match {
      case Nil => Adopted(None, Nil, Nil)
      case (home, reopened) :: others =>
        val result =
          try {
            prove(reopened, at)
            context.observer.reached(CommitPhase.HomeProven)
            Right(caughtUp(reopened.store, at))
          } catch {
            case e: DistrustException => Left(e)
            case e: StoreUnusableException =>
              Left(new DistrustException(Distrust.Damaged, e.getMessage, Some(e)))
          }
        result match {
          case Right(figures) =>
            others.foreach(_._2.store.close())
            val generation = Generation(reopened.store, home, uploads(reopened, home))
            Adopted(Some((generation, figures)), others.map(_._1), Nil)
          case Left(e) =>
            reopened.store.close()
            firstProven(at, others).reporting(Seq(home), Seq(refused(home, e)))
        }
    }

  /** @throws DistrustException unless the base is a version of the history that leads to `at` */
  private def prove(reopened: ReopenedStore, at: VersionId): Unit = {
    val base = reopened.store.base.at
    def distrust(reason: Distrust, why: String) =
      throw new DistrustException(
        reason,
        s"it is at ${show(base)} and ${show(at)} is asked for: $why"
      )
    if (base.version == 0) distrust(Distrust.Unproven, "its first version never went to disk")
    if (base.version > at.version) distrust(Distrust.Ahead, "it cannot go back")
    (base.checkpointId, at.checkpointId) match {
      case (Some(_), Some(_)) =>
        if (base != at && (base.version == at.version || !leadsTo(base, at)))
          distrust(Distrust.OtherHistory, "the lineage in the checkpoint does not name its version")
      case (None, None) =>
        val seen = reopened.proof.filter(_.version == base.version).getOrElse(
          distrust(Distrust.Unproven, "nothing was noted of the file of its version")
        )
        if (!context.status(seen.file, seen.version).contains(seen))
          distrust(Distrust.OtherHistory, s"${seen.file} in the checkpoint is not the file it knew")
      case _ => distrust(Distrust.OtherHistory, "the checkpoint has changed its format")
    }
  }

  private def leadsTo(base: VersionId, at: VersionId): Boolean =
    try lineages.full(base.version, at).headOption.contains(base)
    catch { case NonFatal(_) => false }

  private def caughtUp(store: TransactionalStore, at: VersionId): LoadFigures =
    if (store.base.at == at) LoadFigures(LoadSource.Local)
    else {
      val figures =
        try catchUp(store, at)
        catch {
          case e: StoreUnusableException => throw e
          case NonFatal(e) =>
            val why = s"the changelogs after ${store.base.version} cannot be replayed: $e"
            throw new DistrustException(Distrust.TooOld, why, Some(e))
        }
      figures.map(_.copy(source = LoadSource.Local)).getOrElse(
        throw new DistrustException(
          Distrust.TooOld,
          s"from ${show(store.base.at)} to ${show(at)} a snapshot is nearer than changelogs"
        )
      )
    }

  /** Only files that are still those which were uploaded count as uploaded. */
  private def uploads(reopened: ReopenedStore, home: Home): UploadedFiles = {
    val there = reopened.uploads.filter(u => new File(home.base, u.localName).length == u.bytes)
    new UploadedFiles(there.map(u =>
      u.localName -> UploadedFile.of(u.localName, u.remoteName, u.bytes, u.version)
    ).toMap)
  }

  private def refused(home: Home, why: DistrustException): Distrust = {
    log.warn(s"${home.path} is not used for ${context.identity} (${why.reason.name}): " +
      s"${why.getMessage}. The store is loaded from the next source.")
    why.reason
  }

  private def show(at: VersionId): String =
    s"version ${at.version}${at.checkpointId.fold("")(id => s" ($id)")}"

  private implicit class Reporting(found: Adopted) {
    def reporting(homes: Seq[Home], reasons: Seq[Distrust]): Adopted =
      found.copy(rest = found.rest ++ homes, distrusted = found.distrusted ++ reasons)
  }
}
