package statemark.kafka.sink.driver

import scala.collection.mutable

/** A set that forgets what was added first: an application may live for years. ''Thread:'' any. */
private[sink] final class Recent[A](most: Int = 10000) {
  private val values = mutable.LinkedHashSet.empty[A]

  def contains(value: A): Boolean = synchronized(values.contains(value))

  /** Adds a value.
    * @return whether it is new
    */
  def add(value: A): Boolean = synchronized {
    val isNew = values.add(value)
    if (values.size > most) values -= values.head: Unit
    isNew
  }
}
