package statemark.spark

import org.apache.spark.sql.SparkSession
import org.scalatest.{BeforeAndAfterAll, Suite}
import statemark.spark.process.JvmState

/** One session for the tests of a suite, made when the first asks for it. */
trait OneSession extends BeforeAndAfterAll { this: Suite =>
  protected def master: String = "local[2]"

  /** Settings of the session beside those that all have. */
  protected def sessionSettings: Map[String, String] = Map(
    "spark.sql.streaming.stateStore.providerClass" -> classOf[StatemarkStateStoreProvider].getName
  )

  protected lazy val spark: SparkSession = {
    val builder = SparkSession.builder().master(master)
      .config("spark.ui.enabled", "false")
      .config("spark.sql.shuffle.partitions", "2")
    sessionSettings.foreach { case (key, value) => builder.config(key, value) }
    builder.getOrCreate()
  }

  override protected def afterAll(): Unit = {
    JvmState.clear()
    spark.stop()
    super.afterAll()
  }
}
