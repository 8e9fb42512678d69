package statemark.spark.offline

import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.OffsetEntry

class OffsetEntrySuite extends AnyFunSuite {
  private val key = "spark.sql.streaming.stateStore.providerClass"

  private def text(version: String, provider: String): String =
    s"""$version
       |{"batchWatermarkMs":0,"batchTimestampMs":1795262400000,"conf":{"$key":"$provider",
       |"spark.sql.shuffle.partitions":"5","x":"é"},"later":[1,{"a":null}]}
       |{"logOffset":3}
       |-""".stripMargin.replace(",\n\"spark", ",\"spark")

  for (version <- Seq("v1", "v2")) test(s"a changed provider leaves the rest as it is: $version") {
    val before = text(version, ProviderClass.RocksDb.className)
    val entry = OffsetEntry.parsed(7, before, "7")
    assert(entry.provider.contains(ProviderClass.RocksDb) && entry.partitions.contains(5))
    val changed = entry.pinning(key -> ProviderClass.Statemark.className)
    assert(changed.text == text(version, ProviderClass.Statemark.className))
    assert(changed.provider.contains(ProviderClass.Statemark) && changed.batch == 7)
    assert(changed.pinning(key -> ProviderClass.RocksDb.className).text == before)
  }

  test("a setting that the entry does not pin is not added") {
    val before = text("v1", ProviderClass.Hdfs.className)
    assert(OffsetEntry.parsed(0, before, "0").pinning("other" -> "1").text == before)
  }

  for {
    (bad, reason) <- Seq(
      text("v3", "p") -> "its first line is 'v3', and v1 or v2 are known",
      "" -> "its first line is ''",
      "v1" -> "its second line is no JSON object",
      "v1\n[1]\n-" -> "its second line is no JSON object",
      "v1\n{\"conf\"\n-" -> "its second line is no JSON object"
    )
  } test(s"refused: ${bad.take(12).replace('\n', '|')}") {
    val message = intercept[InvalidInputException](OffsetEntry.parsed(3, bad, "o/3")).getMessage
    assert(message.startsWith(s"the offset entry o/3 cannot be read\n  reason: $reason"))
    assert(message.contains("\n  remedy: "))
  }
}
