package statemark.spark.provider;

import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/** A row of a scan whose key is read when somebody asks for it. It is Java, as Scala overrides no variable. */
final class KeyOnDemandPair extends UnsafeRowPair {
  private final Supplier<UnsafeRow> keyNow;

  /** @param keyNow returns the key of the row that the scan stands at */
  KeyOnDemandPair(Supplier<UnsafeRow> keyNow) {
    super(null, null);
    this.keyNow = keyNow;
  }

  @Override
  public UnsafeRow key() {
    return keyNow.get();
  }
}
