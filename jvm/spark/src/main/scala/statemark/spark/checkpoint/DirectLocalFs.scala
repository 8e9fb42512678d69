package statemark.spark.checkpoint

import java.net.URI
import java.nio.file.Files
import java.nio.file.attribute.{PosixFileAttributeView, PosixFilePermissions}
import java.util.{Collections, WeakHashMap}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.local.{LocalConfigKeys, LocalFs}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.io.nativeio.NativeIO

/** Hadoop's local file system, which asks Java for links and permissions. Without its native library Hadoop
  * starts a process for each of them, about ten for one changelog.
  *
  * ''Source:'' Hadoop 3.4 `LocalFs`.
  */
final class DirectLocalFs(@annotation.unused uri: URI, conf: Configuration)
    extends ChecksumFs(new DirectRawLocalFs(conf))

object DirectLocalFs {
  private val Key = "fs.AbstractFileSystem.file.impl"

  /** Settings by which Hadoop's FileContext takes this one for `path`; the same settings where the path is not
    * local, where the session names a file system for local ones, and where Hadoop has its library.
    */
  def settingsFor(path: Path, conf: Configuration): Configuration = {
    val own = classOf[DirectLocalFs]
    val isOfUse = FileSystem.getDefaultUri(conf).resolve(path.toUri).getScheme == "file" &&
      conf.get(Key, classOf[LocalFs].getName) == classOf[LocalFs].getName &&
      !NativeIO.isAvailable &&
      conf.getClassByNameOrNull(own.getName) == own
    if (isOfUse) copies.computeIfAbsent(conf, changed(_)) else conf
  }

  // A copy has some thousand entries: the stores of a task share one.
  private val copies =
    Collections.synchronizedMap(new WeakHashMap[Configuration, Configuration])

  private def changed(conf: Configuration): Configuration = {
    val copy = new Configuration(conf)
    copy.set(Key, classOf[DirectLocalFs].getName)
    copy
  }
}

/** A copy of Hadoop's `RawLocalFs`, which takes no other file system. */
private final class DirectRawLocalFs(conf: Configuration)
    extends DelegateToFileSystem(
      FsConstants.LOCAL_FS_URI,
      new DirectRawFileSystem,
      conf,
      FsConstants.LOCAL_FS_URI.getScheme,
      false
    ) {

  // The inherited ones ask the wrapped file system, which has no port to give and other defaults, and refuse names
  // that local file systems take.
  override def getUriDefaultPort: Int = -1
  override def getServerDefaults(path: Path): FsServerDefaults = LocalConfigKeys.getServerDefaults
  override def isValidName(name: String): Boolean = true
}

private final class DirectRawFileSystem extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = {
    val file = pathToFile(path).toPath
    val posix = Option(Files.getFileAttributeView(file, classOf[PosixFileAttributeView]))
    posix.filterNot(_ => permission.getStickyBit) match {
      case Some(view) =>
        val letters =
          Seq(permission.getUserAction, permission.getGroupAction, permission.getOtherAction)
        view.setPermissions(PosixFilePermissions.fromString(letters.map(_.SYMBOL).mkString))
      case None => super.setPermission(path, permission)
    }
  }

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path)
    else getFileStatus(path)
}
