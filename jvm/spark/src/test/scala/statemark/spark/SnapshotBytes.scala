package statemark.spark

import java.io.{ByteArrayInputStream, ByteArrayOutputStream}
import java.util.zip.{ZipEntry, ZipInputStream, ZipOutputStream}
import statemark.spark.checkpoint.SnapshotSignature

/** Bytes of snapshots that tests change. */
object SnapshotBytes {

  /** Returns a zip without the signature of Statemark's. */
  def withoutSignature(zip: Array[Byte]): Array[Byte] = {
    val in = new ZipInputStream(new ByteArrayInputStream(zip))
    val bytes = new ByteArrayOutputStream()
    val out = new ZipOutputStream(bytes)
    Iterator.continually(in.getNextEntry).takeWhile(_ != null)
      .filterNot(_.getName == SnapshotSignature.FileName).foreach { entry =>
        out.putNextEntry(new ZipEntry(entry.getName))
        out.write(in.readAllBytes())
        out.closeEntry()
      }
    out.close()
    bytes.toByteArray
  }
}
