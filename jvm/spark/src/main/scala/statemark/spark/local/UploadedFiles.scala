package statemark.spark.local

import org.apache.spark.sql.execution.streaming.state.RocksDBImmutableFile

/** The SST files of one base store that lie in the checkpoint location already: local name to the
  * file there and the version of the snapshot that brought it. Numbers of SST files mean something in
  * one incarnation of a RocksDB only, so each has its own map, and files born in an exported copy
  * never enter it.
  *
  * ''Thread:'' under the lock of [[Snapshots]].
  */
final class UploadedFiles(initial: Map[String, UploadedFile]) {
  private[spark] var byLocalName: Map[String, UploadedFile] = initial
}

final case class UploadedFile(version: Long, file: RocksDBImmutableFile)

object UploadedFile {
  def of(localName: String, remoteName: String, bytes: Long, version: Long): UploadedFile =
    UploadedFile(version, RocksDBImmutableFile(localName, remoteName, bytes))
}
