package statemark.bench

import java.io.File
import java.lang.management.ManagementFactory
import java.nio.file.Files

import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration.Duration
import scala.jdk.CollectionConverters._

/** A virtual machine of its own for a part of a benchmark, with the flags of this one. */
object ChildProcess {

  /** Runs `main` and waits for it.
    * @param flags of the virtual machine, after those of this one
    */
  def run(main: String, args: Seq[String], flags: Seq[String] = Nil): Unit = {
    val inherited = ManagementFactory.getRuntimeMXBean.getInputArguments.asScala
      .filter(a => a.startsWith("--add-") || a.startsWith("-X"))
    val command = Seq(new File(System.getProperty("java.home"), "bin/java").getPath) ++
      inherited ++ flags ++ Seq("-cp", classPath, main) ++ args
    val log = Files.createTempFile("statemark-bench-", ".log")
    val process = new ProcessBuilder(command: _*)
      .redirectErrorStream(true).redirectOutput(log.toFile).start()
    require(process.waitFor() == 0, s"${args.mkString(" ")} failed, see $log")
    Files.delete(log)
  }

  /** Runs at the same time what nobody measures: states that are built before they are restarted. */
  def sideBySide[A](all: Seq[A])(build: A => Unit): Unit = {
    implicit val context: ExecutionContext = ExecutionContext.global
    Await.result(Future.traverse(all)(each => Future(build(each))), Duration.Inf): Unit
  }

  /** Spark's own jars, and the one of this class, which spark-submit adds by a class loader. */
  private def classPath: String = {
    val own = new File(getClass.getProtectionDomain.getCodeSource.getLocation.toURI).getPath
    System.getProperty("java.class.path") + File.pathSeparator + own
  }
}
