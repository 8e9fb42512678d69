package statemark.spark.model

import java.util.concurrent.{ExecutorService, Executors}
import statemark.spark.{StatemarkStateStoreProvider, TestFiles}

import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite

/** A provider against a sorted map: every random history must agree with the model, whatever the
  * settings. `STATEMARK_SEEDS=1,7` runs these seeds, `STATEMARK_HISTORIES=2000` that many on ours.
  */
abstract class ModelSuiteBase extends AnyFunSuite with BeforeAndAfterAll {
  protected def traits: ProviderTraits
  protected def providerClass: String
  protected def defaultHistories: Int

  private var second: ExecutorService = _

  override protected def beforeAll(): Unit = second = Executors.newSingleThreadExecutor()
  override protected def afterAll(): Unit = second.shutdownNow()

  protected def histories(wrap: PlantedBugs.Bug = identity): Histories = {
    val constructor = Class.forName(providerClass).getConstructor()
    val newProvider = () => wrap(constructor.newInstance().asInstanceOf[DelegatingProvider.Inner])
    new Histories(traits, newProvider, second)
  }

  protected def seeds: Seq[Long] =
    sys.env.get("STATEMARK_SEEDS").map(_.split(',').toSeq.map(_.trim.toLong)).getOrElse {
      1L to defaultHistories.toLong
    }

  /** Results in the order of `seeds`; a history is a world of its own. */
  private def inParallel[A](seeds: Seq[Long])(run: Long => A): Seq[A] = {
    val pool = Executors.newFixedThreadPool(Runtime.getRuntime.availableProcessors)
    try seeds.map(seed => pool.submit(() => run(seed))).map(_.get)
    finally pool.shutdownNow(): Unit
  }

  test("random histories agree with the model") {
    TestFiles.forget()
    val start = System.nanoTime()
    val counts = inParallel(seeds)(histories().run).map {
      case Right(counts) => counts
      case Left(failure) => fail(s"$failure\n\nshrunk:\n${histories().shrink(failure)}")
    }
    // Of all histories together: which one it was, each of them alone tells.
    TestFiles.assertClosed()
    val millis = (System.nanoTime() - start) / 1000000
    info(
      s"seeds ${seeds.head} to ${seeds.last}: ${counts.map(_.ops).sum} operations, " +
        s"${counts.map(_.commits).sum} commits, ${counts.map(_.aborts).sum} aborts, " +
        s"${counts.map(_.rewinds).sum} rewinds, ${counts.map(_.rollbacks).sum} rollbacks, " +
        s"${millis / seeds.size} ms a history"
    )
    counts.zip(seeds).foreach { case (count, seed) =>
      assert(count.ops >= 200, s"operations of seed $seed")
      assert(count.commits >= 3, s"commits of seed $seed")
      assert(count.aborts >= 1, s"aborts of seed $seed")
      assert(count.rewinds >= 1, s"rewinds of seed $seed")
    }
  }
}

class StatemarkModelSuite extends ModelSuiteBase {
  override protected def traits: ProviderTraits = ProviderTraits.statemark
  override protected def providerClass: String = classOf[StatemarkStateStoreProvider].getName
  override protected def defaultHistories: Int =
    sys.env.get("STATEMARK_HISTORIES").fold(150)(_.toInt)
}

/** The model must notice what is wrong: every planted bug, within the budget of histories. */
class PlantedBugsSuite extends ModelSuiteBase {
  override protected def traits: ProviderTraits = ProviderTraits.statemark
  override protected def providerClass: String = classOf[StatemarkStateStoreProvider].getName
  override protected def defaultHistories: Int = 2

  PlantedBugs.all.foreach { case (name, bug) =>
    test(s"the model finds $name") {
      val runner = histories(bug)
      val found = Iterator.from(1).take(100).map(_.toLong).map(runner.run).collectFirst {
        case Left(failure) => failure
      }
      assert(found.isDefined, "not found in 100 histories")
      assert(found.get.cause.isInstanceOf[Disagreement], found.get.toString)
      info(s"seed ${found.get.seed}, step ${found.get.log.size}: ${found.get.cause.getMessage}")
    }
  }

  test("a failing history shrinks to a shorter one that fails") {
    val runner = histories(PlantedBugs.droppedTombstone)
    val failure = Iterator.from(1).map(_.toLong).map(runner.run).collectFirst {
      case Left(failure) => failure
    }.get
    val shrunk = runner.shrink(failure, tries = 60)
    assert(shrunk.log.size < failure.log.size)
    info(s"from ${failure.log.size} steps to ${shrunk.log.size}:\n$shrunk")
  }
}
