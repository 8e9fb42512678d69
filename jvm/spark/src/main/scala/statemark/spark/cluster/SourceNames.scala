package statemark.spark.cluster

/** Names of a query's sources that a user can tell apart, and that are the same after a restart. */
private[spark] object SourceNames {

  // What is another one in each process: the number of a column, as in `MemoryStream[key#12L]`, and the hash of an
  // object that has no text of its own.
  private val OfProcess = "#\\d+L?|@[0-9a-f]+$".r

  /** Returns a name for each source.
    *
    * A source that the query's code has named has that name. Any other is called as in the progress of the query, such as
    * `KafkaV2[Subscribe[orders]]`; the second of two that are called the same ends in ` (2)`, in the order of `logged`.
    *
    * @param logged what the offset log calls the sources: their names, or their places from 0 on
    * @param described the sources in the order of the plan, as Spark describes them
    */
  def of(logged: Seq[String], described: Seq[String]): Seq[String] = {
    val places = logged.flatMap(_.toIntOption)
    val plain =
      if (places.sorted == described.indices && places.length == logged.length)
        places.map(place => OfProcess.replaceAllIn(described(place), ""))
      else logged
    plain.zipWithIndex.map { case (name, place) =>
      val before = plain.take(place).count(_ == name)
      if (before == 0) name else s"$name (${before + 1})"
    }
  }
}
