package statemark.bench

/** Rounds in which every contender takes its turn, so that a machine that is slower for a while is
  * slower for all of them. Each round starts with another one (A B C, B C A, ...), as what a turn
  * leaves behind falls on its successor. The first rounds warm the JIT and are dropped.
  */
object Rounds {

  /** @param collect whether to collect garbage before every turn; too slow for turns of milliseconds
    * @param measure one turn of a contender: the figures it measured, by name
    * @return per contender and figure the measured values, in the order of rounds
    */
  def interleaved[A](
      label: String,
      contenders: Seq[A],
      warmups: Int,
      rounds: Int,
      collect: Boolean = true
  )(
      measure: A => Map[String, Double]
  ): Map[A, Map[String, Seq[Double]]] = {
    val measured = (1 to warmups + rounds).map { round =>
      val kind = if (round <= warmups) "warm-up" else "round"
      Output.progress(s"$label: $kind ${if (round <= warmups) round else round - warmups}")
      val (later, first) = contenders.splitAt(round % contenders.size)
      (first ++ later).map { contender =>
        // The garbage of one contender must not be collected on the time of the next.
        if (collect) System.gc()
        contender -> measure(contender)
      }.toMap
    }.drop(warmups)
    contenders.map { c =>
      val names = measured.flatMap(_(c).keys).distinct
      c -> names.map(n => n -> measured.flatMap(_(c).get(n))).toMap
    }.toMap
  }

  def median(values: Seq[Double]): Double = percentile(values, 50)

  /** Nearest rank; the mean of the middle two for the median of an even number of values. */
  def percentile(values: Seq[Double], p: Double): Double = {
    val sorted = values.sorted
    if (sorted.isEmpty) Double.NaN
    else if (p == 50 && sorted.size % 2 == 0)
      (sorted(sorted.size / 2 - 1) + sorted(sorted.size / 2)) / 2
    else sorted(math.max(0, math.ceil(p / 100 * sorted.size).toInt - 1))
  }

  def timed(body: => Unit): Double = {
    val start = System.nanoTime()
    body
    (System.nanoTime() - start).toDouble
  }
}
