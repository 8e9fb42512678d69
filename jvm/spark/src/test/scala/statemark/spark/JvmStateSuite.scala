package statemark.spark

import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.spark.process.JvmState

class JvmStateSuite extends AnyFunSuite {
  test("values are those of a new JVM again, and those of an application with the next one") {
    val ofJvm = JvmState.value(mutable.Set.empty[Int])
    val ofApplication = JvmState.ofApplication(Option.empty[Int])
    ofJvm().add(1): Unit
    ofApplication.set(Some(1))
    JvmState.applicationBegan()
    assert(ofJvm() == Set(1) && ofApplication().isEmpty)
    ofApplication.set(Some(2))
    JvmState.runsOnCluster.set(() => true)
    JvmState.clear()
    assert(ofJvm().isEmpty && ofApplication().isEmpty && !JvmState.runsOnCluster()())
  }
}
