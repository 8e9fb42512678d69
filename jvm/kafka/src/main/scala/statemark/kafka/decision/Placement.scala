package statemark.kafka.decision

/** What says which rows are in which of Spark's partitions. Where some partitions of a batch are written again, the rows
  * of the others are with the readers: in another place a row would be there twice, or nowhere.
  * @param isChosen whether places came about as the batch ran: adaptive execution, bounds of a sort, `coalesce`, random
  *   values, shuffles of RDDs
  * @param shuffles the number of partitions of each shuffle, in the order of the plan
  * @param inputs the number of partitions of each input, in the order of the plan
  */
final case class Placement(isChosen: Boolean, shuffles: Vector[Int], inputs: Vector[Int]) {

  /** Returns why a rerun may place rows elsewhere than this batch did; None where it places them alike. */
  def difference(rerun: Placement): Option[String] = {
    def changed(what: String, before: Vector[Int], now: Vector[Int]) = Option.when(before != now)(
      s"its $what had ${Placement.text(before)} partitions when it was decided, and have " +
        s"${Placement.text(now)} now"
    )
    Option.when(isChosen)(Placement.Chosen)
      .orElse(Option.when(rerun.isChosen)(
        "Spark chooses places as it runs now, by adaptive execution, a sort, coalesce or random values"
      ))
      .orElse(changed("shuffles", shuffles, rerun.shuffles))
      .orElse(changed("inputs", inputs, rerun.inputs))
  }
}

object Placement {

  /** Why no rerun places rows as the batch did. */
  val Chosen: String =
    "Spark chose places as the batch ran, by adaptive execution, a sort, coalesce or random values"

  /** Why nothing is known of the places. */
  val Unknown: String =
    "nothing says where the batch's rows were placed: earlier releases did not note it"

  /** Returns why a batch can never be written again in part; None where a rerun may place its rows alike. */
  def lack(decided: Option[Placement]): Option[String] = decided match {
    case None => Some(Unknown)
    case Some(placement) => Option.when(placement.isChosen)(Chosen)
  }

  private def text(numbers: Vector[Int]): String =
    if (numbers.isEmpty) "no" else numbers.mkString(", ")
}
