package statemark

import java.io.File
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.ViewClosedException
import statemark.engine.VersionId
import statemark.transaction._

/** Goal: the file of a version on disk is there as long as somebody reads it, and it is that version's (I9). `SpillSuite`
  * has the views of a store that goes on; here are those who read in other ways.
  */
class VersionFilesSuite extends AnyFunSuite with TestStores {
  private def limited(bytes: Long) = Some(UncommittedLimit(new UncommittedMemory, bytes))

  private def filled(t: Transaction, value: String): Unit =
    (0 until 500).foreach(i => t.put(bytes(f"k$i%03d"), bytes(s"$value-$i")))

  private def rowsOf(value: String) = (0 until 500).map(i => f"k$i%03d" -> s"$value-$i")

  private def staged(store: String) =
    Option(new File(new File(root, store), "staged").listFiles).toSeq.flatten

  test("a version on disk is exported to its end, though it is dropped or confirmed meanwhile") {
    val ways = Seq[(String, TransactionalStore => Unit)](
      "dropped" -> (_.dropPrepared()),
      "confirmed" -> (_.confirm())
    )
    for ((name, goesOn) <- ways) {
      val store = newStore(name, limit = limited(4096))
      commit(store)(filled(_, "v")): Unit
      assert(store.prepared.get.file.isDefined)
      // Its files are looked at when the copy is made, and the version has not been applied to it.
      val target = new File(root, s"image of $name") {
        override def list: Array[String] = {
          goesOn(store)
          super.list
        }
      }
      store.snapshot(VersionId(1, None), target).get: Unit
      assert(TestStores.plainRows(new File(target.getPath)) == rowsOf("v"))
      assert(staged(name).isEmpty)
    }
  }

  test("a reader of a store that is opened again does not take a file of the new one with it") {
    val directory = new File(root, "store")
    val store = newStore(limit = limited(4096))
    store.flush()
    commit(store)(filled(_, "before")): Unit
    val view = store.readAt(VersionId(1, None)).get
    store.close()
    val again = reopened(directory, limit = limited(4096))
    commit(again)(filled(_, "after")): Unit
    assert(again.prepared.get.file.isDefined)
    intercept[ViewClosedException](view.get(bytes("k000")))
    view.close()
    again.confirm()
    assert(baseRows(again) == rowsOf("after"))
    again.close()
  }
}
