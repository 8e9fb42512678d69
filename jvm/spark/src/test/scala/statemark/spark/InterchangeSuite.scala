package statemark.spark

import org.scalatest.funsuite.AnyFunSuite

/** I10: what one provider wrote, the other continues, at any version. */
class InterchangeSuite extends AnyFunSuite with Providers {
  private val ours = classOf[StatemarkStateStoreProvider].getName
  private val changelogs = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

  for {
    (format, ids) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)
    hasChangelogs <- Seq(true, false)
    hasChecksums <- Seq(true, false).filter(!_ || Line.hasStoreOf42)
  } {
    val extra = ids ++ Map(
      changelogs -> hasChangelogs.toString,
      "spark.sql.streaming.stateStore.rowChecksum.enabled" -> hasChecksums.toString,
      "spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "4"
    )

    test(
      s"taking turns: format $format, Spark's changelogs $hasChangelogs, checksums $hasChecksums"
    ) {
      var id: Option[String] = None
      var ids = Map.empty[Long, Option[String]]
      for (turn <- 0 until 4) {
        val className = if (turn % 2 == 0) Providers.sparksOwn else ours
        val provider = open(extra, className)
        for (v <- turn * 3 until turn * 3 + 3) {
          val store = provider.getStore(v, id)
          assert(rows(store) == expected(v), s"$className at $v")
          put(store, Map(s"k$v" -> v))
          if (v > 1) store.remove(Providers.key(s"k${v - 2}"))
          store.commit(): Unit
          id = store.getStateStoreCheckpointInfo().stateStoreCkptId
          ids += (v + 1L) -> id
          provider.doMaintenance()
        }
        provider.close()
      }
      for ((v, at) <- ids; className <- Seq(Providers.sparksOwn, ours))
        assert(rowsAt(v, at, extra, className) == expected(v.toInt), s"$className at $v")
    }
  }

  /** Version v holds the last two keys written before it. */
  private def expected(version: Int): Map[String, Int] =
    (math.max(0, version - 2) until version).map(i => s"k$i" -> i).toMap
}
