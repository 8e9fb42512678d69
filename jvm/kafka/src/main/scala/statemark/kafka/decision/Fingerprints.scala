package statemark.kafka.decision

import java.nio.charset.StandardCharsets.UTF_8
import scala.collection.immutable.ArraySeq
import statemark.common.Bytes

/** Where one source of a query stands at the end of a batch.
  * @param source what errors call it, such as `KafkaV2[Subscribe[orders]]`
  * @param digest of the end offset as canonical JSON: keys sorted, no blanks
  * @param namesContent whether equal offsets are equal rows: true for Kafka and Delta; false for counters, such as the
  *   file source's `logOffset`, which count on after a source was changed (K13)
  */
final case class SourceFingerprint(source: String, digest: ArraySeq[Byte], namesContent: Boolean)

object SourceFingerprint {
  def of(source: String, canonicalJson: String, namesContent: Boolean): SourceFingerprint =
    SourceFingerprint(source, Fingerprints.digest(canonicalJson.getBytes(UTF_8)), namesContent)
}

/** Where all sources stand at the end of a batch, in the order of the query's offset log. It says whether a batch that
  * was decided is the one that Spark runs again. Without the rest of the offset log's entry: the watermark and the
  * settings in it may change. Fingerprints compare where they were made for the same [[PlanKind]].
  */
final case class BatchFingerprint(sources: Vector[SourceFingerprint]) {

  def namesContent: Boolean = sources.forall(_.namesContent)

  def digest: ArraySeq[Byte] =
    Fingerprints.digest(
      sources.flatMap(s => s"${s.source.length}:${s.source}".getBytes(UTF_8) ++ s.digest).toArray
    )

  /** The sources that stand elsewhere in `other`, for errors. */
  def differences(other: BatchFingerprint): Vector[String] =
    sources.zipAll(other.sources, Fingerprints.noSource, Fingerprints.noSource).collect {
      case (mine, theirs) if mine != theirs =>
        if (mine == Fingerprints.noSource) theirs.source else mine.source
    }
}

private object Fingerprints {
  val noSource: SourceFingerprint =
    SourceFingerprint("no source", ArraySeq.empty[Byte], namesContent = false)

  def digest(bytes: Array[Byte]): ArraySeq[Byte] = ArraySeq.unsafeWrapArray(Bytes.digest(bytes))
}
