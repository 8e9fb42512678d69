package statemark.spark.live

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.LocalScan
import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.types.{BooleanType, IntegerType, LongType, StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String
import statemark.common.{Position, SourceEnd, SourceOffset}
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.cluster.SourceNames
import statemark.spark.reads.{ReadReply, ReadRequest, StoreOffsets}

/** The offset that each source has reached with the pinned batch, as the query's offset log has it; no job runs for it. */
private[live] final class PositionScan(pin: PinnedBatch, sources: Seq[SparkDataStream])
    extends LocalScan {
  override def readSchema(): StructType = PositionScan.schema
  override def description(): String = s"statemark ${pin.query.id}, position of batch ${pin.batch}"

  override def rows(): Array[InternalRow] =
    pin.query.positionOf(pin.batch).toArray
      .flatMap(PositionScan.columns(_, sources)).map(of => InternalRow(of :+ pin.batch: _*))
}

private[live] object PositionScan {
  private[live] val sourceColumns: StructType = new StructType()
    .add("source", IntegerType, nullable = false)
    .add("name", StringType, nullable = false)
    .add("offset", StringType)

  val schema: StructType = sourceColumns.add("batch_id", LongType, nullable = false)

  /** Returns number, name and offset of each source of a position. */
  def columns(position: Position, sources: Seq[SparkDataStream]): Array[Seq[Any]] = {
    val names = SourceNames.of(position.sources.map(_.source), sources.map(_.toString))
    position.sources.zip(names).zipWithIndex.map { case ((of, name), i) =>
      Seq[Any](i, UTF8String.fromString(name), of.end.text.map(UTF8String.fromString).orNull)
    }.toArray
  }
}

/** The source offsets that one store holds, those of the last committed batch; no job runs for it. Where it is open
  * nowhere, or cannot be asked, they are those that its next load finds: the offset log's; column `held` tells.
  */
private[live] final class CommittedOffsetScan(options: LiveOptions) extends LocalScan {
  override def readSchema(): StructType = CommittedOffsetScan.schema
  override def description(): String = s"statemark ${options.shown}"

  override def rows(): Array[InternalRow] = {
    val partition = options.partition.getOrElse(0)
    val (first, theirs) = options.pinned()
    StateRead(options.schemaOf(first, theirs), first, theirs).requirePartition(partition)
    val address = addressOf(first, partition)
    LiveQueries.retried(options.pinned()._1)(pin =>
      rowsOf(pin, held(pin, address.copy(runId = pin.query.runId)))
    )
  }

  private def addressOf(pin: PinnedBatch, partition: Int): StoreAddress = {
    val name = options.state.getOrDefault("storeName", StateStoreId.DEFAULT_STORE_NAME)
    new LiveOperators(SparkSession.active, pin).all.find(_.id == options.operator).foreach { of =>
      if (!of.stores.contains(name)) throw LiveQueries.wrong(
        s"Operator ${of.id}, ${of.name}, has no store '$name'.",
        s"Name one that it has with option storeName: ${of.stores.mkString(", ")}."
      )
    }
    StoreAddress(pin.query.runId, options.operator, partition, name)
  }

  /** Returns where a store stands; None where it is open nowhere. */
  private def held(pin: PinnedBatch, address: StoreAddress): Option[StoreOffsets] = {
    val ids = pin.query.idsOf(pin.batch, address.operator).flatMap(_.lift(address.partition))
    val asked =
      ReadRequest.Offsets(address, pin.version, ids.toSet.flatten, options.level.name)
    ReadRouter.ask(asked) match {
      case ReadReply.Offsets(found) => Some(found)
      case ReadReply.NotHere => None
      case ReadReply.Failed(e) => throw e
      case other =>
        throw new IllegalStateException(s"$address answers ${other.getClass.getSimpleName}.")
    }
  }

  private def rowsOf(pin: PinnedBatch, held: Option[StoreOffsets]): Array[InternalRow] = {
    val at = held.fold(pin.version)(_.at.version)
    val logged = pin.query.positionOf(at - 1)
    val position = held.flatMap(_.position).orElse(logged)
    position.toArray.flatMap { of =>
      PositionScan.columns(
        of.copy(sources = of.sources.map(inFull(_, logged))),
        options.sourcesOf(pin)
      )
        .map(source =>
          InternalRow(source ++ Seq[Any](at - 1, of.andMore, held.exists(_.position.isDefined)): _*)
        )
    }
  }

  /** Returns an offset of which the store holds the digest as the log has it, where that is the same. */
  private def inFull(of: SourceOffset, logged: Option[Position]): SourceOffset = of.end match {
    case _: SourceEnd.Digest =>
      logged.flatMap(
        _.sources.find(l => l.source == of.source && l.end.isSame(of.end))
      ).getOrElse(of)
    case _ => of
  }
}

private[live] object CommittedOffsetScan {
  val schema: StructType = PositionScan.sourceColumns
    .add("batch_id", LongType, nullable = false)
    .add("and_more", BooleanType, nullable = false)
    .add("held", BooleanType, nullable = false)
}
