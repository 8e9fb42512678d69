package statemark.engine

/** Native objects, and others, that are closed together, newest first, exactly once.
  *
  * ''Thread:'' any; `close` wins over `add`.
  */
final class NativeHandles extends AutoCloseable {
  private var handles = List.empty[AutoCloseable]
  private var isClosed = false

  def add[A <: AutoCloseable](handle: A): A = synchronized {
    if (isClosed) handle.close() else handles = handle :: handles
    handle
  }

  override def close(): Unit = synchronized {
    if (!isClosed) {
      isClosed = true
      handles.foreach(_.close())
      handles = Nil
    }
  }
}
