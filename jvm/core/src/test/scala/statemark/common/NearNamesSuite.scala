package statemark.common

import org.scalatest.funsuite.AnyFunSuite

class NearNamesSuite extends AnyFunSuite {
  private val known = Seq("localDir", "localDirMaxAge", "isolationLevel")

  test("a name that is nearly one that is known is that one, in either case") {
    for ((name, meant) <- Seq("locldir" -> "localDir", "isolationlevle" -> "isolationLevel"))
      assert(NearNames.of(name, known).contains(meant))
    assert(NearNames.of("LOCALDIR", known).contains("localDir"))
  }

  test("a short name, and one that is unlike all, is nobody's") {
    for (name <- Seq("", "loca", "timeout", "localDirectory"))
      assert(NearNames.of(name, known).isEmpty, name)
  }
}
