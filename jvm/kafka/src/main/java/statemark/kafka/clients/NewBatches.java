package statemark.kafka.clients;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Optional;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.common.Cluster;

/**
 * A partitioner that passes on that a new batch begins, which clients before 4.0 tell of. Later ones have no such method:
 * Scala wants to know which it is as this is compiled, Java does not.
 */
abstract class NewBatches implements Partitioner {
  private Optional<Method> method = Optional.empty();

  /** Returns the partitioner that the news are for. */
  protected abstract Partitioner partitioner();

  /** Looks once whether the partitioner can be told. */
  protected final void look() {
    method = Arrays.stream(partitioner().getClass().getMethods())
        .filter(m -> m.getName().equals("onNewBatch") && m.getParameterCount() == 3).findFirst();
  }

  /** Passes the news on. */
  @SuppressWarnings("deprecation")
  public void onNewBatch(String topic, Cluster cluster, int partition) {
    method.ifPresent(m -> {
      try {
        m.invoke(partitioner(), topic, cluster, partition);
      } catch (ReflectiveOperationException e) {
        throw failed(Optional.ofNullable(e.getCause()).orElse(e));
      }
    });
  }

  /** Returns what the client is told where the partitioner fails. */
  protected abstract RuntimeException failed(Throwable cause);
}
