package statemark.spark.offline.verify

import statemark.engine.VersionId

/** What is wrong with a file, as `statemark verify --json` names it. */
sealed abstract class FindingKind(val name: String)

object FindingKind {
  case object Missing extends FindingKind("missing")
  case object Damaged extends FindingKind("damaged")
  case object WrongSize extends FindingKind("wrong-size")

  /** The checksum file beside a file disagrees with it. */
  case object WrongChecksum extends FindingKind("wrong-checksum")

  /** Headers of changelogs, file names and the commit log disagree on which attempt was which. */
  case object BrokenLineage extends FindingKind("broken-lineage")

  /** The rows are not as many, or not those, that the snapshot's metadata or history says. */
  case object WrongRows extends FindingKind("wrong-rows")

  /** A file that no snapshot names. */
  case object Orphan extends FindingKind("orphan")

  /** A file that neither Spark nor Statemark writes. */
  case object Foreign extends FindingKind("foreign")
}

/** What a problem of a file does to a load that reads it. */
sealed trait Effect

object Effect {

  /** The load fails, and goes another way where there is one. */
  case object FailsLoad extends Effect

  /** The load does not notice, and the rows may be wrong: nothing leads around it.
    *
    * @param changelogs those that with an older snapshot give other rows than the file does
    */
  final case class DoubtsRows(changelogs: Set[VersionId]) extends Effect

  /** Every row is right. */
  case object None extends Effect
}

/** Something wrong with one file of a store.
  *
  * @param file relative to the directory of the store
  */
final case class Problem(
    file: String,
    kind: FindingKind,
    detail: String,
    effect: Effect = Effect.FailsLoad
)

/** A problem and what it means.
  *
  * @param file relative to the checkpoint
  * @param versions committed versions whose restore reads the file, ascending; version v is what
  *   batch v - 1 made
  * @param lost those of them that nothing else restores
  */
final case class Finding(
    file: String,
    kind: FindingKind,
    detail: String,
    versions: Seq[Long],
    lost: Seq[Long],
    remedy: String
) {
  def key: (String, FindingKind) = (file, kind)
}

object Finding {

  /** Numbers in ascending order, with runs of them written as `3-7`. */
  def ranges(numbers: Seq[Long]): String = {
    val runs = numbers.sorted.distinct.foldLeft(List.empty[(Long, Long)]) {
      case ((from, to) :: rest, n) if n == to + 1 => (from, n) :: rest
      case (found, n) => (n, n) :: found
    }
    runs.reverse.map { case (from, to) => if (from == to) s"$from" else s"$from-$to" }.mkString(
      ", "
    )
  }
}
