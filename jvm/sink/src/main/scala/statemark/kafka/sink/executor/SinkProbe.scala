package statemark.kafka.sink.executor

import java.util.function.Consumer
import statemark.kafka.conf.{SinkObserver, SinkPhase}

/** Tells a test which phases this process passes. A test names its class in a system property, so that it works in every
  * process of a cluster; nobody else has that property.
  */
private[sink] object SinkProbe {
  val Property: String = "statemark.kafka.probe"

  /** Tells the class that the property names, a `Consumer[String]`, the name of each phase. */
  lazy val observer: SinkObserver = Option(System.getProperty(Property)).fold(SinkObserver.none) {
    name =>
      val probe = Class.forName(name).getConstructor().newInstance()
        .asInstanceOf[Consumer[String]]
      (phase: SinkPhase) => probe.accept(phase.name)
  }
}
