package statemark.spark.cluster

import org.apache.spark.sql.execution.streaming.state.ReadEndpoint

/** A store that a local directory holds.
  *
  * @param store operator, partition and name as they stand in the path
  * @param usedAtMs when it went to disk last
  */
final case class LocalStore(queryId: String, store: String, usedAtMs: Long)

/** Where an executor answers reads of its stores. */
final case class ReadServer(executorId: String, endpoint: ReadEndpoint)

/** What an executor's local directory holds when it starts. */
final case class LocalInventory(executorId: String, host: String, stores: Vector[LocalStore])
