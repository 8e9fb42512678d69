package statemark.kafka.sink.driver

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import scala.util.Using
import statemark.kafka.conf.{SinkIdentity, SinkTransactionalId}
import statemark.kafka.driver.CheckpointMarker

/** The file `_statemark/kafka/<sink>` of a checkpoint, empty; Spark ignores it. ''Thread:'' the query's. */
private[sink] final class MarkerFile(
    checkpoint: String,
    identity: SinkIdentity,
    conf: Configuration
) extends CheckpointMarker {
  private val path =
    new Path(
      new Path(checkpoint),
      s"_statemark/kafka/${SinkTransactionalId.escaped(identity.sink)}"
    )

  override def exists(): Boolean = path.getFileSystem(conf).exists(path)

  override def write(): Unit =
    Using.resource(path.getFileSystem(conf).create(path, true))(_.hsync())
}
