package statemark.kafka.sink.driver

import org.apache.spark.ShuffleDependency
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction
import org.apache.spark.sql.catalyst.plans.physical.RangePartitioning
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.{
  CoalesceExec,
  ExternalRDD,
  LeafExecNode,
  LogicalRDD,
  PlanLater,
  QueryExecution,
  SampleExec,
  ShuffledRowRDD,
  SparkPlan
}
import org.apache.spark.sql.execution.adaptive.{AdaptiveSparkPlanExec, QueryStageExec}
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec
import org.apache.spark.sql.execution.exchange.{
  BroadcastExchangeLike,
  ReusedExchangeExec,
  ShuffleExchangeLike
}
import org.apache.spark.sql.execution.streaming.state.{BaseStateStoreRDD, OutputQuery}
import org.slf4j.LoggerFactory
import scala.annotation.tailrec
import scala.util.control.NonFatal
import statemark.kafka.clients.KafkaFailures
import statemark.kafka.conf.SinkException
import statemark.kafka.decision.Placement

/** What the plan of a frame says of the rows that it gives: all there is to ask where no query is known, as on Spark
  * Connect. ''Thread:'' that of the write.
  */
private[sink] object FramePlans {
  private val log = LoggerFactory.getLogger(FramePlans.getClass)

  /** Returns whether computing a frame writes to state stores: it is made of a batch of a stateful query, which commits
    * that state with the batch. The frame's own history says it, whichever session or thread it is used in.
    */
  def writesState(frame: DataFrame): Boolean = {
    val scanned = planOf(frame).analyzed.collectWithSubqueries {
      case rows: LogicalRDD => rows.rdd
      case rows: ExternalRDD[_] => rows.rdd
    }
    scanned.exists(history(_).exists {
      case _: BaseStateStoreRDD[_, _] => true
      // Of joins, and of operators with an initial state. Spark keeps the class to itself.
      case other => other.getClass.getSimpleName == "StateStoreAwareZipPartitionsRDD"
    })
  }

  /** Returns where a frame's rows are placed; None where its plan does not say it.
    * @param query the query in whose batch the frame was made, whose plan says the rest
    */
  def placementOf(frame: DataFrame, query: Option[OutputQuery]): Option[Placement] = attempt {
    val (own, isWhole) = placed(planOf(frame).executedPlan)
    query.flatMap(_.batchPlan()) match {
      case Some(plan) =>
        val (batch, _) = placed(plan)
        // Rows of the batch come to be as the frame is computed.
        val isRandomlyPlaced = own.shuffles.exists(_ > 1) && nodesOf(plan).exists(isRandom)
        Placement(
          own.isChosen || batch.isChosen || isRandomlyPlaced,
          batch.shuffles ++ own.shuffles,
          batch.inputs ++ own.inputs
        )
      // Shuffles of a plan that cannot be seen may be adaptive ones.
      case None => own.copy(isChosen = own.isChosen || !isWhole)
    }
  }

  /** Returns where the rows of the batch are placed that a query runs; None where its plan does not say it. */
  def placementOf(query: OutputQuery): Option[Placement] =
    query.batchPlan().flatMap(plan => attempt(placed(plan)._1))

  /** A batch is decided without its placement rather than not at all: rows of it may never be lost. */
  private def attempt(placement: => Placement): Option[Placement] =
    try Some(placement)
    catch {
      case NonFatal(e) if !KafkaFailures.isInterrupt(e) =>
        log.warn(
          s"Where the rows of a batch are placed is not known, and the batch is written without it: rows of it that are " +
            s"lost before they are complete cannot be computed again. Spark's plan says: $e"
        )
        log.debug("It was asked here.", e)
        None
    }

  /** The placement of a plan's rows, and whether the plan has all that places them. It must be prepared: inputs are asked
    * for their partitions.
    */
  private[sink] def placed(plan: SparkPlan): (Placement, Boolean) = {
    val nodes = nodesOf(plan)
    val isChosenByPlan = nodes.exists {
      case _: AdaptiveSparkPlanExec | _: QueryStageExec => true
      case shuffle: ShuffleExchangeLike =>
        shuffle.outputPartitioning.isInstanceOf[RangePartitioning] || // bounds come from samples
        shuffle.outputPartitioning.numPartitions > 1 && nodesOf(shuffle).exists(isRandom)
      case coalesce: CoalesceExec => coalesce.numPartitions > 1 // groups go by where blocks are
      case _ => false
    }
    val shuffles = nodes.collect { case shuffle: ShuffleExchangeLike =>
      shuffle.outputPartitioning.numPartitions
    }
    // Plans that adapt themselves are not asked further, as that would run parts of them.
    val read = if (isChosenByPlan) Vector.empty
    else nodes.collect {
      case leaf: LeafExecNode if !leaf.isInstanceOf[ReusedExchangeExec] => history(leaf.execute())
    }.flatten
    val inputs = read.filter(_.dependencies.isEmpty).map(_.getNumPartitions)
    val isChosen = isChosenByPlan || read.exists(isPlacedAsItRuns)
    (Placement(isChosen, shuffles, inputs), !read.exists(_.isInstanceOf[ShuffledRowRDD]))
  }

  /** Tells whether a node gives other rows when it runs again. What is shuffled behind it may be placed by these: by their
    * values, or by how many there are. Aggregates are placed by their keys.
    */
  private def isRandom(node: SparkPlan): Boolean = node match {
    case _: SampleExec => true
    case _ => node.expressions.exists(_.exists {
        case _: AggregateFunction => false
        case of => !of.deterministic && of.children.forall(_.deterministic)
      })
  }

  /** Tells whether rows of an RDD that no plan has made are grouped by where blocks are, or shuffled in a way of its own. */
  private def isPlacedAsItRuns(rdd: RDD[_]): Boolean = rdd match {
    case _: ShuffledRowRDD => false
    case _ if rdd.getNumPartitions == 1 => false
    // Spark keeps the class to itself.
    case _ => rdd.getClass.getSimpleName == "CoalescedRDD" ||
      rdd.dependencies.exists(_.isInstanceOf[ShuffleDependency[_, _, _]])
  }

  /** The nodes of a plan in its order, without what is broadcast: every partition has all of it. */
  private def nodesOf(plan: SparkPlan): Vector[SparkPlan] = plan match {
    case broadcast: BroadcastExchangeLike => Vector(broadcast)
    case cached: InMemoryTableScanExec => nodesOf(cached.relation.cachedPlan)
    // Never run, and so never made: the initial state of a transformWithState that has none.
    case _: PlanLater => Vector.empty
    case _ => plan +: plan.children.toVector.flatMap(nodesOf)
  }

  /** All that a frame's rows are made of, each once. */
  private def history(rdd: RDD[_]): Vector[RDD[_]] = {
    @tailrec
    def visit(left: List[RDD[_]], seen: Set[Int], found: Vector[RDD[_]]): Vector[RDD[_]] =
      left match {
        case Nil => found
        case next :: others if seen(next.id) => visit(others, seen, found)
        case next :: others =>
          visit(next.dependencies.map(_.rdd).toList ++ others, seen + next.id, found :+ next)
      }
    visit(List(rdd), Set.empty, Vector.empty)
  }

  /** Returns the execution of a frame's plan.
    * @throws SinkException.IllegalCall where the frame is a client's
    */
  def planOf(frame: DataFrame): QueryExecution = frame match {
    case rows: Dataset[_] => rows.queryExecution
    case _ => throw new SinkException.IllegalCall("A write cannot begin", "its rows are elsewhere")
  }
}
