package statemark.engine

import java.io.File
import java.nio.file.{Files, StandardOpenOption}
import org.rocksdb.{Holder, LRUCache}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.jdk.StreamConverters._
import scala.util.{Random, Using}
import statemark.TestStores
import statemark.common.StoreUnusableException

/** Lookups of one key give the same, whichever way they go. */
class PointLookupSuite extends AnyFunSuite with TestStores {

  for (isBounded <- Seq(false, true)) test(
    "rows, merges and keys that are not there, in memtables with and without a filter, in files and in a full cache" +
      (if (isBounded) ", which has indexes as well" else "")
  ) {
    // So small that blocks of files do not stay in it.
    val plain = options
    Using.resource(new LRUCache(64 * 1024)) { cache =>
      val small = plain.copy(
        blockCache = cache,
        writeBufferBytes = 1024 * 1024,
        isMemoryBounded = isBounded
      )
      val directory = new File(root, s"lookup-$isBounded")
      val random = new Random(7)
      val expected = mutable.Map.empty[String, String]
      // Opened anew, a store has no index in memory.
      for (opening <- 0 until 4)
        Using.resource(RocksEngine.open(directory, small)) { engine =>
          def lookAround(): Unit = {
            // Runs of misses and of rows, which move the balance over both of its sides.
            val (there, others) =
              (0 until 4000).map(i => f"key $i%05d").partition(expected.contains)
            for (asked <- Seq(others, there, others.take(50), random.shuffle(there ++ others)))
              asked.foreach(key =>
                assert(engine.get(bytes(key)).map(text) == expected.get(key), key)
              )
          }
          lookAround()
          for (_ <- 0 until 4) {
            write(engine, random, expected)
            lookAround()
          }
          engine.flush()
          if (opening % 2 == 1) engine.compact()
          lookAround()
        }
    }
  }

  private def write(
      engine: RocksEngine,
      random: Random,
      expected: mutable.Map[String, String]
  ): Unit = engine.apply(
    HeapBatch.of() { batch =>
      Seq.fill(400)(f"key ${random.nextInt(4000)}%05d").distinct.sorted.foreach { key =>
        val value = s"${random.nextInt()}-$key" * random.nextInt(20)
        random.nextInt(4) match {
          case 0 =>
            batch.delete(bytes(key))
            expected -= key
          case 1 =>
            batch.merge(bytes(key), bytes(value))
            expected(key) = (expected.get(key) ++ Seq(value)).mkString(",")
          case _ =>
            batch.put(bytes(key), bytes(value))
            expected(key) = value
        }
      }
    },
    Nil,
    Intent(1, None)
  )

  test("it asks first while keys are missed, and not while they are there") {
    var asked = 0
    var isThere = false
    val lookup = new PointLookup(
      (_, value) => {
        asked += 1
        if (isThere) value.setValue(Array[Byte](1))
        isThere
      },
      _ => if (isThere) Array[Byte](1) else null
    )
    def share(of: Boolean): Double = {
      isThere = of
      (0 until 5000).foreach(_ => assert(lookup.of(Array[Byte](2)).isDefined == of))
      asked = 0
      (0 until 1000).foreach(_ => lookup.of(Array[Byte](2)))
      asked / 1000.0
    }
    assert(share(of = false) == 1.0)
    assert(share(of = true) == 0.0)
    assert(share(of = false) == 1.0)
  }

  test("it does not ask twice for long where values are on disk") {
    var asked = 0
    val lookup = new PointLookup(
      (_: Array[Byte], _: Holder[Array[Byte]]) => {
        asked += 1
        true
      },
      _ => Array[Byte](1)
    )
    (0 until 10000).foreach(_ => assert(lookup.of(Array[Byte](2)).isDefined))
    assert(asked == 1)
  }

  test("a damaged file is no key that is not there") {
    val directory = new File(root, "damaged")
    val keys = (0 until 2000).map(i => f"key $i%05d")
    Using.resource(RocksEngine.open(directory, options)) { engine =>
      engine.apply(
        HeapBatch.of()(batch => keys.foreach(k => batch.put(bytes(k), bytes(k)))),
        Nil,
        Intent(1, None)
      )
      engine.flush()
    }
    val file = Using.resource(Files.list(directory.toPath))(
      _.toScala(Seq).filter(_.toString.endsWith(".sst")).maxBy(Files.size(_))
    )
    val content = Files.readAllBytes(file)
    (100 until 300).foreach(i => content(i) = (content(i) ^ 1).toByte)
    Files.write(file, content, StandardOpenOption.TRUNCATE_EXISTING)
    Using.resource(RocksEngine.open(directory, options)) { engine =>
      (0 until 100).foreach(i => assert(engine.get(bytes(s"none $i")).isEmpty))
      intercept[StoreUnusableException](engine.get(bytes(keys(10))))
    }
  }
}
