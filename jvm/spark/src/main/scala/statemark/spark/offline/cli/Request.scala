package statemark.spark.offline.cli

import org.json4s.{JBool, JDouble, JInt, JNothing, JNull, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.{compact, parse, render}
import scala.util.Try
import statemark.common.InvalidInputException

/** A command and its arguments, as the one JSON object that the process is started with:
  * `{"command":"inspect","checkpoint":"/c","json":false,"verbose":false}`. The `statemark` command parses what
  * users type, and makes it (`commands.py`); there alone are defaults.
  *
  * @param command its name
  * @param isVerbose whether an error shows where it came from
  * @param fields all others
  */
final case class Request(command: String, isVerbose: Boolean, fields: Fields)

object Request {
  private val Own = Set("command", "verbose")

  /** @param words that the process was started with
    * @throws InvalidInputException where they are not one JSON object, or it names no command
    */
  def of(words: Seq[String]): Request = words match {
    case Seq(json) =>
      Try(parse(json)).toOption.collect { case JObject(all) => all } match {
        case Some(all) =>
          val (own, fields) = all.partition(f => Own(f._1))
          val asked = new Fields("this process", own.toMap)
          val command = asked.text("command")
          Request(command, asked.flag("verbose"), new Fields(s"the command $command", fields.toMap))
        case None => throw refused(s"cannot read $json")
      }
    case _ => throw refused(s"${words.length} arguments were given")
  }

  private def refused(problem: String): InvalidInputException = UserError(
    problem,
    "this class is started with one JSON object: a command and its arguments",
    "use the command statemark, or see \"Without Python\" in docs/tools.md"
  )
}

/** Arguments by name, from which a command makes its case class.
  *
  * @param of who asked for them, for errors
  */
final class Fields(of: String, values: Map[String, JValue]) {

  def text(name: String): String = required(name, "text") { case JString(s) => s }

  /** The checkpoint that a command works on. */
  def checkpoint: String = Some(text("checkpoint")).filter(_.nonEmpty).getOrElse(
    throw UserError(
      "the name of the checkpoint is empty",
      s"$of works on one",
      "name one checkpoint location: a path, or a URI that Spark can read"
    )
  )

  /** Tells whether a flag is there and true; a command that has no such flag reads it as false. */
  def isTrue(name: String): Boolean = values.get(name).contains(JBool(true))

  def flag(name: String): Boolean = required(name, "true or false") { case JBool(b) => b }

  /** A number from 0 up, as options with a number have it. */
  def number(name: String): Double =
    Some(required(name, "a number") {
      case JInt(n) => n.toDouble
      case JDouble(n) => n
      case JString(_) => Double.NaN
    }).filter(n => n >= 0 && !n.isInfinite).getOrElse(throw UserError(
      s"--$name is ${shown(values(name))}",
      "it is no number from 0 up",
      s"correct --$name"
    ))

  def optionalText(name: String): Option[String] = optional(name, "text") { case JString(s) => s }

  def optionalWhole(name: String): Option[BigInt] =
    optional(name, "a whole number") { case JInt(n) => n }

  /** The arguments of a command; there are no others than fields of its case class.
    *
    * @throws InvalidInputException where a field is missing, has a value of another kind, or is unknown
    */
  def as[A <: Product](build: Fields => A): A = {
    val built = build(this)
    val known = built.productElementNames.toSeq
    values.keys.toSeq.sorted.find(!known.contains(_)).foreach { name =>
      throw UserError(
        s"unknown argument $name of $of",
        s"its value is ${shown(values(name))}, and nobody would read it",
        s"leave it away; there are ${known.mkString(", ")}"
      )
    }
    built
  }

  private def required[A](name: String, kind: String)(read: PartialFunction[JValue, A]): A =
    optional(name, kind)(read).getOrElse(
      throw UserError(
        s"the argument $name of $of is missing",
        "nothing has a default here: the command statemark fills them in",
        s"""add "$name", which is $kind"""
      )
    )

  private def optional[A](name: String, kind: String)(
      read: PartialFunction[JValue, A]
  ): Option[A] = values.getOrElse(name, JNothing) match {
    case JNothing | JNull => None
    case value if read.isDefinedAt(value) => Some(read(value))
    case value => throw UserError(
        s"the argument $name of $of is ${shown(value)}",
        s"it is not $kind",
        "correct it"
      )
  }

  private def shown(value: JValue): String = value match {
    case JString(s) => s
    case _ => compact(render(value))
  }
}
