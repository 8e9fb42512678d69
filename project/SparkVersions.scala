import sbt._

/** The only list of Spark lines that Statemark is built for; the first is the default.
  * `make build SPARK=4.1` picks another. The Makefile and the tests read it from here.
  */
object SparkVersions {

  /** Where the build takes the classes of a line from. */
  sealed trait Source

  /** Maven, with the jars of Spark's own tests. */
  case object Maven extends Source

  /** `jars` of the line's pyspark in the line's virtual environment: no tests of Spark's. */
  case object Pyspark extends Source

  /** @param line major.minor, part of the jar's name; @param spark the release compiled against;
    * @param scala the Scala release of that Spark; @param rocksdb the rocksdbjni that Spark ships
    */
  final case class Line(
      line: String,
      spark: String,
      scala: String,
      rocksdb: String,
      source: Source = Maven
  ) {

    /** Those folders of `dir` whose name covers this line: `spark-4.0`, `spark-4.0-4.1`, and `spark-4.2+` from that
      * line on, so that a new line of Spark begins with all that the newest one has.
      */
    def shims(dir: File): Seq[File] = IO.listFiles(dir).toSeq.sorted.filter { folder =>
      folder.getName match {
        case Range(from, to) => position(from) <= position(line) && position(line) <= position(to)
        case From(from) => position(from) <= position(line)
        case Single(only) => only == line
        case name =>
          sys.error(s"$dir/$name: name it spark-<line>, spark-<line>-<line> or spark-<line>+")
      }
    }

    /** The line's virtual environment, as the Makefile makes it. */
    def environment(root: File): File =
      root / (if (line == all.head.line) ".venv" else s".venv-$line")

    /** Spark's jars in the line's virtual environment. */
    def pysparkJars(root: File): Seq[File] = {
      val found = (environment(root) / "lib" * "python*" / "site-packages" / "pyspark" / "jars" *
        "*.jar").get()
      if (found.isEmpty)
        sys.error(s"No pyspark $spark in ${environment(root)}: run `make venv SPARK=$line`")
      found
    }
  }

  val all: Seq[Line] = Seq(
    Line("4.2", spark = "4.2.0", scala = "2.13.18", rocksdb = "9.8.4"),
    Line("4.1", spark = "4.1.3", scala = "2.13.17", rocksdb = "9.8.4"),
    Line("4.0", spark = "4.0.2", scala = "2.13.16", rocksdb = "9.8.4"),
    Line("4.3", spark = "4.3.0", scala = "2.13.18", rocksdb = "9.8.4", source = Pyspark)
  )

  def current: Line = {
    val asked = sys.props.get("statemark.spark").orElse(sys.env.get("SPARK"))
      .getOrElse(all.head.line)
    all.find(_.line == asked).getOrElse {
      sys.error(
        s"SPARK=$asked is not a Spark line that Statemark is built for; use one of ${all.map(_.line).mkString(", ")}"
      )
    }
  }

  private val Range = raw"spark-(\d+\.\d+)-(\d+\.\d+)".r
  private val From = raw"spark-(\d+\.\d+)\+".r
  private val Single = raw"spark-(\d+\.\d+)".r

  private def position(line: String): Int = {
    val Array(major, minor) = line.split('.').map(_.toInt)
    major * 1000 + minor
  }
}
