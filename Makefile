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
S3_JARS := jvm/s3/target/spark-$(SPARK)/jars
PYTHON_CODE := python tests demo bench examples
BUILD_FILES := build.sbt VERSION $(wildcard project/*.scala project/*.sbt project/build.properties)
main_sources = $(shell find jvm/$(1)/src/main -type f 2>/dev/null)

.PHONY: help build venv test check conformance crash demo bench bench-buffer bench-restart bench-scale bench-live bench-nexmark bench-soak fmt clean
.PHONY: test-lines compile-lines test-jvm test-python test-conformance
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

build: $(JAR) $(VENV)/.installed ## the plugin's jar and .venv with the package, jar bundled; SPARK=4.1 for another line

# The environment comes first: a line that Maven does not have is compiled against its pyspark.
$(JAR): $(BUILD_FILES) $(call main_sources,core) $(call main_sources,spark) | $(VENV)/.installed
	$(SBT) provider/assembly
	mkdir -p $(dir $@) && rm -f $(dir $@)statemark-spark_$(SPARK)_*.jar
	cp jvm/spark/target/spark-$(SPARK)/scala-2.13/$(notdir $@) $@

$(TESTKIT): $(BUILD_FILES) $(call main_sources,testkit) | $(VENV)/.installed
	$(SBT) testkit/assembly && touch $@

$(BENCH): $(BUILD_FILES) $(foreach p,core spark testkit bench,$(call main_sources,$(p))) | $(VENV)/.installed
	$(SBT) bench/assembly && touch $@

$(SUITE_OPTIONS): $(JAR) $(call main_sources,conformance)
	$(SBT) conformance/suiteOptions && touch $@

$(S3_JARS): $(BUILD_FILES)
	$(SBT) s3/s3Jars && touch $@

venv: $(VENV)/.installed

# applyInPandasWithState of these lines slices with numbers that newer releases refuse.
OLD_PYARROW = $(if $(filter 4.0 4.1,$(SPARK)),'pyarrow<22')
$(VENV)/.installed: python/pyproject.toml project/SparkVersions.scala
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install -q -e 'python[pyspark,dev]' pyspark==$(RELEASE) $(OLD_PYARROW)
	touch $@

test: check test-jvm test-python $(if $(IS_DEFAULT),test-conformance) ## everything: formatters, linters, scalatest, pytest; SPARK=4.1 for another line

test-lines: ## the tests of every other line, one after the other
	for line in $(OTHER_LINES); do $(MAKE) test-jvm test-python SPARK=$$line || exit 1; done

compile-lines: ## main and test sources of every other line
	for line in $(OTHER_LINES); do $(MAKE) venv SPARK=$$line && SPARK=$$line $(SBT) Test/compile || exit 1; done

# Other lines run fewer histories of the model.
test-jvm: | $(VENV)/.installed
	$(if $(IS_DEFAULT),,STATEMARK_HISTORIES=100) $(SBT) test

test-python: build $(TESTKIT) $(if $(IS_DEFAULT),$(SUITE_OPTIONS) $(S3_JARS))
	$(PY) -m pytest -c python/pyproject.toml --rootdir . -n 2 --dist loadfile python/tests tests $(if $(IS_DEFAULT),,--ignore tests/conformance)

test-conformance:
	$(MAKE) conformance QUICK=1 SUITES=

# Results of Spark's provider are kept in target/conformance until `make clean`.
conformance: build $(SUITE_OPTIONS) ## Spark's own suites on our provider; SUITES="Join Session" picks, QUICK=1 a part, JOBS=2, COMPARE=needed
	PYTHONPATH=tests $(PY) -m conformance $(SUITES) $(if $(QUICK),--quick) \
	  $(if $(JOBS),--jobs $(JOBS)) $(if $(COMPARE),--compare $(COMPARE)) --folder $(dir $(SUITE_OPTIONS))

crash: | $(VENV)/.installed ## a query that is killed 500 times, an hour; KILLS=48 as `make test` does
	STATEMARK_KILLS=$(or $(KILLS),500) $(SBT) 'provider/testOnly *CrashSuite'

check: $(VENV)/.installed ## formatters, linters, type checkers, house rules, documents
	$(SBT) scalafmtCheckAll scalafmtSbtCheck
	$(VENV)/bin/ruff format --check $(PYTHON_CODE)
	$(VENV)/bin/ruff check $(PYTHON_CODE)
	$(VENV)/bin/mypy --config-file python/pyproject.toml python/src
	$(PY) -m pytest -q -c python/pyproject.toml --rootdir . tests/test_house_rules.py tests/test_docs.py

demo: build $(TESTKIT) ## real flights on Spark's RocksDB provider and on Statemark, one injected failure, live counts
	$(PY) demo/run.py

# spark-submit brings Spark's jars and the flags that Spark needs on this JVM.
BENCH_RUN = PYSPARK_PYTHON=$(PY) $(VENV)/bin/spark-submit --driver-memory 4g

bench: $(BENCH) $(VENV)/.installed ## state store providers side by side, then restarts, sizes, live reads and Nexmark, two hours and 40 minutes; QUICK=1 for a look
	$(BENCH_RUN) --class statemark.bench.ProviderBenchmark $(BENCH) --out bench/results/latest.json
	$(MAKE) bench-restart
	$(MAKE) bench-scale
	$(MAKE) bench-live
	$(MAKE) bench-nexmark
	$(PY) bench/plot.py

# Sizes of one partition, and of a query of 64.
KEYS ?= $(if $(QUICK),1000000,1000000,10000000,30000000)
QUERY_KEYS ?= $(if $(QUICK),640000,10000000)
bench-restart: $(BENCH) $(VENV)/.installed ## restarts with and without local state, local and slow checkpoint location; KEYS=1000000 QUERY_KEYS=
	$(BENCH_RUN) --class statemark.bench.RestartBenchmark $(BENCH) --keys "$(KEYS)" \
	  --query-keys "$(QUERY_KEYS)" --rounds $(if $(QUICK),1,3) --out bench/results/restart.json

SIZES ?= $(if $(QUICK),1000000,100000,1000000,10000000,30000000)
bench-scale: $(BENCH) $(VENV)/.installed ## cost of a row and memory by size of the state; SIZES=1000000
	$(BENCH_RUN) --class statemark.bench.ScaleBenchmark $(BENCH) --keys "$(SIZES)" \
	  --rounds 3 --out bench/results/scale.json

bench-live: build ## reads of a running query, local and on executors, 17 minutes
	$(PY) bench/live.py $(if $(QUICK),--quick) --out bench/results/live.json

bench-nexmark: build ## Nexmark's stateful queries on each provider, checked against batch, 75 minutes; QUICK=1 for a look
	PYTHONPATH=bench $(PY) -m nexmark $(if $(QUICK),--quick) --out bench/results/nexmark.json

bench-soak: build ## half an hour in an executor that may take no more memory than its container; needs root
	$(PY) bench/soak.py $(if $(MINUTES),--minutes $(MINUTES)) --out bench/results/soak.json

bench-buffer: $(BENCH) $(VENV)/.installed ## buffers for staged writes (docs/adr/0001), 4 minutes
	$(BENCH_RUN) --class statemark.bench.BufferBenchmark $(BENCH) bench/results/buffer.json

fmt: $(VENV)/.installed ## rewrite sources to the project's format
	$(SBT) scalafmtAll scalafmtSbt
	$(VENV)/bin/ruff format $(PYTHON_CODE)
	$(VENV)/bin/ruff check --fix $(PYTHON_CODE)

clean: ## remove what was built
	rm -rf .venv .venv-* $(dir $(JAR)) target jvm/*/target project/target
