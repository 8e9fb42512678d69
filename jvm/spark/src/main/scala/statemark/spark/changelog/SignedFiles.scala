package statemark.spark.changelog

import java.io.{FilterOutputStream, OutputStream}
import org.apache.hadoop.fs.Path
import statemark.spark.checkpoint.ChangelogSignature
import statemark.spark.process.FilesAbove
import statemark.spark.process.Relocated.CheckpointFileManager
import statemark.spark.process.Relocated.CheckpointFileManager.CancellableFSDataOutputStream

/** A file manager that ends a new file with a signature. It stands above the one that writes checksums, so that these cover
  * the signature.
  *
  * ''Thread:'' any.
  */
private[changelog] final class SignedFiles(
    under: CheckpointFileManager,
    signature: ChangelogSignature
) extends FilesAbove(under) {
  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    new SignedOutput(under.createAtomic(path, overwrite), signature)
}

private final class SignedOutput(
    stream: CancellableFSDataOutputStream,
    out: EndedOutput
) extends CancellableFSDataOutputStream(out) {
  def this(stream: CancellableFSDataOutputStream, signature: ChangelogSignature) =
    this(stream, new EndedOutput(stream, signature.bytes))

  /** Cancels the file: closing the stream after this makes none. */
  override def cancel(): Unit = {
    out.isCancelled = true
    stream.cancel()
  }
}

private final class EndedOutput(under: OutputStream, end: Array[Byte])
    extends FilterOutputStream(under) {
  private var isOpen = true
  var isCancelled = false

  override def write(bytes: Array[Byte], from: Int, n: Int): Unit = under.write(bytes, from, n)

  /** Closes the stream: the file is there when this returns. */
  override def close(): Unit = if (isOpen) {
    isOpen = false
    if (!isCancelled) under.write(end)
    under.close()
  }
}
