package statemark.spark.model

import scala.collection.immutable.SortedMap

/** What a store and the model disagree about. */
final case class Disagreement(expected: String, actual: String)
    extends RuntimeException(s"expected $expected\n  actual $actual")

/** The content of a store, as it ought to be: per live family a sorted map from the rank of a key to
  * its values in order (one value, unless the family is a multi-value one).
  *
  * @param missedDeletes keys that range deletes removed and that Spark's row count still holds:
  *   ordinary families and internal ones
  */
final case class State(
    families: SortedMap[Int, State.Rows],
    missedDeletes: (Long, Long)
) {
  import State._

  def rows(family: Family): Rows = families(family.index)

  def isLive(family: Family): Boolean = families.contains(family.index)

  def updated(family: Family, rows: Rows): State =
    copy(families = families.updated(family.index, rows))

  def created(family: Family): State =
    if (isLive(family)) this else updated(family, SortedMap.empty)

  def removed(family: Family): State = copy(families = families - family.index)

  def put(family: Family, key: Int, values: Seq[Int]): State =
    updated(family, rows(family).updated(key, values.toVector))

  def merge(family: Family, key: Int, values: Seq[Int]): State =
    put(family, key, rows(family).getOrElse(key, Vector.empty) ++ values)

  def remove(family: Family, key: Int): State = updated(family, rows(family) - key)

  def deleteRange(family: Family, from: Int, until: Int): State = {
    val kept = rows(family).rangeUntil(from) ++ rows(family).rangeFrom(until)
    val gone = (rows(family).size - kept.size).toLong
    val (plain, internal) = missedDeletes
    val missed = if (family.isInternal) (plain, internal + gone) else (plain + gone, internal)
    updated(family, kept).copy(missedDeletes = missed)
  }

  def scan(family: Family, scan: Scan): Rows = scan match {
    case Scan.All => rows(family)
    case Scan.Prefix(key) => rows(family).filter(row => family.samePrefix(row._1, key))
    case Scan.Range(from, until) =>
      val above = from.fold(rows(family))(rows(family).rangeFrom)
      until.fold(above)(above.rangeUntil)
  }

  def count(families: Seq[Family]): Long = families.filter(isLive).map(rows(_).size.toLong).sum
}

object State {
  type Rows = SortedMap[Int, Vector[Int]]

  val empty: State = State(SortedMap.empty, (0L, 0L))
}

/** Which rows of a family a scan covers; keys are ranks, a range is [from, until). */
sealed trait Scan

object Scan {
  case object All extends Scan
  final case class Prefix(key: Int) extends Scan
  final case class Range(from: Option[Int], until: Option[Int]) extends Scan
}

/** A committed attempt at a version. With format v1 the last one committed at a version is the one
  * that counts; with v2 each keeps its id.
  *
  * @param writes what it did, in order: a retry in format v1 may have to repeat them
  * @param changesFamilies it created or removed a family, so that only its own snapshot can carry it
  */
final case class Version(
    version: Long,
    id: Option[String],
    state: State,
    parent: Option[Version],
    writes: Vector[Write],
    changesFamilies: Boolean
) {

  /** This version and those it was built on, newest first. */
  def lineage: List[Version] = Iterator.iterate(Option(this))(_.flatMap(_.parent))
    .takeWhile(_.isDefined).flatten.toList

  override def toString: String = s"$version${id.fold("")(full => s"(${full.take(8)})")}"
}

object Version {

  /** What every history begins with: the first family, without rows. */
  def first(families: IndexedSeq[Family]): Version = Version(
    0,
    None,
    State.empty.created(families.head),
    None,
    Vector.empty,
    changesFamilies = false
  )
}
