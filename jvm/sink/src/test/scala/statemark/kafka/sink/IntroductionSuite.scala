package statemark.kafka.sink

import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.sink.executor.Introduction

class IntroductionSuite extends AnyFunSuite {
  test("an introduction that was interrupted is repeated, what it serves is served once") {
    var served = 0
    var told = Vector.empty[(String, Int)]
    var fails = true
    val introduction = new Introduction[String, Int](
      _ => {
        served += 1
        served
      },
      (env, own) =>
        if (fails) {
          fails = false
          throw new InterruptedException
        } else told :+= ((env, own))
    )
    intercept[InterruptedException](introduction.run("one"))
    introduction.run("one")
    introduction.run("one")
    assert((served, told) == ((1, Vector("one" -> 1))))
    introduction.run("two")
    assert(told == Vector("one" -> 1, "two" -> 2))
  }
}
