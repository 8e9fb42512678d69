package statemark.engine

import org.rocksdb.Holder

/** Lookups of one key. For a key that is not there RocksDB's `get` throws an exception in C++ and catches it, which takes
  * three times as long as to find out. `keyMayExist` does without, and brings the value, but only from what is in memory,
  * and takes longer where the key is there. So it is asked first while keys are missed often enough (ADR 30).
  *
  * ''Thread:'' any. The balance is an estimate: threads may overwrite each other's.
  *
  * @param mayExist tells whether a key may be there, and puts the value in where it is in memory
  * @param get returns the value, null where there is none
  */
private[engine] final class PointLookup(
    mayExist: (Array[Byte], Holder[Array[Byte]]) => Boolean,
    get: Array[Byte] => Array[Byte]
) {
  import PointLookup._

  // What asking first has gained lately.
  private var balance = 1

  def of(key: Array[Byte]): Option[Array[Byte]] =
    if (balance > 0) askedFirst(key)
    else {
      val value = Option(get(key))
      count(if (value.isDefined) -Found else Missed)
      value
    }

  private def askedFirst(key: Array[Byte]): Option[Array[Byte]] = {
    val value = new Holder[Array[Byte]]
    if (!mayExist(key, value)) {
      count(Missed)
      None
    } else
      Option(value.getValue) match {
        case None =>
          count(-Twice)
          Option(get(key))
        case found =>
          count(-Found)
          found
      }
  }

  private def count(gain: Int): Unit =
    balance = math.max(-Most, math.min(Most, balance + gain))
}

private[engine] object PointLookup {
  // In units of about 0.25 microseconds.
  private val Missed = 8
  private val Found = 3
  private val Twice = 12
  private val Most = 4096
}
