package statemark.spark.stress

import java.io.PrintStream
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Path

/** A process that knows locks of files only: whether they are held, and how to hold one. */
private[spark] final class OtherProcess extends AutoCloseable {
  private val process = new ProcessBuilder("python3", "-c", OtherProcess.Script)
    .redirectError(ProcessBuilder.Redirect.INHERIT).start()
  private val out = new PrintStream(process.getOutputStream, true, UTF_8)
  private val in = process.inputReader

  private def ask(word: String, path: Path): Boolean = {
    out.println(s"$word $path")
    in.readLine() == "yes"
  }

  /** Whether another process is kept from a file. */
  def isLocked(path: Path): Boolean = ask("probe", path)

  /** Holds a file as who uses a home; whether it could. */
  def use(path: Path): Boolean = ask("use", path)

  /** Holds a file as who looks whether a home is used. */
  def look(path: Path): Boolean = ask("look", path)

  /** Lets go of what it holds. */
  def drop(): Unit = ask("drop", Path.of("all")): Unit

  override def close(): Unit = {
    out.close()
    process.waitFor(): Unit
  }
}

private object OtherProcess {
  private val Script =
    """import fcntl, sys
      |held = []
      |def locks(word, file):
      |    try:
      |        if word == 'look': fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 1)
      |        else: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      |        return True
      |    except OSError:
      |        return False
      |for line in sys.stdin:
      |    word, path = line.rstrip('\n').split(' ', 1)
      |    if word == 'drop':
      |        for file in held: file.close()
      |        held = []
      |        answer = True
      |    else:
      |        file = open(path, 'r+')
      |        answer = locks(word, file)
      |        if word == 'probe':
      |            answer = not answer
      |            file.close()
      |        else: held.append(file)
      |    print('yes' if answer else 'no', flush=True)
      |""".stripMargin
}
