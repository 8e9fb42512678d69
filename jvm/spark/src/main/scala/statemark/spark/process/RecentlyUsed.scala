package statemark.spark.process

import java.util.{LinkedHashMap => JLinkedHashMap, Map => JMap}

/** Remembers the values that were asked for last.
  *
  * ''Thread:'' any, several at once.
  *
  * @param max how many
  */
private[spark] final class RecentlyUsed[K, V](max: Int) {
  private val values = new JLinkedHashMap[K, V](16, 0.75f, true) {
    override def removeEldestEntry(eldest: JMap.Entry[K, V]): Boolean = size > max
  }

  def get(key: K): Option[V] = values.synchronized(Option(values.get(key)))
  def put(key: K, value: V): Unit = values.synchronized(values.put(key, value): Unit)
  def remove(key: K): Unit = values.synchronized(values.remove(key): Unit)
}
