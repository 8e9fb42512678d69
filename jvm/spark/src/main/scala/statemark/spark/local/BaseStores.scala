package statemark.spark.local

import java.io.File
import org.apache.spark.sql.execution.streaming.state.RocksDBLoader
import statemark.{NewStore, ReadRetention, ReopenedStore, TransactionalStore}
import statemark.engine._
import statemark.transaction.{CommitObserver, UncommittedLimit}

/** Makes and opens the base stores of one provider, all with the same options.
  *
  * @param identity which store it is; a base of another one is refused
  * @param tracksRows whether rows are counted
  * @param mark the mark that the checkpoint has now, by which later processes tell homes that are older; asked for
  *   only where a home outlives its process
  */
final class BaseStores(
    val identity: StoreIdentity,
    options: EngineOptions,
    usesFamilies: Boolean,
    tracksRows: Boolean,
    retention: ReadRetention,
    limit: Option[UncommittedLimit],
    observer: CommitObserver,
    mark: => Option[String]
) {

  /** Makes a store from the files of a snapshot in `home`, or an empty one where there are none. */
  def create(home: StoreDirectory, state: StoreState): TransactionalStore = {
    RocksDBLoader.loadLibrary()
    NewStore.create(
      home.base,
      options,
      identity,
      state,
      usesFamilies,
      observer,
      retention,
      limit,
      if (home.isDurable) mark else None
    )
  }

  /** Opens a store that another process or run left in `home`. */
  def reopen(home: StoreDirectory): ReopenedStore = ReopenedStore.open(
    home.base,
    options,
    identity,
    usesFamilies,
    tracksRows,
    observer,
    retention,
    limit,
    mark
  )

  /** Returns the state of an empty store. */
  def empty(version: Long): StoreState =
    StoreState.empty(version, if (tracksRows) RowCounts.zero else RowCounts.untracked)

  /** Row counts of a snapshot in `image`.
    * @param known the counts in the metadata; None where the metadata has none
    */
  def counts(image: File, families: ColumnFamilies, known: Option[RowCounts]): RowCounts =
    if (!tracksRows) RowCounts.untracked
    else known.getOrElse(NewStore.count(image, options, families, usesFamilies))
}
