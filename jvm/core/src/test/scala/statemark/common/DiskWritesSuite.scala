package statemark.common

import java.io.{File, FileNotFoundException, IOException}
import java.nio.file.FileSystemException
import org.rocksdb.{RocksDBException, Status}
import org.scalatest.funsuite.AnyFunSuite

/** A disk that takes no more is known by what it says, wherever among the causes, and whatever throws it. */
class DiskWritesSuite extends AnyFunSuite {
  import DiskWritesSuite._

  private def told(failure: Throwable, path: String = "/there/is/none"): Throwable =
    DiskWrites.told(Disk.Checkpoint, path, failure)

  private val noSpace = "No space left on device"

  for (
    (name, state, failure) <- Seq[(String, String, Throwable)](
      ("a local disk", "is full", new IOException(noSpace)),
      ("a new file", "is full", new FileNotFoundException(s"/a/b ($noSpace)")),
      ("a directory", "is full", new FileSystemException("/a/b", null, noSpace)),
      ("an Error around it", "is full", new Error(new IOException(noSpace))),
      (
        "RocksDB",
        "is full",
        new RocksDBException(new Status(Status.Code.IOError, Status.SubCode.NoSpace, "no"))
      ),
      (
        "RocksDB's words",
        "is full",
        new RocksDBException(s"While appending to file: /a: $noSpace")
      ),
      ("an object store", "is full", new IOException("XMinioStorageFull: (Status Code: 507, …)")),
      ("a quota", "has used up its quota", new IOException("Disk quota exceeded")),
      ("a quota of HDFS", "has used up its quota", new DSQuotaExceededException),
      ("a read-only disk", "is read-only", new IOException("/a: Read-only file system"))
    )
  ) test(s"$name: it $state") {
    val wrapped = new IllegalStateException("the store was not written", failure)
    told(wrapped) match {
      case e: DiskUnwritableException =>
        assert(e.problem.startsWith(s"The checkpoint location $state: /there/is/none cannot be"))
        assert(e.getCause eq wrapped)
        assert(e.remedy.contains("Nothing is lost") && !e.isRetryable)
      case other => fail(other)
    }
  }

  test("other failures, and interrupts, come as they are") {
    Seq(
      new IOException("Permission denied"),
      new IOException("Connection reset"),
      new RocksDBException("Corruption: bad block"),
      new IOException(noSpace, new InterruptedException)
    ).foreach(e => assert(told(e) eq e))
  }

  test("a disk is told once: by the write, not by what is around it") {
    val first = told(new IOException(noSpace))
    assert(DiskWrites.told(Disk.Local, "/other", new IllegalStateException(first)) eq first)
  }

  test("what is free is said of a disk of this machine, also where the file is not there yet") {
    val temporary = new File(System.getProperty("java.io.tmpdir")).getAbsolutePath
    Seq(s"$temporary/none/1.changelog", s"file:$temporary/none").foreach { path =>
      assert(told(new IOException(noSpace), path).getMessage.contains("bytes are free"))
    }
    assert(!told(new IOException(noSpace), "s3a://b/state").getMessage.contains("free"))
  }

  test("a write that succeeds asks for neither disk nor path") {
    assert(DiskWrites.to(fail("asked"), fail("asked"))(7) == 7)
  }
}

object DiskWritesSuite {

  /** Like that of HDFS, by its name. */
  final class DSQuotaExceededException extends IOException("The DiskSpace quota of /a is exceeded")
}
