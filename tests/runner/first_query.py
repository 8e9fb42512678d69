"""A session, a query with state and a read of it, for an archive of the classes that they load."""

import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

_STATE_STORE = "spark.sql.streaming.stateStore"
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config(f"{_STATE_STORE}.providerClass", _PROVIDER)
    .getOrCreate()
)
with tempfile.TemporaryDirectory() as folder:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = (
        numbers.groupBy((sf.col("value") % 3).alias("key"))
        .count()
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.read.format("statestore").load(folder).count()
spark.stop()
