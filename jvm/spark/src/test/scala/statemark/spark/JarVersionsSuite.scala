package statemark.spark

import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.spark.cluster.JarVersions
import statemark.spark.conf.StoreSettings
import statemark.spark.process.JvmState

/** Versions of the jar in the processes of an application; on a cluster in Python (tests/cluster/test_jar.py). */
class JarVersionsSuite extends AnyFunSuite with BeforeAndAfterEach {
  override def afterEach(): Unit = JvmState.clear()

  /** Problem, reason and remedy. */
  private def lines(failure: Throwable): (String, String, String) = {
    val all = failure.getMessage.linesIterator.toSeq
    assert(all.length == 3)
    (all.head, all(1), all(2))
  }

  private def setUpBy(version: String) = Map(StoreSettings.PackageVersion.key -> version)

  test("a driver with another version than the package's is refused in three lines") {
    val refused = intercept[InvalidInputException](
      JarVersions.checkDriver(setUpBy("0.2.0"), jar = Some("0.1.0"))
    )
    val (problem, reason, remedy) = lines(refused)
    assert(problem == "the driver has the jar of Statemark 0.1.0, and the Python package is 0.2.0")
    assert(reason.startsWith("  reason: ") && reason.contains(StoreSettings.PackageVersion.key))
    assert(remedy.startsWith("  remedy: ") && remedy.contains("pip install statemark==0.1.0"))
  }

  test("a driver is taken with the package's version, without a package, and without a jar") {
    JarVersions.checkDriver(setUpBy("0.1.0"), jar = Some("0.1.0"))
    JarVersions.checkDriver(Map.empty, jar = Some("0.1.0"))
    JarVersions.checkDriver(setUpBy("0.1.0"), jar = None)
    val bad = intercept[InvalidInputException](JarVersions.checkDriver(setUpBy("new"), None))
    assert(bad.getMessage.contains("must be a version such as 0.1.0"))
  }

  test("a query is refused while an executor has another version than the driver") {
    JarVersions.check()
    val report = JarVersions.report("3", driver = Some("0.2.0"), jar = Some("0.1.0"))
    assert(JarVersions.noted(report.get))
    val (problem, reason, remedy) = lines(intercept[InvalidInputException](JarVersions.check()))
    assert(problem.startsWith("executor 3 has the jar of Statemark 0.1.0, and the driver that of "))
    assert(reason.startsWith("  reason: ") && reason.contains("spark.executor.extraClassPath"))
    assert(remedy.startsWith("  remedy: "))
    JarVersions.removed("2")
    intercept[InvalidInputException](JarVersions.check()): Unit
    JarVersions.removed("3")
    JarVersions.check()
  }

  test("an executor reports nothing where versions are equal or unknown") {
    assert(JarVersions.report("3", driver = Some("0.2.0"), jar = Some("0.2.0")).isEmpty)
    assert(JarVersions.report("3", driver = None, jar = Some("0.2.0")).isEmpty)
    assert(JarVersions.report("3", driver = Some("0.2.0"), jar = None).isEmpty)
    assert(!JarVersions.noted("another plugin's message"))
    JarVersions.check()
  }
}
