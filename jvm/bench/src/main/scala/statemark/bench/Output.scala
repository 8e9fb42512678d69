package statemark.bench

import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Path}

import com.fasterxml.jackson.databind.{ObjectMapper, SerializationFeature}
import com.fasterxml.jackson.module.scala.DefaultScalaModule

/** The one place that writes: progress to stderr, tables to stdout, results to a JSON file. */
object Output {
  private val json = new ObjectMapper()
    .registerModule(DefaultScalaModule)
    .enable(SerializationFeature.INDENT_OUTPUT)
    .enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS)

  def progress(line: String): Unit = System.err.println(line)

  /** Columns as wide as their widest cell; the first is left-aligned, numbers go to the right. */
  def table(title: String, header: Seq[String], rows: Seq[Seq[String]]): Unit = {
    val widths = (header +: rows).transpose.map(_.map(_.length).max)
    def line(cells: Seq[String]): String = cells
      .zip(widths)
      .zipWithIndex
      .map { case ((cell, w), i) =>
        if (i == 0) cell.padTo(w, ' ') else cell.reverse.padTo(w, ' ').reverse
      }
      .mkString("  ")
    val lines = Seq("", title, line(header), widths.map("-" * _).mkString("  ")) ++ rows.map(line)
    lines.foreach(System.out.println)
  }

  def writeJson(file: Path, value: AnyRef): Unit = {
    Option(file.toAbsolutePath.getParent).foreach(Files.createDirectories(_))
    Files.write(
      file,
      (json.writeValueAsString(value) + "\n").getBytes(StandardCharsets.UTF_8)
    ): Unit
  }

  /** Three significant digits: medians of a few rounds carry no more. */
  def figure(x: Double): String =
    if (x.isNaN) "n/a"
    else if (x >= 100) f"$x%,.0f"
    else if (x >= 10) f"$x%.1f"
    else if (x >= 0.1) f"$x%.2f"
    else f"$x%.4f"
}
