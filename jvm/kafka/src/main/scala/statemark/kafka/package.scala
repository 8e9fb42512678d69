package statemark

import org.apache.kafka.clients.consumer.Consumer
import org.apache.kafka.clients.producer.Producer

/** Exactly-once output to Kafka: the core, without Spark.
  *
  * A batch is decided once, and then made visible, whatever dies in between. Executors write its rows in one open
  * transaction each. The driver commits a ''decision'': which rows, by their offsets, are the batch. Then it orders each
  * executor to commit. A transaction that cannot be committed any more is aborted, and its rows are copied out of the
  * topic's own log, where aborted rows stay readable. A run that comes later finds the decision and completes it; the
  * rows that it computes again for that batch are discarded.
  *
  * A reader at `read_committed` never sees rows of two tries of a batch, and no row twice. A batch is complete once the
  * query has run again; until then the parts of some executors may show (K1).
  *
  * ==What Spark's side does==
  *
  * '''Once per run, on the driver''':
  * {{{
  * val settings = SinkSettings.of(options)
  * val coordinator = new BatchCoordinator(context, orders, marker, local, seams)
  * }}}
  *   - `context` has the settings and the identity: the query id (or `txnAppId`) and `settings.sink`.
  *   - [[CommitOrders]] is how orders reach executors: implement it over Spark's RPC. On the executor, each order goes to
  *     `commit` of the one `ExecutorSinks` of the process, on a thread that may block.
  *   - [[CheckpointMarker]] keeps one small file in the checkpoint; `CheckpointMarker.none` for batch writes.
  *   - In local mode pass the process's `ExecutorSinks` as `local` and no orders: rows and decision are then one
  *     transaction.
  *
  * '''Per batch, on the driver''': `begin(BatchStart(…))` before the job; its [[BatchPlan]] has the [[WriterSpec]] for the
  * tasks, which is serializable. After the job `commit(batch, messages)`, whose [[BatchFigures]] are the metrics; where
  * the job failed, `abort()`. `close()` when the run ends.
  *   - `begin` recovers at the first batch of a run, and after any failure; `lastRecovery` says what it found and did.
  *   - A [[BatchPlan.Discard]] needs a job only for what else the batch leaves behind, such as state.
  *
  * '''Per task, on the executor''': `writer(spec, executorId, partition, attempt)` of the `ExecutorSinks` is an
  * [[AttemptWriter]]: `write`, then `commit` or `abort`, as Spark's `DataWriter` has them. The [[AttemptMessage]] is the
  * commit message.
  *
  * Everything that is thrown is a [[SinkException]], but for interrupts.
  */
package object kafka {
  type RowProducer = Producer[Array[Byte], Array[Byte]]
  type RowConsumer = Consumer[Array[Byte], Array[Byte]]
}
