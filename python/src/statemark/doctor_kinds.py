"""What `statemark doctor` can find: the table of kinds.

The names are for programs, and stay. docs/doctor.md has the same table, and a test compares both.
"""

from __future__ import annotations

from statemark.doctor_findings import PROBLEM, WARNING, Kind

# ---- Java, Spark, the jar

JAVA_MISSING = Kind("java-missing", PROBLEM, "no Java: neither `JAVA_HOME` nor `PATH` has one")
JAVA_OLD = Kind("java-old", PROBLEM, "the Java that Spark would start is older than Spark needs")
JAVA_TWO = Kind(
    "java-two",
    WARNING,
    "`JAVA_HOME` and `PATH` name two releases of Java: Spark takes the first, people the second",
)
SPARK_MISSING = Kind(
    "spark-missing", PROBLEM, "no Spark: neither `SPARK_HOME` nor the installed pyspark has one"
)
SPARK_TWO = Kind(
    "spark-two", WARNING, "`SPARK_HOME` is of another line of Spark than the installed pyspark"
)
JAR_MISSING = Kind(
    "jar-missing", PROBLEM, "the package has no jar, or no single one for this line of Spark"
)
SPARK_UNSUPPORTED = Kind("spark-unsupported", PROBLEM, "no jar is for this line of Spark")

# ---- a session that runs

PROVIDER_NOT_SET = Kind(
    "provider-not-set", WARNING, "the running session has the jar, and names another provider"
)
SESSION_WITHOUT_JAR = Kind("session-without-jar", PROBLEM, "the running session has no jar")
JAR_VERSIONS = Kind(
    "jar-versions", PROBLEM, "driver or executors have the jar of another version than the package"
)
SESSION_LACKS = Kind(
    "session-lacks", WARNING, "the running session has no extension or plugin, and what that costs"
)

# ---- settings

SETTINGS_REFUSED = Kind(
    "settings-refused",
    PROBLEM,
    "a key of Statemark's is unknown or there twice, or a value is bad, of Spark's settings too",
)
JAR_NOT_NAMED = Kind("jar-not-named", PROBLEM, "the provider is set, and no setting brings its jar")
JAR_NOT_ON_EXECUTORS = Kind(
    "jar-not-on-executors",
    PROBLEM,
    "the jar is on the class path of the driver alone, on a cluster",
)
PLUGIN_NOT_SET = Kind("plugin-not-set", WARNING, "`spark.plugins` lacks the plugin, on a cluster")
ENCRYPTED_LOCAL_DIR = Kind(
    "encrypted-local-dir", PROBLEM, "`localDir` with `spark.io.encryption.enabled`"
)
REAL_TIME_REFUSED = Kind(
    "real-time-refused",
    WARNING,
    "Spark 4.3 or later would refuse real-time queries: the provider is set without"
    " `allowRealTime`",
)
CHANGELOGS_ANYWAY = Kind(
    "changelogs-anyway",
    WARNING,
    "`rocksdb.changelogCheckpointing.enabled` is false, which has no effect",
)
NATIVE_UNBOUNDED = Kind(
    "native-unbounded",
    WARNING,
    "a `rocksdb` setting of sizes takes the bound away from native memory",
)
NATIVE_OVER_OVERHEAD = Kind(
    "native-over-overhead",
    WARNING,
    "`rocksdb.maxMemoryUsageMB` is more than the memory overhead of an executor",
)
UNCOMMITTED_OVER_HEAP = Kind(
    "uncommitted-over-heap", WARNING, "`maxUncommittedBytes` is more than half of the heap"
)
SNAPSHOTS_RARE = Kind(
    "snapshots-rare",
    WARNING,
    "`minDeltasForSnapshot` is above 100 or `maintenanceInterval` above 10 minutes",
)
LOCALITY_OFF = Kind(
    "locality-off", WARNING, "`spark.locality.wait` is 0 with `localDir`, on a cluster"
)

# ---- memory

MEMORY_OVER_MACHINE = Kind(
    "memory-over-machine",
    WARNING,
    "on a local master: the heap and what comes beside it exceed the memory of the machine, or of"
    " the container",
)
BATCHES_SPILL = Kind(
    "batches-spill",
    WARNING,
    "the writes of the last batches, by the formula of the page on memory, exceed"
    " `maxUncommittedBytes`",
)
NATIVE_SMALL = Kind(
    "native-small",
    WARNING,
    "indexes and filters of the checkpoint's keys take more than two fifths of native memory",
)

# ---- the local directory

LOCAL_DIR_REFUSED = Kind(
    "local-dir-refused", PROBLEM, "`localDir` is no directory, or this user may not write to it"
)
LOCAL_DIR_FOREIGN = Kind(
    "local-dir-foreign",
    PROBLEM,
    "a link, a file or another user's directory lies where a directory of stores has to be",
)
LOCAL_DIR_OPEN = Kind(
    "local-dir-open", WARNING, "all may write to `localDir`, and it has no sticky bit"
)
LOCAL_DIR_IN_MEMORY = Kind("local-dir-in-memory", WARNING, "the local directory is a tmpfs")
LOCAL_DIR_ON_NETWORK = Kind(
    "local-dir-on-network", WARNING, "the local directory is on a network file system"
)
LOCAL_DIR_FULL = Kind(
    "local-dir-full",
    WARNING,
    "less room than a restart on this machine downloads, or less than 1 GiB",
)
LOCAL_LIMIT_SMALL = Kind(
    "local-limit-small",
    WARNING,
    "`localDirMaxBytes` is less than the checkpoint's state takes: it is deleted before a restart",
)
CACHE_DIR_UNUSABLE = Kind(
    "cache-dir-unusable",
    WARNING,
    "on a local master without `localDir`: the user's cache directory cannot be written",
)

HANDLES_FEW = Kind(
    "handles-few",
    WARNING,
    "on a local master: the checkpoint's stores take more file handles than a process may have",
)

# ---- the checkpoint

METADATA_GONE = Kind(
    "metadata-gone", PROBLEM, "the file with the query's id is missing or cannot be read"
)
ENTRY_DAMAGED = Kind(
    "entry-damaged", PROBLEM, "one of the log entries that a start reads cannot be read"
)
ENTRY_MISSING = Kind("entry-missing", PROBLEM, "one of the log entries that a start reads is gone")
COMMIT_MISSING = Kind(
    "commit-missing",
    WARNING,
    "entries of the commit log are gone, and a start does without: its last batch runs again",
)
STATE_MISSING = Kind(
    "state-missing", PROBLEM, "a file, or a store, that the last committed batch needs is gone"
)
STATE_DAMAGED = Kind(
    "state-damaged",
    PROBLEM,
    "a snapshot that the last committed batch needs is no zip, an SST file of it has another size,"
    " or a changelog is of a history that was rolled back",
)
STATE_LACKS = Kind(
    "state-lacks",
    WARNING,
    "files of state are gone or damaged, and a start does without: it has an older snapshot, or a"
    " local directory",
)
SWITCH_UNFINISHED = Kind("switch-unfinished", WARNING, "a `switch` was interrupted")
REPARTITION_UNFINISHED = Kind("repartition-unfinished", PROBLEM, "a `repartition` was interrupted")
COMMAND_AT_WORK = Kind(
    "command-at-work", WARNING, "a `switch` or `repartition` works on it, or was killed"
)
PROVIDER_DIFFERS = Kind(
    "provider-differs", WARNING, "the checkpoint pins another provider than the settings name"
)
FORMAT_DIFFERS = Kind(
    "format-differs",
    PROBLEM,
    "the checkpoint has another format than `checkpointFormatVersion` says",
)
PARTITIONS_DIFFER = Kind(
    "partitions-differ",
    WARNING,
    "the checkpoint has another number of partitions than `spark.sql.shuffle.partitions` says",
)
SNAPSHOTS_LAG = Kind(
    "snapshots-lag",
    WARNING,
    "more changelogs since a store's last snapshot than the settings of snapshots explain",
)
SKEW = Kind(
    "skew",
    WARNING,
    "the largest partition of a store has more than 64 MiB, and more than 4 times the mean",
)

#: The table of all kinds.
KINDS: tuple[Kind, ...] = tuple(
    value for value in dict(globals()).values() if isinstance(value, Kind)
)
