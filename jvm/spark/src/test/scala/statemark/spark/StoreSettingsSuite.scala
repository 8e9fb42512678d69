package statemark.spark

import java.nio.file.Files
import org.scalatest.funsuite.AnyFunSuite
import statemark.IsolationLevel
import statemark.common.InvalidInputException

class StoreSettingsSuite extends AnyFunSuite with Providers {
  private def parse(confs: (String, String)*): StoreSettings =
    StoreSettings.from(confs.map { case (k, v) => (StoreSettings.Prefix + k, v) }.toMap, 1L << 30)

  test(
    "defaults: READ_COMMITTED, a tenth of the heap but 64 MiB at least, the executor's directories"
  ) {
    assert(parse() == StoreSettings(IsolationLevel.ReadCommitted, Some((1L << 30) / 10), None))
    assert(StoreSettings.from(Map.empty, 1L << 20).maxUncommittedBytes.contains(64L << 20))
  }

  test("values are read in either case, sizes as Spark reads them") {
    assert(parse("isolationLevel" -> "read_uncommitted").isolationLevel ==
      IsolationLevel.ReadUncommitted)
    assert(parse("ISOLATIONLEVEL" -> "READ_UNCOMMITTED").isolationLevel ==
      IsolationLevel.ReadUncommitted)
    for ((text, bytes) <- Seq("64m" -> (64L << 20), "268435456" -> 268435456L, "1G" -> (1L << 30)))
      assert(parse("maxUncommittedBytes" -> text).maxUncommittedBytes.contains(bytes))
    assert(parse("maxUncommittedBytes" -> "-1").maxUncommittedBytes.isEmpty)
    assert(parse("maxUncommittedBytes" -> "AUTO").maxUncommittedBytes.isDefined)
    assert(parse("localDir" -> "/data/state").localDir.contains("/data/state"))
    assert(parse("localDir" -> "file:///data/state").localDir.contains("/data/state"))
  }

  test("a bad value and an unknown key name the key, the value and what is allowed") {
    val cases = Seq(
      ("isolationLevel", "SERIALIZABLE", "READ_COMMITTED or READ_UNCOMMITTED"),
      ("maxUncommittedBytes", "0", "-1 for no limit"),
      ("maxUncommittedBytes", "-2", "-1 for no limit"),
      ("maxUncommittedBytes", "lots", "-1 for no limit"),
      ("localDir", "relative/path", "an absolute path")
    )
    for ((key, value, allowed) <- cases) {
      val message = intercept[InvalidInputException](parse(key -> value)).getMessage
      for (part <- Seq(StoreSettings.Prefix + key, value, allowed)) assert(message.contains(part))
    }
    val unknown = intercept[InvalidInputException](parse("isolationLevle" -> "x")).getMessage
    assert(unknown.contains("isolationLevle") && unknown.contains("isolationLevel"))
  }

  test("init refuses a bad setting before anything is read or written") {
    val e = intercept[InvalidInputException](
      open(Map(StoreSettings.Prefix + "maxUncommittedBytes" -> "lots"))
    )
    assert(e.getMessage.contains("maxUncommittedBytes"))
    assert(!Files.exists(storeDir))
  }

  test("localDir holds the working directory while the store is open, private to the user") {
    val local = queryDir.resolve("local")
    val provider = open(Map(StoreSettings.Prefix + "localDir" -> local.toString))
    commit(provider, 0, Map("a" -> 1)): Unit
    val store = local.resolve("no-query/0-0-default")
    val own = store.toFile.listFiles.toSeq
    assert(own.length == 1)
    val permissions = Files.getPosixFilePermissions(own.head.toPath)
    assert(java.nio.file.attribute.PosixFilePermissions.toString(permissions) == "rwx------")
    provider.close()
    assert(store.toFile.listFiles.isEmpty)
  }

  test("localDir: what a dead process left is deleted, what another holds is not") {
    val local = queryDir.resolve("local")
    val setting = Map(StoreSettings.Prefix + "localDir" -> local.toString)
    val left = Files.createDirectories(local.resolve("no-query/0-0-default/dead"))
    Files.write(left.resolve("000001.sst"), Array[Byte](1)): Unit
    val first = open(setting)
    commit(first, 0, Map("a" -> 1)): Unit
    assert(!Files.exists(left))
    val second = open(setting)
    val store = second.getStore(1)
    assert(rows(store) == Map("a" -> 1))
    store.abort()
    assert(left.getParent.toFile.listFiles.length == 2)
    commit(first, 1, Map("b" -> 2)): Unit
  }

  test("a localDir that cannot be written fails by name") {
    val file = Files.write(queryDir.resolve("a-file"), Array[Byte](1))
    val provider = open(Map(StoreSettings.Prefix + "localDir" -> s"$file/below"))
    val e = intercept[Exception](provider.getStore(0))
    val all =
      Iterator.iterate[Throwable](e)(_.getCause).takeWhile(_ != null).map(_.getMessage).mkString
    assert(all.contains("localDir") && all.contains(file.toString))
  }
}
