package statemark.common

object Causes {

  /** Returns the failure, its cause, and so on. */
  def of(failure: Throwable): Iterator[Throwable] =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null)
}
