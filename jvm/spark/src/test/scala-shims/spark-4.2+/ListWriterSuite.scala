package statemark.spark.offline.repartition

import java.lang.reflect.{InvocationHandler, Proxy}
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.spark.Providers

/** Lists that a move writes, and what it asks of the store meanwhile. */
class ListWriterSuite extends AnyFunSuite {

  test("a list is written in order, and its store is asked once for it, however long it is") {
    val lists = mutable.LinkedHashMap.empty[(String, UnsafeRow), Vector[UnsafeRow]]
    var asked = 0
    val handler: InvocationHandler = (_, method, arguments) => {
      val row = (i: Int) => arguments(i).asInstanceOf[UnsafeRow].copy()
      val at = (arguments.last.toString, row(0))
      method.getName match {
        case "keyExists" =>
          asked += 1
          Boolean.box(lists.contains(at))
        case "put" => lists.put(at, Vector(row(1))).orNull
        case "merge" => lists.put(at, lists(at) :+ row(1)).orNull
        case other => throw new IllegalStateException(other)
      }
    }
    val store = Proxy.newProxyInstance(
      getClass.getClassLoader,
      Array(classOf[StateStore]),
      handler
    ).asInstanceOf[StateStore]
    val writer = new ListWriter(store)
    val values = (0 until 4000).map(i => Providers.value(i).copy())
    for (family <- Seq("one", "other"); key <- Seq("a", "b"))
      values.foreach(writer.add(Providers.key(key), _, family))
    assert(lists.size == 4 && lists.values.forall(_ == values))
    assert(asked == 4)
    // A list that goes on after another one is not begun anew.
    writer.add(Providers.key("a"), values.head, "one")
    assert(lists(("one", Providers.key("a"))) == values :+ values.head)
  }
}
