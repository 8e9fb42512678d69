package statemark.engine

import java.nio.charset.StandardCharsets.UTF_8
import statemark.common.{LocalRejectedException, RejectReason}

/** All that the offsets column family of a base store says.
  *
  * @param format the format in which it says it
  * @param mark the mark of the checkpoint under which the base store was made; None where there was none
  * @param intent the version that was being written when the process died
  */
final case class BaseRecords(
    format: FormatVersion,
    identity: StoreIdentity,
    mark: Option[String],
    state: StoreState,
    uploads: Vector[UploadedSst],
    intent: Option[Intent]
)

object BaseRecords {
  import OffsetsColumnFamily._

  /** @throws LocalRejectedException where a record is missing, or of another format
    * @throws StoreUnusableException where one is damaged
    */
  def read(engine: RocksEngine): BaseRecords = {
    def needed(key: Array[Byte]): Array[Byte] = engine.offsetsRecord(key).getOrElse(
      throw new LocalRejectedException(
        RejectReason.Damaged,
        s"${engine.directory} does not hold the record '${new String(key, UTF_8)}'."
      )
    )
    val format = decodeFormat(needed(FormatKey))
    if (!FormatVersion.continued.contains(format)) {
      throw new LocalRejectedException(
        RejectReason.OtherFormat,
        s"${engine.directory} is in format ${format.number}; this release continues " +
          s"${FormatVersion.continued.map(_.number).mkString(" and ")}."
      )
    }
    val families = decodeFamilies(needed(FamiliesKey))
    val position =
      if (format == FormatVersion.current) engine.offsetsRecord(PositionKey).flatMap(decodePosition)
      else None
    val proof = engine.offsetsRecord(ProofKey).map(decodeProof)
    BaseRecords(
      format,
      decodeIdentity(needed(IdentityKey)),
      if (format == FormatVersion.V3) None else decodeMark(needed(MarkKey)),
      decodeState(needed(StateKey), families, position, proof),
      engine.offsetsRecord(UploadsKey).fold(Vector.empty[UploadedSst])(decodeUploads),
      engine.offsetsRecord(IntentKey).map(decodeIntent)
    )
  }
}
