package statemark.engine

import java.nio.charset.StandardCharsets.UTF_8
import org.scalatest.funsuite.AnyFunSuite

class KeySketchSuite extends AnyFunSuite {
  private def shown(keys: Int, times: Int): KeySketch = {
    val sketch = new KeySketch
    for (_ <- 0 until times; i <- 0 until keys) sketch.add(s"key-$i".getBytes(UTF_8))
    sketch
  }

  test("different keys are counted within a tenth, however often they come") {
    assert(new KeySketch().estimate == 0)
    for (keys <- Seq(1, 10, 100, 1000, 3000, 10000, 100000, 1000000))
      for (times <- Seq(1, 3) if keys < 1000000 || times == 1) {
        val found = shown(keys, times).estimate
        assert(math.abs(found - keys) <= keys / 10, s"$found for $keys")
      }
  }

  test("cleared it counts from the start") {
    val sketch = shown(5000, times = 1)
    sketch.clear()
    assert(sketch.estimate == 0)
  }
}
