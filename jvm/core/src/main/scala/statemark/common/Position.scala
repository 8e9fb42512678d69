package statemark.common

/** Source offsets that a version of a store includes.
  *
  * @param offsets JSON of the end offset of each source of the query, in the order of its offset log;
  *   None for a source that has given no data yet
  *   ''Source:'' KIP-892 and KIP-796, `Position`; there by topic and partition.
  */
final case class Position(offsets: Vector[Option[String]])
