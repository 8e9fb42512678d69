package statemark.engine

import java.io.File
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.ServerSocketChannel
import java.nio.file.{Files, Path}
import java.util.Comparator
import org.scalatest.funsuite.AnyFunSuite
import statemark.TestStores
import statemark.common.StoreUnusableException

/** Whatever bit of a MANIFEST is flipped: RocksDB never gets to read it, or it was the end of the file anyway. */
class ManifestSuite extends AnyFunSuite {
  test("a flipped bit is found, unless the file seems to end in the middle of a record") {
    withManifest { (directory, manifest) =>
      RocksManifest.check(directory)
      val good = Files.readAllBytes(manifest)
      val lengths = recordsOf(good).flatMap(at => Seq(at + 4, at + 5)).toSet
      assert(lengths.size > 10)
      for (at <- good.indices; bit <- 0 until 8) {
        val flipped = good.clone()
        flipped(at) = (flipped(at) ^ (1 << bit)).toByte
        Files.write(manifest, flipped)
        val isFound =
          try {
            RocksManifest.check(directory)
            false
          } catch { case e: StoreUnusableException => e.getMessage.contains(manifest.toString) }
        assert(
          isFound || (lengths(at) && (flipped(at) & 0xff) > (good(at) & 0xff)),
          s"$at, bit $bit"
        )
      }
    }
  }

  test("a record of a recycled log, on which RocksDB's reader never ends, is refused") {
    withManifest { (directory, manifest) =>
      val bytes = Files.readAllBytes(manifest)
      bytes(recordsOf(bytes).last + 6) = 5
      Files.write(manifest, bytes)
      intercept[StoreUnusableException](RocksEngine.reopen(directory, TestStores.options))
    }
  }

  test("a record that is cut short, and room set aside, are RocksDB's to judge") {
    withManifest { (directory, manifest) =>
      val good = Files.readAllBytes(manifest)
      for (
        bytes <-
          Seq(good.dropRight(1), good.take(recordsOf(good).last + 3), good ++ new Array[Byte](50))
      ) {
        Files.write(manifest, bytes)
        RocksManifest.check(directory)
      }
    }
  }

  private val kinds = Seq[(String, Path => Unit)](
    "a pipe" -> { path =>
      assert(new ProcessBuilder("mkfifo", path.toString).start().waitFor() == 0)
    },
    "a socket" -> { path =>
      val server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)
      server.bind(UnixDomainSocketAddress.of(path))
      server.close() // its file stays
    },
    "a link" -> (Files.createSymbolicLink(_, Path.of("/dev/zero")): Unit),
    "a directory" -> (Files.createDirectory(_): Unit),
    "a file of another user" -> { path =>
      assume(System.getProperty("user.name") == "root", "only root may give files away")
      Files.createFile(path)
      val users = path.getFileSystem.getUserPrincipalLookupService
      Files.setOwner(path, users.lookupPrincipalByName("nobody")): Unit
    }
  )

  for ((kind, make) <- kinds; name <- Seq("CURRENT", "the manifest", "000099.sst", "staged/1"))
    test(s"a store with $kind in the place of $name is not opened") {
      withManifest { (directory, manifest) =>
        Files.createDirectory(directory.toPath.resolve("staged"))
        val path = if (name == "the manifest") manifest else directory.toPath.resolve(name)
        Files.deleteIfExists(path)
        make(path)
        for (open <- Seq(RocksEngine.reopen _, RocksEngine.openReadOnly _))
          // A folder is what a scratch store has there.
          if (kind == "a directory" && name.startsWith("staged"))
            open(directory, TestStores.options).close()
          else {
            val e = intercept[StoreUnusableException](open(directory, TestStores.options))
            assert(e.getMessage.contains(path.toString))
          }
      }
    }

  private val bound = 4096L

  /** In bytes; records of a flush and of a compaction may lie above the bound. */
  private val boundOfTest = bound + 2048

  test(
    "a manifest begins anew before it grows over its bound, and every image and reopened store is whole"
  ) {
    val options = TestStores.options.copy(maxManifestBytes = bound)
    withDirectory { directory =>
      def size = manifestOf(directory).length
      def manifests = directory.list.filter(_.startsWith("MANIFEST-"))
      val engine = RocksEngine.open(directory, options)
      var seen = Set.empty[String]
      try
        for (flush <- 0 until 60) {
          engine.note(Seq(s"key$flush".getBytes -> s"$flush".getBytes))
          engine.flush()
          seen ++= manifests
          assert(size <= boundOfTest, s"after flush $flush")
          if (flush % 10 == 9) {
            val image = new File(directory.getParentFile, s"image-$flush")
            engine.checkpoint(image)
            RocksManifest.check(image)
            assert(notes(image, options) == flush + 1)
            image.listFiles.foreach(_.delete())
          }
        }
      finally engine.close()
      assert(seen.size > 3, "it began anew several times")
      assert(manifests.length == 1)
      RocksManifest.check(directory)
      assert(notes(directory, options) == 60)
    }
  }

  test("so many flushes take more than the bound: the test above can fail") {
    withDirectory { directory =>
      val engine = RocksEngine.open(directory, TestStores.options)
      try
        for (flush <- 0 until 60) {
          engine.note(Seq(s"key$flush".getBytes -> s"$flush".getBytes))
          engine.flush()
        }
      finally engine.close()
      val size = manifestOf(directory).length
      assert(
        size > boundOfTest && size < EngineOptions.MaxManifestBytes,
        s"60 flushes: $size bytes"
      )
    }
  }

  /** The number of the records that the test wrote. */
  private def notes(directory: File, options: EngineOptions): Int = {
    val engine = RocksEngine.reopen(directory, options)
    try (0 until 60).count(i => engine.offsetsRecord(s"key$i".getBytes).isDefined)
    finally engine.close()
  }

  private def manifestOf(directory: File): File =
    new File(directory, Files.readString(directory.toPath.resolve("CURRENT")).trim)

  /** Where records begin. */
  private def recordsOf(bytes: Array[Byte]): Seq[Int] =
    Iterator.iterate(0)(at => at + 7 + ((bytes(at + 4) & 0xff) | (bytes(at + 5) & 0xff) << 8))
      .takeWhile(_ < bytes.length).toSeq

  private def withManifest(body: (File, Path) => Unit): Unit = withDirectory { directory =>
    val engine = RocksEngine.open(directory, TestStores.options)
    try engine.flush()
    finally engine.close()
    body(directory, manifestOf(directory).toPath)
  }

  private def withDirectory(body: File => Unit): Unit = {
    val root = Files.createTempDirectory("statemark-manifest-").toFile
    try body(new File(root, "base"))
    finally {
      val walk = Files.walk(root.toPath)
      try walk.sorted(Comparator.reverseOrder[Path]()).forEach(Files.delete(_))
      finally walk.close()
    }
  }
}
