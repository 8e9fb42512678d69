package statemark.spark.checkpoint

import java.io.{EOFException, FileNotFoundException}
import java.nio.file.AccessDeniedException
import java.util.zip.ZipException
import org.apache.hadoop.fs.ChecksumException
import org.apache.hadoop.security.AccessControlException
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

  /** Tells whether a failure of the location, below codecs and Spark's checksums, says that a file is not whole: it does
    * not fit the location's own checksum, is gone, or may not be read. An end that comes too soon is none there, as a
    * connection that is lost looks like one.
    */
  def saysNotWhole(failure: Throwable): Boolean =
    failure.isInstanceOf[ChecksumException] || isOutOfReach(failure)

  /** Tells whether a file is gone, or may not be read. */
  def isOutOfReach(failure: Throwable): Boolean = failure match {
    case _: FileNotFoundException | _: AccessControlException | _: AccessDeniedException => true
    case _ => false
  }
}
