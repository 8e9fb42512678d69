package statemark.common

import java.util.Locale

/** Finds the name that was meant, where one is misspelt. Names are compared in small letters. */
private[statemark] object NearNames {
  private val MostEdits = 2
  private val LeastLetters = 5

  /** Returns the known name that is nearest to another one; None where none is near, or where that is so short that
    * anything is.
    */
  def of(name: String, known: Iterable[String]): Option[String] =
    if (name.length < LeastLetters) None
    else
      known.map(other => edits(lower(name), lower(other)) -> other).minOption.collect {
        case (count, meant) if count <= MostEdits => meant
      }

  private def lower(name: String): String = name.toLowerCase(Locale.ROOT)

  /** Returns how many letters have to be put in, taken out or changed. */
  private def edits(a: String, b: String): Int =
    if (math.abs(a.length - b.length) > MostEdits) MostEdits + 1
    else {
      val last = b.indices.foldLeft((0 to a.length).toVector) { (before, j) =>
        a.indices.foldLeft(Vector(j + 1)) { (row, i) =>
          val changed = before(i) + (if (a(i) == b(j)) 0 else 1)
          row :+ math.min(changed, math.min(row.last, before(i + 1)) + 1)
        }
      }
      last.last
    }
}
