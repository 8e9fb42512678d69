package statemark.common

object Causes {

  /** The failure, what caused it, and so on. */
  def of(failure: Throwable): Iterator[Throwable] =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null)
}
