"""A query that counts the lines of files, and what it found: its arguments are folder and setup.

It has no import of the project, so that `spark-submit` can run it without the Python package.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

folder, setup = Path(sys.argv[1]), sys.argv[2]
builder = SparkSession.builder.config("spark.sql.shuffle.partitions", 2)
if setup == "configure":
    import statemark

    builder = builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = statemark.configure(builder, local_dir=folder / "local")
spark = builder.getOrCreate()
lines = spark.readStream.text(str(folder / "in"))
writer = lines.groupBy("value").count().writeStream.outputMode("complete").format("memory")
writer = writer.queryName("counts").option("checkpointLocation", str(folder / "checkpoint"))
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
metrics = query.lastProgress["stateOperators"][0]["customMetrics"]
processes = spark.read.format("statemark").option("what", "installation").load().collect()
found = {
    "spark": spark.version,
    "counts": {row["value"]: row["count"] for row in spark.table("counts").collect()},
    "versions": sorted({row["version"] for row in processes}),
    "metrics": {name: value for name, value in metrics.items() if name.startswith("statemark")},
}
(folder / "found.json").write_text(json.dumps(found))
spark.stop()
