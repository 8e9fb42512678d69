package statemark.common

import java.nio.charset.StandardCharsets.UTF_8

/** Source offsets that rows of a store include.
  *
  * ''Source:'' KIP-892 and KIP-796, `Position`; there by topic and partition.
  *
  * @param sources of the query, in the order of its offset log
  * @param andMore whether the rows of a batch that is not committed are among them as well
  */
final case class Position(sources: Vector[SourceOffset], andMore: Boolean = false) {

  /** Returns the sources that both positions name and that do not stand at the same offset, here and there. One that
    * either names alone was added, or removed, since.
    */
  def differences(other: Position): Vector[(SourceOffset, SourceOffset)] = for {
    here <- sources
    there <- other.sources.find(_.source == here.source)
    if !here.end.isSame(there.end)
  } yield (here, there)

  /** Returns the position with the digest of each offset, all that a comparison needs, where the offsets have more than
    * `maxChars` characters together.
    */
  def shortened(maxChars: Int): Position =
    if (sources.flatMap(_.end.text).map(_.length).sum <= maxChars) this
    else
      copy(sources =
        sources.map(of => of.copy(end = of.end.digest.fold(of.end)(SourceEnd.Digest(_))))
      )
}

object Position {

  /** Returns a position of sources that have no names, but places. */
  def ofPlaces(ends: Seq[Option[String]]): Position = Position(
    ends.zipWithIndex.map { case (json, i) =>
      SourceOffset(i.toString, SourceEnd.of(json))
    }.toVector
  )
}

/** @param source what the offset log calls the source: its name, or its place from 0 on
  * @param end the offset up to which it is read
  */
final case class SourceOffset(source: String, end: SourceEnd)

/** The offset up to which a source is read. */
sealed trait SourceEnd {

  /** Tells whether two stand for the same offset. */
  def isSame(other: SourceEnd): Boolean = digest == other.digest

  /** The digest of the offset; None for a source that has given no data yet. */
  def digest: Option[String]

  /** Returns JSON of the offset, or of its digest; None for a source that has given no data yet. */
  def text: Option[String]

  /** Returns the same for a line of a message: offsets may be of thousands of partitions. */
  def shown(maxChars: Int): String =
    text.fold("none")(all => if (all.length > maxChars) all.take(maxChars) + "…" else all)
}

object SourceEnd {

  /** The source has given no data yet. */
  case object Nothing extends SourceEnd {
    override def digest: Option[String] = None
    override def text: Option[String] = None
  }

  /** @param json the offset as the offset log has it */
  final case class Offset(json: String) extends SourceEnd {
    override lazy val digest: Option[String] =
      Some(Bytes.digest(json.getBytes(UTF_8)).map(b => f"${b & 0xff}%02x").mkString)
    override def text: Option[String] = Some(json)
  }

  /** An offset that is too long for each store to hold: the offset log has it.
    * @param hex the digest of its JSON as the log has it, in hexadecimal digits
    */
  final case class Digest(hex: String) extends SourceEnd {
    override def digest: Option[String] = Some(hex)
    override def text: Option[String] = Some(s"""{"sha256":"$hex"}""")
  }

  def of(json: Option[String]): SourceEnd = json.fold[SourceEnd](Nothing)(Offset(_))
}
