package statemark.spark

import java.io.{BufferedReader, File, InputStreamReader, PrintStream}
import java.lang.management.ManagementFactory
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.LinkedBlockingQueue
import scala.jdk.CollectionConverters._

/** A [[CrashChild]] of its own process.
  *
  * @param log what it prints on standard error
  */
private[spark] final class Child(val process: Process, val log: File) {
  val lines = new LinkedBlockingQueue[String]
  val reader = new Thread(() => {
    val in = new BufferedReader(new InputStreamReader(process.getInputStream, UTF_8))
    try
      Iterator.continually(in.readLine()).takeWhile(_ != null)
        .filter(_.startsWith("CHILD ")).foreach(l => lines.put(l.stripPrefix("CHILD ")))
    catch { case _: java.io.IOException => () } // the child was killed
  })
  reader.setDaemon(true)
  reader.start()

  /** Has it run its query, and stand still at a visit of a phase. */
  def begin(phase: String, visit: Int): Unit = {
    val out = new PrintStream(process.getOutputStream, true, UTF_8)
    out.println(s"$phase $visit")
  }

  def kill(): Unit = {
    process.destroyForcibly().waitFor(): Unit
    reader.join()
  }
}

/** Starts processes as this one was started: on its class path and with its flags, an archive of classes (class
  * data sharing) among them where `tests/runner` gave one.
  */
private[spark] object ChildJvm {
  private val java = new File(System.getProperty("java.home"), "bin/java").getPath
  private val flags = "-Xmx512m" +:
    ManagementFactory.getRuntimeMXBean.getInputArguments.asScala.toSeq
      .filter(a => Seq("--add-", "-XX:", "-Dspark.sql.").exists(a.startsWith))

  def start(log: File, arguments: String*): Child = {
    val main =
      Seq("-cp", System.getProperty("java.class.path"), "statemark.spark.CrashChild") ++ arguments
    val command = (java +: flags) ++ main
    new Child(
      new ProcessBuilder(command: _*).redirectError(ProcessBuilder.Redirect.to(log)).start(),
      log
    )
  }
}
