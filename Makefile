# One command each; none needs sbt installed. SPARK picks the Spark line (project/SparkVersions.scala).
SHELL := /bin/bash
# line=release of every Spark line, the default first
LINES := $(shell sed -n 's/^ *Line."\([^"]*\)", spark = "\([^"]*\)".*/\1=\2/p' project/SparkVersions.scala)
LINE_NAMES := $(foreach l,$(LINES),$(firstword $(subst =, ,$(l))))
export SPARK ?= $(firstword $(LINE_NAMES))
RELEASE := $(patsubst $(SPARK)=%,%,$(filter $(SPARK)=%,$(LINES)))
$(if $(RELEASE),,$(error SPARK=$(SPARK) is not a line that Statemark is built for; use one of $(LINE_NAMES)))
OTHER_LINES := $(wordlist 2,99,$(LINE_NAMES))
IS_DEFAULT := $(filter-out $(OTHER_LINES),$(SPARK))
VERSION := $(shell cat VERSION)
SBT := bin/sbt
VENV := .venv$(addprefix -,$(filter $(SPARK),$(OTHER_LINES)))
PY := $(VENV)/bin/python
JAR := python/src/statemark/jars/statemark-spark_$(SPARK)_2.13-$(VERSION).jar
TESTKIT := jvm/testkit/target/spark-$(SPARK)/scala-2.13/statemark-testkit.jar
BENCH := jvm/bench/target/spark-$(SPARK)/scala-2.13/statemark-bench.jar
SUITE_OPTIONS := jvm/conformance/target/suites-$(SPARK)/options
PYTHON_CODE := python tests demo bench examples
BUILD_FILES := build.sbt VERSION $(wildcard project/*.scala project/*.sbt project/build.properties)
main_sources = $(shell find jvm/$(1)/src/main -type f 2>/dev/null)
ALL_SOURCES := $(shell find jvm -name target -prune -o -path '*/src/*' -type f -print)
# A line that Maven does not have is compiled against its pyspark.
SOURCE_OF_SPARK := $(if $(shell grep '"$(SPARK)".*source = Pyspark' project/SparkVersions.scala),$(VENV)/.installed)
# Lists of jars; only the build definition can change them.
KAFKA_JARS := jvm/brokers/target/jars/broker
# What sbt has left for the processes of tests.
TESTS := target/tests-$(SPARK)
COPY_JAR = mkdir -p $(dir $(JAR)) && rm -f $(dir $(JAR))statemark-spark_$(SPARK)_*.jar \
  && cp jvm/spark/target/spark-$(SPARK)/scala-2.13/$(notdir $(JAR)) $(JAR)

.PHONY: help build venv test check conformance crash demo demo-kafka bench-page bench-providers bench-buffer bench-put bench-queries bench-profile bench-restart bench-scale bench-live bench-homes bench-kafka bench-compaction bench-nexmark bench-soak fmt clean
.PHONY: wheel publish-local release-rehearsal release-line
.PHONY: kafka-jars kafka-up kafka-down check-python tests-built quick test-full durations compile-lines stress crash-kafka stress-kafka
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

build: $(JAR) $(VENV)/.installed ## the plugin's jar and .venv with the package, jar bundled; SPARK=4.1 for another line

# Jar and testkit in one start of sbt, which takes as long as compiling them.
$(JAR) $(TESTKIT) &: $(BUILD_FILES) $(foreach p,core kafka spark sink testkit,$(call main_sources,$(p))) | $(SOURCE_OF_SPARK)
	$(SBT) provider/assembly testkit/assembly
	$(COPY_JAR)
	test -s $(TESTKIT) && touch $(TESTKIT)

# All that tests need in one start of sbt, which takes as long as a suite.
$(TESTS): $(BUILD_FILES) .scalafmt.conf $(ALL_SOURCES) | $(SOURCE_OF_SPARK)
	$(SBT) $(if $(IS_DEFAULT),scalafmtCheckAll scalafmtSbtCheck) provider/assembly testkit/assembly \
	  core/testProcess kafka/testProcess provider/testProcess sink/testProcess testkit/testProcess brokers/kafkaJars \
	  $(if $(IS_DEFAULT),bench/compile conformance/suiteOptions s3/s3Jars)
	$(COPY_JAR)
	mkdir -p $(dir $@) && test -s $(TESTKIT) && touch $(TESTKIT) $@

$(KAFKA_JARS): build.sbt
	$(SBT) brokers/kafkaJars && touch $@

# The jar of a line for the wheel, and the same one in the Maven repository, in one start of sbt.
MAVEN := target/maven
RELEASED := target/release/$(SPARK)-$(VERSION)
$(RELEASED): $(BUILD_FILES) LICENSE NOTICE $(wildcard *.md docs/*.md) $(foreach p,core kafka spark sink,$(call main_sources,$(p))) | $(SOURCE_OF_SPARK)
	$(SBT) provider/assembly testkit/assembly release/publish
	$(COPY_JAR)
	mkdir -p $(dir $@) && test -s $(TESTKIT) && touch $(TESTKIT) $@

release-line: $(RELEASED)

# Lines one after the other: two compilers take more memory than a small machine has.
ALL_LINES = for line in $(LINE_NAMES); do \
  echo "== jar for Spark $$line"; $(MAKE) --no-print-directory release-line SPARK=$$line || exit 1; done

# Sources first, and the wheel from them, each with the time of the last commit.
wheel: $(VENV)/.installed ## wheel and sources with the jars of every line, in dist; bill of materials in target/release
	$(ALL_LINES)
	find python/src/statemark/jars -name '*.jar' ! -name '*-$(VERSION).jar' -delete
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(PY) -m build --no-isolation --outdir dist python > target/release/build.log \
	  || { cat target/release/build.log; exit 1; }
	PYTHONPATH=tests $(PY) -m rehearsal.sbom > target/release/statemark-$(VERSION).cdx.json
	ls -l dist target/release/*.cdx.json

publish-local: ## jars, POMs, sources and checksums of every line, in the Maven repository target/maven
	$(ALL_LINES)
	cd $(MAVEN) && find . -type f \( -name '*.jar' -o -name '*.pom' \) \
	  -exec sh -c 'sha256sum < "$$1" | cut -d" " -f1 > "$$1.sha256"' - {} \;
	cd $(MAVEN) && find . -name '*-$(VERSION)*' -type f ! -name '*.md5' ! -name '*.sha*' | sort

release-rehearsal: wheel publish-local ## a release from dist and target/maven: install, example, spark-submit, upgrade, uninstall; PYTHONS="3.11" ONLY_LINES="4.2" for a look
	PYTHONPATH=tests $(PY) -m rehearsal $(if $(PYTHONS),--pythons $(PYTHONS)) $(if $(ONLY_LINES),--lines $(ONLY_LINES))

kafka-jars: $(KAFKA_JARS) ## lists of the jars of Kafka's broker, its console consumer and Spark's connector, in jvm/brokers/target/jars

# Brokers of tests, with all they need to start fast; data are those of one `up`.
KAFKA = PYTHONPATH=tests $(PY) -m support.kafka_up --directory target/kafka
kafka-up: $(KAFKA_JARS) $(VENV)/.installed ## brokers of Kafka on loopback, whose address it prints; BROKERS=3 for several
	$(KAFKA) up --brokers $(or $(BROKERS),1)

kafka-down: $(VENV)/.installed ## end the brokers of `make kafka-up` and remove their data
	$(KAFKA) down

$(BENCH): $(BUILD_FILES) $(foreach p,core spark testkit bench,$(call main_sources,$(p))) | $(VENV)/.installed
	$(SBT) bench/assembly && touch $@

$(SUITE_OPTIONS): $(JAR) $(call main_sources,conformance)
	$(SBT) conformance/suiteOptions && touch $@

venv: $(VENV)/.installed

# applyInPandasWithState of these lines slices with numbers that newer releases refuse.
OLD_PYARROW = $(if $(filter 4.0 4.1,$(SPARK)),'pyarrow<22')
$(VENV)/.installed: python/pyproject.toml project/SparkVersions.scala VERSION
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install -q 'pip>=25.1' # the first that knows dependency groups
	$(PY) -m pip install -q -e python --group python/pyproject.toml:dev pyspark==$(RELEASE) $(OLD_PYARROW)
	touch $@

# sbt and pip side by side: neither waits for the other.
tests-built:
	$(MAKE) --no-print-directory -j2 $(TESTS) $(VENV)/.installed
	$(MAKE) --no-print-directory check-python

test: tests-built ## everything: formatters, linters, the suites of both languages side by side; ONLY="Crash live" picks, SPARK=4.1 for another line
	$(RUN_TESTS) $(ONLY)

quick: tests-built ## for the inner loop: formatters, linters, the store, each feature once
	$(RUN_TESTS) --quick

test-full: $(VENV)/.installed ## everything at full size, in parts of an hour at most; PART=crash picks, AGAIN=1 runs what failed of it, PART=--status shows when each passed last
	PYTHONPATH=tests $(PY) -m runner.full $(if $(AGAIN),--again) $(PART)

durations: ## keep what each test took in the last whole `make test`, which has to be of a quiet machine
	cp target/tests/durations.json tests/durations.json

# Other lines run fewer histories of the model and fewer kills.
RUN_TESTS = PYTHONPATH=tests $(if $(IS_DEFAULT),,STATEMARK_HISTORIES=100 STATEMARK_KILLS=16) $(PY) -m runner --line $(SPARK) $(if $(IS_DEFAULT),--whole)

compile-lines: ## main and test sources of every other line
	for line in $(OTHER_LINES); do $(MAKE) venv SPARK=$$line && SPARK=$$line $(SBT) Test/compile || exit 1; done

# Results of Spark's provider are kept in target/conformance until `make clean`.
conformance: build $(SUITE_OPTIONS) ## Spark's own suites on our provider; SUITES="Join Session" picks, QUICK=1 a part, JOBS=2, COMPARE=needed
	PYTHONPATH=tests $(PY) -m conformance $(SUITES) $(if $(WITHOUT),--without $(WITHOUT)) $(if $(QUICK),--quick) \
	  $(if $(JOBS),--jobs $(JOBS)) $(if $(COMPARE),--compare $(COMPARE)) --folder $(dir $(SUITE_OPTIONS))

crash: tests-built ## a query that is killed 500 times, half an hour; KILLS=24 as `make test` does
	STATEMARK_KILLS=$(or $(KILLS),500) $(RUN_TESTS) CrashV

# Parts: kills, outages, transfers.
crash-kafka: tests-built ## the Kafka sink under 200 kills of driver, executor and broker, outages, transfers, a consumer group, on three brokers; PARTS="kills" KILLS=20 PER_PHASE=1 COPIES=3 SEED=2
	java @jvm/kafka/target/spark-$(SPARK)/tests/options -Xmx1g -Dstatemark.crash.seed=$(or $(SEED),1) \
	  $(if $(KILLS),-Dstatemark.crash.kills=$(KILLS)) $(if $(PER_PHASE),-Dstatemark.crash.perPhase=$(PER_PHASE)) \
	  $(if $(COPIES),-Dstatemark.crash.copies=$(COPIES)) $(if $(TRANSFERS),-Dstatemark.crash.transfers=$(TRANSFERS)) \
	  $(if $(GROUP_KILLS),-Dstatemark.crash.groupKills=$(GROUP_KILLS)) \
	  statemark.kafka.crash.Crash $(PARTS)

# Parts: core, spark. Runs of the core wait for timeouts most of the time.
STRESS_KAFKA = tmp=$$(mktemp -d -p $(or $(wildcard /dev/shm),/tmp) statemark-XXXXXX) && trap "rm -rf $$tmp" EXIT && java -Djava.io.tmpdir=$$tmp \
  @jvm/$(1)/target/spark-$(SPARK)/tests/options -Xmx1g -Dstatemark.stress.seed=$(or $(SEED),1) \
  $(if $(RUNS),-Dstatemark.stress.runs=$(RUNS)) $(if $(PARALLEL),-Dstatemark.stress.parallel=$(PARALLEL)) $(2)
ifdef REVERT
stress-kafka: $(VENV)/.installed
	PYTHONPATH=tests $(PY) -m runner.reverted stress-kafka $(REVERT) seed=$(or $(SEED),1) $(if $(RUNS),runs=$(RUNS)) \
	  $(if $(PARALLEL),parallel=$(PARALLEL))
else
stress-kafka: tests-built ## RUNS=20 random histories of the Kafka sink from SEED=1 on, PARALLEL=4 side by side: deaths, ways to the broker that are cut or lose answers, deleted rows, copied checkpoints; PARTS=spark: the same of queries of Spark's; REVERT=1 proves that what was mended is still found
	$(if $(filter core,$(or $(PARTS),core)),$(call STRESS_KAFKA,kafka,statemark.kafka.stress.Stress))
	$(if $(filter spark,$(PARTS)),$(call STRESS_KAFKA,sink,statemark.kafka.sink.stress.SparkStress))
endif

# A heap so small that what is not counted fills it; files in memory, as each is written to disk several times.
STRESS = java @jvm/spark/target/spark-$(SPARK)/tests/options -Xmx512m
ifdef REVERT
stress: $(VENV)/.installed
	PYTHONPATH=tests $(PY) -m runner.reverted stress $(REVERT) seed=$(or $(SEED),1) minutes=$(or $(MINUTES),20) \
	  $(if $(ONLY),only="$(ONLY)")
else
stress: tests-built ## random histories of rollbacks, interrupts, runs that overlap and Spark's provider in between, for MINUTES=20 from SEED=1 on, or HISTORIES=1; ONLY="RollBack ShortJobs" picks actions, REVERT=1 proves that what was mended is still found
	tmp=$$(mktemp -d -p $(or $(wildcard /dev/shm),/tmp) statemark-XXXXXX) && $(STRESS) -Djava.io.tmpdir=$$tmp \
	  -Dstatemark.stress.seed=$(or $(SEED),1) -Dstatemark.stress.minutes=$(or $(MINUTES),20) \
	  $(if $(HISTORIES),-Dstatemark.stress.histories=$(HISTORIES)) $(if $(ONLY),-Dstatemark.stress.only="$(ONLY)") \
	  statemark.spark.stress.Stress && rm -rf $$tmp
endif

check: check-python ## formatters, linters, type checkers, house rules, documents
	$(SBT) scalafmtCheckAll scalafmtSbtCheck

check-python: $(VENV)/.installed
	$(VENV)/bin/ruff format --check $(PYTHON_CODE)
	$(VENV)/bin/ruff check $(PYTHON_CODE)
	$(VENV)/bin/mypy --config-file python/pyproject.toml python/src
	@PYTHONPATH=tests $(PY) -m support.packages
	$(PY) -m pytest -q -c python/pyproject.toml --rootdir . tests/test_house_rules.py tests/test_docs.py tests/test_durations.py

demo: ## real flights on Spark's RocksDB provider and on Statemark, one injected failure, live counts
	$(MAKE) -j2 build
	$(PY) demo/run.py

demo-kafka: ## flights from topic to topic by Spark's Kafka sink and by ours, executors, driver and broker killed, rows counted; 5 minutes
	$(MAKE) -j2 build $(KAFKA_JARS)
	PYTHONPATH=tests $(PY) examples/exactly_once/run.py

# spark-submit brings Spark's jars and the flags that Spark needs on this JVM.
BENCH_RUN = PYSPARK_PYTHON=$(PY) $(VENV)/bin/spark-submit --driver-memory 4g

# A look leaves the figures of the page alone.
RESULTS := $(if $(QUICK),target/bench,bench/results)
MEASURED = $(PY) bench/measured.py $(RESULTS)

bench-page: $(VENV)/.installed ## docs/benchmarks, from the newest result of each part below
	$(PY) bench/plot.py

bench-providers: $(BENCH) $(VENV)/.installed ## state store providers side by side, 5 minutes; QUICK=1 for a look, here and below
	mkdir -p $(RESULTS)
	$(BENCH_RUN) --class statemark.bench.ProviderBenchmark $(BENCH) --out $(RESULTS)/providers.json
	$(MEASURED)/providers.json

# Sizes of one partition, and of a query of 64.
KEYS ?= $(if $(QUICK),1000000,1000000,30000000)
QUERY_KEYS ?= $(if $(QUICK),640000,10000000)
bench-restart: $(BENCH) $(VENV)/.installed ## restarts with and without local state, local and slow checkpoint location, 20 minutes; KEYS=1000000 QUERY_KEYS=
	mkdir -p $(RESULTS)
	$(BENCH_RUN) --class statemark.bench.RestartBenchmark $(BENCH) --keys "$(KEYS)" \
	  --query-keys "$(QUERY_KEYS)" --rounds $(if $(QUICK),1,3) --out $(RESULTS)/restart.json
	$(MEASURED)/restart.json

SIZES ?= $(if $(QUICK),1000000,1000000,10000000)
bench-scale: $(BENCH) $(VENV)/.installed ## cost of a row and memory by size of the state, 7 minutes; SIZES=1000000
	mkdir -p $(RESULTS)
	$(BENCH_RUN) --class statemark.bench.ScaleBenchmark $(BENCH) --keys "$(SIZES)" \
	  --rounds $(if $(QUICK),1,3) --out $(RESULTS)/scale.json
	$(MEASURED)/scale.json

bench-live: build ## reads of a running query, local and on executors, 17 minutes
	mkdir -p $(RESULTS)
	$(PY) bench/live.py $(if $(QUICK),--quick) --out $(RESULTS)/live.json
	$(MEASURED)/live.json

bench-homes: build ## stores that a query finds where they are when it is started again in its application, 5 minutes
	mkdir -p $(RESULTS)
	PYTHONPATH=tests $(PY) bench/homes.py $(if $(QUICK),--quick) --out $(RESULTS)/homes.json
	$(MEASURED)/homes.json

bench-kafka: build $(KAFKA_JARS) ## rows to Kafka by our sink and by Spark's own, in turns, 15 minutes
	mkdir -p $(RESULTS)
	PYTHONPATH=tests $(PY) bench/sink.py $(if $(QUICK),--quick) --out $(RESULTS)/sink.json
	$(MEASURED)/sink.json

bench-compaction: build $(KAFKA_JARS) ## the right record of each key: `latest`, and a repair of 10 million keys, 10 minutes
	mkdir -p $(RESULTS)
	PYTHONPATH=tests $(PY) bench/compaction.py $(if $(QUICK),--quick) --out $(RESULTS)/compaction.json
	$(MEASURED)/compaction.json

bench-queries: build $(BENCH) $(KAFKA_JARS) ## whole queries on each provider, time, processors and memory beside goals, half an hour; OPERATORS="dedup join" CONTENDERS="statemark tuned memory floor" ROUNDS=3, FULL=1 for other sizes, keys and writes
	mkdir -p $(RESULTS)
	PYTHONPATH=bench:tests $(PY) -m queries $(if $(QUICK),--quick) $(if $(FULL),--full) \
	  $(if $(OPERATORS),--operators $(OPERATORS)) $(if $(CONTENDERS),--contenders $(CONTENDERS)) \
	  --rounds $(or $(ROUNDS),1) --out $(RESULTS)/$(if $(FULL),matrix,queries).json

PROFILER := jvm/bench/target/spark-$(SPARK)/profiler/libasyncProfiler.so
$(PROFILER): build.sbt
	$(SBT) bench/profiler && touch $@

bench-profile: build $(BENCH) $(PROFILER) ## where the processor time of a whole query goes, 3 minutes a contender: OPERATOR=join CONTENDERS="statemark tuned" BATCHES=20 KEEP=folder
	PYTHONPATH=bench:tests $(PY) -m queries.stacks $(PROFILER) $(or $(OPERATOR),dedup) $(or $(CONTENDERS),statemark tuned) \
	  --batches $(or $(BATCHES),20) $(if $(KEEP),--keep $(KEEP))

# Parts of about the same length; each adds its queries to the same results.
NEXMARK_1 = q3 q8 q11
NEXMARK_2 = q4 q9 q17
NEXMARK_3 = q5 q7 q18
NEXMARK_4 = q16 q20
bench-nexmark-%: build
	$(MAKE) bench-nexmark QUERIES="$(NEXMARK_$*)"

bench-nexmark: build ## Nexmark's stateful queries on each provider, checked against batch, for QUERIES="q3 q8", or for all in 75 minutes: better in parts, bench-nexmark-1 to -4, of 20 minutes
	mkdir -p $(RESULTS)
	PYTHONPATH=bench $(PY) -m nexmark $(if $(QUICK),--quick) $(if $(QUERIES),--queries $(QUERIES)) --out $(RESULTS)/nexmark.json

bench-soak: build ## a quarter of an hour in an executor that may take no more memory than its container; needs root
	mkdir -p $(RESULTS)
	$(PY) bench/soak.py --minutes $(or $(MINUTES),$(if $(QUICK),2,15)) --out $(RESULTS)/soak.json
	$(MEASURED)/soak.json

bench-buffer: $(BENCH) $(VENV)/.installed ## buffers for staged writes (docs/adr/0001), 4 minutes
	mkdir -p target/bench
	$(BENCH_RUN) --class statemark.bench.BufferBenchmark $(BENCH) target/bench/buffer.json

bench-put: $(BENCH) $(JAR) $(VENV)/.installed ## rows put, read, scanned and committed by two builds in one JVM, 2 minutes: BEFORE=jar of the other
	$(BENCH_RUN) --class statemark.bench.PutPathBenchmark $(BENCH) before=$(BEFORE) again=$(BEFORE) after=$(JAR)

fmt: $(VENV)/.installed ## rewrite sources to the project's format
	$(SBT) scalafmtAll scalafmtSbt
	$(VENV)/bin/ruff format $(PYTHON_CODE)
	$(VENV)/bin/ruff check --fix $(PYTHON_CODE)

clean: ## remove what was built
	rm -rf .venv .venv-* $(dir $(JAR)) target jvm/*/target project/target
