package statemark.bench

import java.nio.file.Paths
import java.util.{Arrays, Random => JRandom, TreeMap => JTreeMap}

import scala.util.Using

/** Which structure should hold staged writes: the measurement behind docs/adr/0001.
  * Usage: `BufferBenchmark [results.json]`; QUICK=1 in the environment shrinks it.
  */
object BufferBenchmark {
  private val Seed = 42L
  private val BaseRows = 100000
  private val RowsPerPrefix = 4
  private val quick = sys.env.get("QUICK").exists(_ != "0")
  private val rounds = if (quick) 3 else 5
  private val names = CellBuffer.contenders.map(_._1)
  private val factories = CellBuffer.contenders.toMap

  private type Rows = Array[(Array[Byte], Array[Byte])]
  private type Figures = Map[String, Map[String, Seq[Double]]]

  def main(args: Array[String]): Unit = {
    BufferCheck.run(Seed)
    val sizes = if (quick) Seq(10000, 100000) else Seq(10000, 100000, 500000)
    val results = Map(
      "puts and commit" -> sizes.map(n => n.toString -> putsAndCommit(n)).toMap,
      "put and prefix scan" -> Map("100000" -> pairs(100000)),
      "pair with this many staged" ->
        Seq(2000, 10000, 20000, 100000).map(n => n.toString -> pairAt(n)).toMap,
      "get then put" -> Map("100000" -> getThenPut(100000)),
      "sort" -> SortBenchmark.run(if (quick) 100000 else 500000, rounds)
    )
    args.headOption.foreach { file =>
      Output.writeJson(
        Paths.get(file),
        Map("environment" -> Environment.describe(), "ns" -> results)
      )
    }
  }

  /** Nanoseconds per put, by phase. Every turn has a base of its own, as it writes to it. */
  private def putsAndCommit(count: Int): Figures = {
    val rows = randomRows(count, new JRandom(Seed))
    val figures = turns(s"$count puts and commit") { make =>
      Using.resource(new BaseStore) { base =>
        Using.resource(make(base)) { buffer =>
          val stage = Rounds.timed(rows.foreach { case (k, v) => buffer.put(k, v) })
          val phases = buffer.commit() + ("stage" -> stage)
          (phases + ("total" -> phases.values.sum)).map { case (k, v) => k -> v / count }
        }
      }
    }
    show(s"$count puts and commit, ns per put", figures)(
      Seq("stage", "order", "serialize", "apply", "total")
    )
  }

  /** Put and scan in turn from an empty buffer on. A contender that needs too long is cut off, and
    * the number of pairs that it got through is reported: its cost grows with what is staged.
    */
  private def pairs(count: Int): Figures = withBase { base =>
    val rows = prefixedRows(count, new JRandom(Seed + 1))
    val figures = turns(s"$count pairs of put and prefix scan") { make =>
      Using.resource(make(base)) { buffer =>
        val start = System.nanoTime()
        val deadline = start + (if (quick) 1L else 3L) * 1000000000L
        var done = 0
        while (done < count && System.nanoTime() < deadline) {
          pair(buffer, rows(done))
          done += 1
        }
        Map("per pair" -> (System.nanoTime() - start).toDouble / done, "pairs" -> done.toDouble)
      }
    }
    show(s"$count pairs of put and prefix scan, ns per pair", figures)(Seq("per pair", "pairs"))
  }

  /** One pair when so much is staged already; the index, where there is one, has been built. */
  private def pairAt(staged: Int): Figures = withBase { base =>
    val rows = prefixedRows(staged + staged / 10, new JRandom(Seed + 2))
    val figures = turns(s"pairs with $staged staged") { make =>
      Using.resource(make(base)) { buffer =>
        rows.take(staged).foreach { case (k, v) => buffer.put(k, v) }
        val first = Rounds.timed(scanAll(buffer, rows(0)._1): Unit)
        val start = System.nanoTime()
        val deadline = start + 200000000L
        var done = 0
        while (done < staged / 10 && System.nanoTime() < deadline) {
          pair(buffer, rows(staged + done))
          done += 1
        }
        val perPair = (System.nanoTime() - start).toDouble / done
        val baseAlone = Rounds.timed(rows.take(1000).foreach(row => baseScan(base, row._1)))
        Map("per pair" -> perPair, "first scan" -> first, "base scan alone" -> baseAlone / 1000)
      }
    }
    show(s"put and prefix scan with $staged staged, ns", figures)(
      Seq("per pair", "first scan", "base scan alone")
    )
  }

  /** Half of the keys are in the base, some come twice. */
  private def getThenPut(count: Int): Figures = withBase { base =>
    val random = new JRandom(Seed)
    val known = prefixedRows(BaseRows, new JRandom(Seed))
    val fresh = prefixedRows(count, new JRandom(Seed + 3))
    val rows = Array.fill(count) {
      if (random.nextBoolean()) known(random.nextInt(BaseRows)) else fresh(random.nextInt(count))
    }
    val figures = turns(s"$count times get then put") { make =>
      Using.resource(make(base)) { buffer =>
        var found = 0
        val ns = Rounds.timed(rows.foreach { case (k, v) =>
          if (buffer.get(k).isDefined) found += 1
          buffer.put(k, v)
        })
        Map("per pair" -> ns / count, "found" -> found.toDouble)
      }
    }
    show(s"$count times get then put, ns per pair", figures)(Seq("per pair", "found"))
  }

  private def pair(buffer: StagingBuffer, row: (Array[Byte], Array[Byte])): Unit = {
    buffer.put(row._1, row._2)
    if (scanAll(buffer, row._1) == 0) sys.error("a scan missed the row that was just put")
  }

  /** The share of a pair that no buffer can save. */
  private def baseScan(base: BaseStore, key: Array[Byte]): Unit = {
    val prefix = Arrays.copyOf(key, 8)
    Using.resource(new MergedScan(prefix, 0L, Iterator.empty, base.scan(prefix)))(_.size): Unit
  }

  private def scanAll(buffer: StagingBuffer, key: Array[Byte]): Int =
    Using.resource(buffer.scan(Arrays.copyOf(key, 8)))(_.size)

  private def turns(label: String)(
      measure: (BaseStore => StagingBuffer) => Map[String, Double]
  ): Figures =
    Rounds.interleaved(label, names, warmups = 2, rounds)(name => measure(factories(name)))

  private def withBase[A](use: BaseStore => A): A = Using.resource(new BaseStore) { base =>
    base.load(prefixedRows(BaseRows, new JRandom(Seed)).iterator)
    use(base)
  }

  private def show(title: String, figures: Figures)(columns: Seq[String]): Figures = {
    val rows = names.map { n =>
      n +: columns.map(c => Output.figure(Rounds.median(figures(n).getOrElse(c, Nil))))
    }
    Output.table(title, "" +: columns, rows)
    figures
  }

  private def bytes(random: JRandom, length: Int): Array[Byte] = {
    val out = new Array[Byte](length)
    random.nextBytes(out)
    out
  }

  def randomRows(count: Int, random: JRandom): Rows =
    Array.fill(count)((bytes(random, 24), bytes(random, 32)))

  /** Rows over a fixed set of random 8-byte prefixes, so that a prefix holds a handful in the base
    * and gathers a handful of staged ones.
    */
  private def prefixedRows(count: Int, random: JRandom): Rows = {
    val prefixes = prefixesOf(BaseRows / RowsPerPrefix)
    Array.fill(count) {
      val key = bytes(random, 24)
      System.arraycopy(prefixes(random.nextInt(prefixes.length)), 0, key, 0, 8)
      (key, bytes(random, 32))
    }
  }

  private def prefixesOf(count: Int): Array[Array[Byte]] = {
    val random = new JRandom(Seed + 4)
    Array.fill(count)(bytes(random, 8))
  }
}

/** All contenders must agree with a sorted map before their times mean anything. */
object BufferCheck {
  def run(seed: Long): Unit = CellBuffer.contenders.foreach { case (name, make) =>
    Using.resource(new BaseStore) { base =>
      val random = new JRandom(seed)
      val model = new JTreeMap[Array[Byte], Array[Byte]](Arrays.compareUnsigned(_, _))
      def key(): Array[Byte] = Array[Byte](random.nextInt(4).toByte, random.nextInt(256).toByte)
      def value(): Array[Byte] = Array.fill(4)(random.nextInt().toByte)
      val inBase = Seq.fill(200)((key(), value()))
      base.load(inBase.iterator)
      inBase.foreach { case (k, v) => model.put(k, v) }
      Using.resource(make(base)) { buffer =>
        (1 to 2000).foreach { step =>
          val (k, v) = (key(), value())
          val prefix = Arrays.copyOf(k, 1)
          if (step % 3 == 0) Using.resource(buffer.scan(prefix)) { scan =>
            val expected = under(model, prefix)
            // The write between opening and reading must stay unseen.
            buffer.put(k, v)
            model.put(k, v)
            require(rows(scan) == expected, s"$name: scan is not a snapshot, step $step")
          }
          else {
            buffer.put(k, v)
            model.put(k, v)
          }
          require(buffer.get(k).exists(Arrays.equals(_, v)), s"$name: lost a put, step $step")
        }
        buffer.commit()
      }
      val committed = base.db.newIterator(base.readOptions)
      committed.seekToFirst()
      val found = Iterator
        .continually(committed)
        .takeWhile(_.isValid)
        .map { it =>
          val row = (it.key().toSeq, it.value().toSeq)
          it.next()
          row
        }
        .toSeq
      committed.close()
      require(found == under(model, Array.emptyByteArray), s"$name: commit differs from the model")
    }
  }

  private def rows(scan: Scan): Seq[(Seq[Byte], Seq[Byte])] =
    scan.map { case (k, v) => (k.toSeq, v.toSeq) }.toSeq

  private def under(
      model: JTreeMap[Array[Byte], Array[Byte]],
      prefix: Array[Byte]
  ): Seq[(Seq[Byte], Seq[Byte])] = {
    import scala.jdk.CollectionConverters._
    model.asScala.toSeq.collect {
      case (k, v) if BaseStore.startsWith(k, prefix) => (k.toSeq, v.toSeq)
    }
  }
}
