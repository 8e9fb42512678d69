/** The only list of Spark lines that Statemark is built for. `SPARK=4.2 make build` picks one. */
object SparkVersions {

  /** @param line major.minor, part of the jar's name; @param spark the release compiled against;
    * @param scala the Scala release of that Spark; @param rocksdb the rocksdbjni that Spark ships
    */
  final case class Line(line: String, spark: String, scala: String, rocksdb: String)

  val all: Seq[Line] = Seq(Line("4.2", spark = "4.2.0", scala = "2.13.18", rocksdb = "9.8.4"))

  def current: Line = {
    val asked = sys.env.getOrElse("SPARK", all.head.line)
    all.find(_.line == asked).getOrElse {
      sys.error(
        s"SPARK=$asked is not a Spark line that Statemark is built for; use one of ${all.map(_.line).mkString(", ")}"
      )
    }
  }
}
