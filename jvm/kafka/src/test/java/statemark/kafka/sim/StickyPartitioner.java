package statemark.kafka.sim;

import java.util.Map;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.common.Cluster;

/** A partitioner of a user's for clients before 4.0: each new batch goes to the next partition. */
public class StickyPartitioner implements Partitioner {
  private int batches = 0;

  @Override
  public void configure(Map<String, ?> configs) {}

  @Override
  public int partition(
      String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
    return batches;
  }

  public void onNewBatch(String topic, Cluster cluster, int partition) {
    batches++;
  }

  @Override
  public void close() {}
}
