package statemark.kafka.compaction

/** Deletions that may be gone from a topic before a repair sees what came behind them: the older record is the only one
  * then, and the deleted key comes back.
  *
  * A tombstone stays for the topic's lag, which goes by its timestamp, and for `delete.retention.ms` from when the cleaner
  * has first seen it. It is needed until a record that is late has come behind it, and a repair after that.
  *
  * @param lagMs `min.compaction.lag.ms` between repairs
  * @param retentionMs `delete.retention.ms`
  * @param latenessMs by how much records are late, where the user says so
  * @param sinceRepairMs how long ago the last repair was; None where none is known of
  */
final case class TombstoneRisk(
    lagMs: Long,
    retentionMs: Long,
    latenessMs: Long,
    sinceRepairMs: Option[Long]
) {

  /** How long the log has a tombstone at least, once it is written. */
  def keptMs: Long = math.max(0L, lagMs - latenessMs) + retentionMs

  /** How long the log has to have it, where the next repair comes as late as this one. */
  def neededMs: Long = latenessMs + sinceRepairMs.getOrElse(0L)

  def text: String = {
    val needs = Seq(
      Option.when(latenessMs > 0)(s"records are $latenessMs ms late"),
      sinceRepairMs.map(ms => s"the last repair was $ms ms ago")
    ).flatten.mkString(", and ")
    s"deleted keys may come back: a tombstone stays for $keptMs ms (delete.retention.ms=$retentionMs, " +
      s"min.compaction.lag.ms=$lagMs), and $needs"
  }

  def remedy: String =
    s"Set delete.retention.ms to ${retentionMs + neededMs - keptMs} or more, or repair more often"
}

private[kafka] object TombstoneRisk {
  // Longer than any record is old; sums of such stay numbers.
  private val Most = 1L << 50

  /** @param config of the topic; a lag that a repair holds counts as what it was before
    * @return the risk; None where tombstones stay for as long as they are needed, as far as that is known
    */
  def of(
      config: Map[String, String],
      latenessMs: Option[Long],
      sinceRepairMs: Option[Long]
  ): Option[TombstoneRisk] = {
    def bounded(ms: Long) = math.min(ms, Most)
    def number(name: String) = config.get(name).flatMap(_.toLongOption)
    number("delete.retention.ms").map { retentionMs =>
      TombstoneRisk(
        bounded(number(CompactionLag.Setting).fold(0L)(CompactionLag.Lag.of(_).beforeMs)),
        bounded(retentionMs),
        bounded(latenessMs.getOrElse(0L)),
        sinceRepairMs.map(bounded)
      )
    }.filter(risk => risk.neededMs > risk.keptMs)
  }
}
