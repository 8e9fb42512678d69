package statemark.spark.live

import java.util.{HashMap => JHashMap}
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.connector.read.LocalScan
import org.apache.spark.sql.execution.datasources.v2.state.StateDataSource
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StatemarkBridge}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.types.{ArrayType, IntegerType, StringType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String
import scala.util.control.NonFatal
import scala.util.Try
import statemark.common.InvalidInputException
import statemark.spark.checkpoint.OperatorFacts
import statemark.spark.conf.PinnedProvider
import statemark.spark.errors.FailureKinds

/** The stateful operators of a running query, and what a read may name of them. They are looked for only where somebody
  * asks for them, or where a read has failed: it costs files of the checkpoint.
  *
  * ''Thread:'' any of the driver.
  */
private[live] final class LiveOperators(spark: SparkSession, pin: PinnedBatch) {
  import LiveOperators._

  private lazy val conf = StatemarkBridge.hadoopConf(spark)

  /** Tells whether the query has a directory of state: only stateful ones do. */
  private def isStateful: Boolean = {
    val root = new Path(pin.query.stateRoot)
    root.getFileSystem(conf).exists(root)
  }

  /** In the order of their numbers. Queries that began with an old Spark have no metadata of them. */
  lazy val all: Seq[OperatorFacts] =
    if (isStateful)
      StatemarkBridge.operatorMetadata(pin.query.checkpoint, conf, pin.batch)
        .map(OperatorFacts.of).sortBy(_.id)
    else Nil

  /** Returns the names of the columns of an operator's key, none where its state has no key; or why they cannot be
    * read, as where the file is damaged that has them.
    *
    * @param theirs options of Spark's format, without those that name a state
    */
  def keyColumns(operator: OperatorFacts, theirs: CaseInsensitiveStringMap)
      : Either[String, Seq[String]] = {
    val named = new JHashMap[String, String](theirs.asCaseSensitiveMap)
    named.put("operatorId", operator.id.toString)
    sidesOf(operator).headOption.foreach(named.put("joinSide", _))
    variablesOf(operator).headOption.foreach(named.put("stateVarName", _))
    Try(pin.bySpark(new StateDataSource().inferSchema(new CaseInsensitiveStringMap(named))))
      .toEither.left.map(FailureKinds.whyOf)
      .map(_.find(_.name == "key").map(_.dataType)
        .collect { case key: StructType => key.fieldNames.toSeq }
        .getOrElse(Nil))
  }

  /** Runs a step of a read. Where it fails because the options name what the query has not, the failure says so: Spark's
    * own takes files to be corrupted.
    */
  def explained[A](theirs: CaseInsensitiveStringMap)(step: => A): A = {
    // A checkpoint that cannot be read fails in the step, with what is wrong with it.
    def problem = Try(misnamed(theirs)).toOption.flatten
    if (StatemarkBridge.hasOldStateSource)
      problem.foreach(_.fail(None))
    try step
    catch {
      case NonFatal(e) =>
        problem.foreach(_.fail(Some(e)))
        throw e
    }
  }

  private def misnamed(theirs: CaseInsensitiveStringMap): Option[Misnamed] = {
    val id = Option(theirs.get("operatorId")).getOrElse("0").trim
    if (!isStateful)
      Some(Misnamed(
        s"Query ${pin.query.id} has no stateful operator, and so no state to read.",
        "Read its output, or the state of another query."
      ))
    else if (all.isEmpty) None
    else all.find(_.id.toString == id) match {
      case None =>
        Some(Misnamed(
          s"The query has no stateful operator $id.",
          s"Name one that it has: ${all.map(shown).mkString("; ")}."
        ))
      case Some(operator) => misnamedOf(operator, theirs)
    }
  }

  private def misnamedOf(
      operator: OperatorFacts,
      theirs: CaseInsensitiveStringMap
  ): Option[Misnamed] = {
    def named(option: String) = Option(theirs.get(option)).map(_.trim)
    def is(a: String)(b: String) = a.equalsIgnoreCase(b)
    val sides = sidesOf(operator)
    val side = named("joinSide").filterNot(is("none"))
    val store = named("storeName").filterNot(_ == StateStoreId.DEFAULT_STORE_NAME)
    val variable = named("stateVarName")
    val here = s"operator ${operator.id}, ${operator.name},"
    def refused(problem: String, remedy: String) = Some(Misnamed(problem, remedy))
    def useOneOf(names: Seq[String]) = s"Name one that it has: ${names.mkString(", ")}."
    if (side.isDefined && sides.isEmpty)
      refused(
        s"Join side '${side.get}' is asked for, and $here has no sides.",
        "Leave the side out."
      )
    else if (side.exists(s => !sides.exists(is(s))))
      refused(s"Join side '${side.get}' is asked for, and $here has no such side.", useOneOf(sides))
    else if (store.exists(!operator.stores.contains(_)))
      refused(
        s"Store '${store.get}' is asked for, and $here has no such store.",
        useOneOf(operator.stores)
      )
    else if (variable.isDefined && operator.variables.isEmpty)
      refused(
        s"State variable '${variable.get}' is asked for, and $here has none.",
        "Leave the variable out."
      )
    else if (variable.exists(!operator.variables.contains(_)))
      refused(
        s"State variable '${variable.get}' is asked for, and $here has no such variable.",
        useOneOf(variablesOf(operator))
      )
    else if (sides.nonEmpty && side.isEmpty && store.isEmpty)
      refused(s"No join side is named, and $here has rows of two.", useOneOf(sides))
    else if (
      operator.variables.nonEmpty && variable.isEmpty &&
      !theirs.getBoolean("readRegisteredTimers", false)
    )
      refused(
        s"No state variable is named, and $here has no other rows.",
        useOneOf(variablesOf(operator))
      )
    else None
  }
}

private[live] object LiveOperators {

  /** The names of a read that the query has not. */
  private final case class Misnamed(problem: String, remedy: String) {
    def fail(cause: Option[Throwable]): Nothing =
      throw new InvalidInputException(problem, cause, Some(remedy))
  }

  /** Returns the sides of a join; empty where it is none. */
  def sidesOf(operator: OperatorFacts): Seq[String] =
    if (operator.name == "symmetricHashJoin") Seq("left", "right") else Nil

  /** Returns the state variables that the user's code has made; Spark keeps timers in others, which are read with option
    * `readRegisteredTimers`.
    */
  def variablesOf(operator: OperatorFacts): Seq[String] =
    operator.variables.filterNot(_.startsWith("$"))

  private def shown(operator: OperatorFacts): String = {
    val sides = Option(sidesOf(operator)).filter(_.nonEmpty).map(_.mkString("sides ", ", ", ""))
    val variables =
      Option(variablesOf(operator)).filter(_.nonEmpty).map(_.mkString("state variables ", ", ", ""))
    val more = Seq(sides, variables).flatten
    s"${operator.id} ${operator.name}${if (more.isEmpty) "" else more.mkString(" (", ", ", ")")}"
  }
}

/** The stateful operators of a query; no job runs for them.
  *
  * @param theirs options of Spark's format
  */
private[live] final class OperatorsScan(pin: PinnedBatch, theirs: CaseInsensitiveStringMap)
    extends LocalScan {
  override def readSchema(): StructType = OperatorsScan.schema
  override def description(): String = s"statemark ${pin.query.id}, operators"

  override def rows(): Array[InternalRow] = {
    val operators = new LiveOperators(SparkSession.active, pin)
    val note = PinnedProvider.noteOf(pin.query.runId).map(UTF8String.fromString).orNull
    operators.all.map { operator =>
      val key = operators.keyColumns(operator, theirs)
      InternalRow(
        operator.id.toInt,
        UTF8String.fromString(operator.name),
        texts(key.getOrElse(Nil)),
        key.left.toOption.map(UTF8String.fromString).orNull,
        texts(LiveOperators.sidesOf(operator)),
        texts(LiveOperators.variablesOf(operator)),
        texts(operator.stores),
        note
      )
    }.toArray
  }

  private def texts(of: Seq[String]) =
    new GenericArrayData(of.map(UTF8String.fromString).toArray[Any])
}

private[live] object OperatorsScan {
  private val names = ArrayType(StringType, containsNull = false)

  val schema: StructType = new StructType()
    .add("operator_id", IntegerType, nullable = false)
    .add("name", StringType, nullable = false)
    .add("key_columns", names, nullable = false)
    .add("key_problem", StringType, nullable = true)
    .add("sides", names, nullable = false)
    .add("state_variables", names, nullable = false)
    .add("stores", names, nullable = false)
    .add("provider_note", StringType, nullable = true)
}
