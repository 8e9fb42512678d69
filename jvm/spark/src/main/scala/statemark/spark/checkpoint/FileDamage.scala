package statemark.spark.checkpoint

import java.io.EOFException
import java.util.zip.ZipException
import org.apache.hadoop.fs.ChecksumException
import org.apache.spark.SparkThrowable
import statemark.common.Causes

/** Tells damaged files from files that cannot be had. */
private[spark] object FileDamage {
  private val Checksum = "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED"

  /** Tells whether a read has failed by the bytes of a file: they do not fit a checksum, or are no archive. */
  def isCause(failure: Throwable): Boolean = Causes.of(failure).exists {
    case e: SparkThrowable => e.getCondition == Checksum
    case _: ChecksumException | _: ZipException | _: EOFException => true
    case _ => false
  }
}
