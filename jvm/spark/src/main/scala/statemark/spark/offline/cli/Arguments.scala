package statemark.spark.offline.cli

/** The words after a command's name: one checkpoint, where the command works on one, and options with and
  * without a value.
  */
final case class Arguments(checkpoint: String, values: Map[String, String], flags: Set[String]) {

  def required(option: String): String = values.getOrElse(
    option,
    throw UserError(s"$option is missing", "the command needs it", s"add $option VALUE")
  )

  /** The option's value as a number, `default` where it is not given. */
  def number(option: String, default: Double): Double = values.get(option).fold(default) { text =>
    text.toDoubleOption.filter(n => n >= 0 && !n.isInfinite).getOrElse(
      throw UserError(s"$option is $text", "it is no number from 0 up", s"correct $option")
    )
  }
}

object Arguments {

  /** @param valued options that take the next word as their value
    * @param flags options without a value
    */
  def parse(words: Seq[String], valued: Set[String], flags: Set[String]): Arguments = {
    val (found, places) = split(words, valued, flags)
    finished(found, places)
  }

  /** As the other, of a command that works on no checkpoint. */
  def parseOptions(words: Seq[String], valued: Set[String], flags: Set[String]): Arguments = {
    val (found, places) = split(words, valued, flags)
    places.headOption.foreach(word =>
      throw UserError(s"bad argument $word", "the command takes options only", "leave it away")
    )
    found
  }

  private def split(words: Seq[String], valued: Set[String], flags: Set[String]) = {
    @annotation.tailrec
    def go(rest: List[String], found: Arguments, places: List[String]): (Arguments, List[String]) =
      rest match {
        case Nil => (found, places.reverse)
        case option :: value :: more if valued(option) =>
          go(more, found.copy(values = found.values + (option -> value)), places)
        case flag :: more if flags(flag) => go(more, found.copy(flags = found.flags + flag), places)
        case word :: _ if word.startsWith("--") =>
          val known = (valued.map(_ + " VALUE") ++ flags).toSeq.sorted.mkString(", ")
          val reason = if (valued(word)) "it has no value" else "the command does not know it"
          throw UserError(s"bad option $word", reason, s"use $known")
        case place :: more => go(more, found, place :: places)
      }
    go(words.toList, Arguments("", Map.empty, Set.empty), Nil)
  }

  private def finished(found: Arguments, places: List[String]): Arguments = places match {
    case List(checkpoint) if checkpoint.nonEmpty => found.copy(checkpoint = checkpoint)
    case _ =>
      throw UserError(
        s"${places.length} checkpoints were given",
        "the command works on one",
        "name one checkpoint location: a path, or a URI that Spark can read"
      )
  }
}
