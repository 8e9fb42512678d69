package statemark.spark.offline

import statemark.spark.offline.cli.Request

/** What the process makes of a request. */
object Requests {

  /** The arguments of its command as text. */
  def shown(json: String): String = {
    val request = Request.of(Seq(json))
    val command = Main.commandOf(request.command)
    request.fields.as(command.read).toString
  }
}
