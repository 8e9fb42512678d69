package statemark.testkit

import java.net.URI
import java.nio.file.Files

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.permission.FsPermission

/** The local file system without permissions, and with links as Java reads them. Where Hadoop's native library is
  * missing, each permission and each rename of a FileContext starts a process, and these take half of the time of tests
  * that run queries.
  *
  * `jvm/testkit/unforked` on the class path sets `fs.file.impl` to this class and `fs.AbstractFileSystem.file.impl` to
  * [[UnforkedAbstractFileSystem]].
  */
class UnforkedFileSystem extends LocalFileSystem(new RawWithoutPermissions)

/** The same for Hadoop's FileContext. */
class UnforkedAbstractFileSystem(@annotation.unused uri: URI, conf: Configuration)
    extends ChecksumFs(new RawContextWithoutPermissions(conf))

private final class RawWithoutPermissions extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = ()

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path)
    else getFileStatus(path)
}

/** As Hadoop's `RawLocalFs`, which takes no other file system. */
private final class RawContextWithoutPermissions(conf: Configuration)
    extends DelegateToFileSystem(
      FsConstants.LOCAL_FS_URI,
      new RawWithoutPermissions,
      conf,
      "file",
      false
    ) {

  // The inherited one asks the wrapped file system, which has no port to give.
  override def getUriDefaultPort: Int = -1
}
