package statemark.spark

import java.io.{BufferedReader, File, InputStreamReader, PrintStream}
import java.lang.management.ManagementFactory
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}
import java.util.jar.{JarEntry, JarOutputStream}
import scala.jdk.CollectionConverters._
import scala.util.Using

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

/** Starts processes quickly, for a suite that starts hundreds: with an archive of the classes that the first
  * one loaded (class data sharing), which takes a class path of jars.
  */
private[spark] final class ChildJvm(directory: Path) {
  private val java = new File(System.getProperty("java.home"), "bin/java").getPath
  private val flags = "-Xmx512m" +:
    ManagementFactory.getRuntimeMXBean.getInputArguments.asScala.toSeq
      .filter(a => a.startsWith("--add-") || a.startsWith("-XX:"))
  private val classPath = System.getProperty("java.class.path").split(File.pathSeparator).toSeq
    .map(new File(_)).filter(_.exists).zipWithIndex.map {
      case (folder, i) if folder.isDirectory => jarOf(folder.toPath, directory.resolve(s"$i.jar"))
      case (jar, _) => jar
    }.mkString(File.pathSeparator)
  private val archive = directory.resolve("classes.jsa")

  def start(log: File, arguments: String*): Child = {
    val shared =
      if (Files.exists(archive)) Seq(s"-XX:SharedArchiveFile=$archive", "-Xshare:auto") else Nil
    launch(log, shared, arguments)
  }

  /** Has a process that comes to its end leave its classes to those after it. */
  def share(log: File, arguments: String*)(run: Child => Unit): Unit = {
    val child = launch(log, Seq(s"-XX:ArchiveClassesAtExit=$archive"), arguments)
    try {
      run(child)
      if (!child.process.waitFor(300, TimeUnit.SECONDS) || !Files.exists(archive))
        throw new AssertionError(s"no archive of classes was written, see $log")
    } finally child.kill()
  }

  private def launch(log: File, shared: Seq[String], arguments: Seq[String]): Child = {
    val main = Seq("-cp", classPath, "statemark.spark.CrashChild") ++ arguments
    val command = (java +: flags) ++ shared ++ main
    new Child(
      new ProcessBuilder(command: _*).redirectError(ProcessBuilder.Redirect.to(log)).start(),
      log
    )
  }

  private def jarOf(folder: Path, jar: Path): File = {
    Using.Manager { use =>
      val out = use(new JarOutputStream(Files.newOutputStream(jar)))
      use(Files.walk(folder)).iterator.asScala.filter(Files.isRegularFile(_)).foreach { file =>
        out.putNextEntry(new JarEntry(folder.relativize(file).toString.replace('\\', '/')))
        Files.copy(file, out)
        out.closeEntry()
      }
    }.get
    jar.toFile
  }
}
