package statemark.kafka.clients

import statemark.common.{Causes, CoreKind, FailureKind}
import statemark.kafka.conf.SinkKind

/** What a failure of a kind means to whoever runs the query.
  * @param predicate the end of a sentence whose subject is what has failed
  * @param because what stands before Kafka's own text in the reason; empty where that says enough
  */
private[kafka] sealed abstract class Meaning(
    val kind: FailureKind,
    val predicate: String,
    val because: String,
    val remedy: String
)

private[kafka] object Meaning {
  private val Elsewhere =
    "leave such rows out, or name a topic for them in option 'refusedRowsTopic'"
  private val Again = "start the query again: nothing is written twice"

  case object Denied extends Meaning(
        SinkKind.UnfitCluster,
        "is not allowed",
        "",
        "Let the user write to the output topic and the commit topic, and use the transactional " +
          "ids of the sink's prefix"
      )
  case object NotLoggedIn extends Meaning(
        SinkKind.UnfitCluster,
        "failed",
        "client and brokers do not accept each other's credentials",
        "Check the options kafka.security.protocol, kafka.sasl.… and kafka.ssl.…"
      )
  case object Misconfigured extends Meaning(
        SinkKind.RefusedSetting,
        "failed",
        "an option of Kafka's, or a setting of a topic, has no meaning",
        "Correct the option kafka.…, or the topic's setting, that is named"
      )
  case object TooLarge extends Meaning(
        SinkKind.UnsendableRow,
        "failed: the row is too large",
        "",
        s"Raise kafka.max.request.size and the topic's max.message.bytes, or $Elsewhere"
      )
  case object WithoutKey extends Meaning(
        SinkKind.UnsendableRow,
        "failed: the row has no key, and its topic is compacted",
        "",
        s"Give each row a key, make a topic without cleanup.policy=compact, or $Elsewhere"
      )
  case object WrongTime extends Meaning(
        SinkKind.UnsendableRow,
        "failed: the row's time is too old for its topic, or too far ahead",
        "",
        "Leave the column 'timestamp' out, which Kafka's source has as well: rows then have the time at which they are " +
          "sent. Else raise the topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms, or " + Elsewhere
      )
  case object BadRow extends Meaning(
        SinkKind.UnsendableRow,
        "failed: the row is not one that Kafka takes",
        "",
        s"Correct the row as the reason says, or $Elsewhere"
      )
  case object BadName extends Meaning(
        SinkKind.UnsendableRow,
        "failed: the row's topic, or its partition, is not there",
        "",
        s"Name a topic that Kafka can have, or $Elsewhere"
      )
  case object NotThere extends Meaning(
        SinkKind.FailedWrite,
        "failed: the row's topic, or its partition, is not there",
        "",
        s"Are all brokers up? Make the topic, or $Elsewhere"
      )
  case object NoSuchPartition extends Meaning(
        SinkKind.FailedWrite,
        "failed: the row's topic, or its partition, is not there",
        "",
        s"Partitions are counted from 0: name one that the topic has, or $Elsewhere"
      )

  /** A row is refused for another one, with which it was sent. */
  case object Neighbour extends Meaning(
        SinkKind.FailedWrite,
        "failed",
        "another row, which was sent with it, was refused",
        "Look for the error of the other row, which says what is to be done: a task that runs beside this one has it"
      )
  case object LostAcknowledged extends Meaning(
        SinkKind.BrokenLog,
        "failed: a partition does not have what it has acknowledged",
        "brokers lose acknowledged rows where a copy that was behind became the leader, a disk was lost, or " +
          "records were deleted in an open transaction",
        "Look at the partition's leaders and disks (unclean.leader.election.enable, min.insync.replicas), and " +
          "whether readers miss rows of earlier batches. Then start the query again: the batch that failed is not " +
          "decided, and is written anew"
      )
  case object Fenced extends Meaning(
        SinkKind.FailedWrite,
        "failed: the producer's id was taken from it",
        "by the brokers, as a transaction was open for too long, or by another run of the sink",
        s"Is another run of the sink under way? Else $Again, and raise kafka.transaction.timeout.ms where it recurs"
      )
  case object Ended extends Meaning(
        SinkKind.FailedWrite,
        "failed: its transaction has ended",
        "",
        s"Have the batch run again, or $Again"
      )
  case object Forgotten extends Meaning(
        SinkKind.FailedWrite,
        "failed: the brokers have forgotten the producer's id",
        "they do so with one that was not used for transactional.id.expiration.ms",
        s"Raise that setting of the brokers above the query's longest pause, and $Again"
      )
  case object Later extends Meaning(
        SinkKind.FailedWrite,
        "failed",
        "the brokers did not take it for now",
        s"Are all brokers up, and do all partitions have leaders? Then $Again"
      )
  case object Unfit extends Meaning(
        SinkKind.UnfitCluster,
        "failed",
        "the brokers cannot do what the sink needs, or are set up not to do it",
        "Change what is named; `statemark doctor --kafka` shows what the sink needs"
      )

  /** What brokers answer to requests that the sink does not make: to groups, to each other, to administrators. */
  case object Foreign extends Meaning(
        SinkKind.UnfitCluster,
        "failed",
        "the brokers answered as they do to other requests than the sink's",
        "Is something between the client and the brokers that answers in their place? Report it, with the brokers' log"
      )
  case object Interrupted extends Meaning(
        CoreKind.CallInterrupted,
        "was interrupted",
        "the thread was to end",
        "Nothing, if that was intended"
      )
  case object Unknown extends Meaning(
        SinkKind.FailedWrite,
        "failed",
        "",
        s"The cause says what the client met; $Again"
      )
}

/** What each exception of Kafka's clients means. Names, not classes: a release of the client has some that others have not.
  * ''Thread:'' any.
  */
private[kafka] object ClientErrors {
  import Meaning._

  /** Returns what a failure means: by the first among it and its causes that says something of its own. */
  def meaningOf(failure: Throwable): Meaning =
    specific(failure).map(_._2).getOrElse(Unknown)

  /** Returns the cause that says what happened, and what it means; None where none says more than that it failed. */
  def specific(failure: Throwable): Option[(Throwable, Meaning)] =
    Causes.of(failure).flatMap(e => ofOne(e).map(e -> _)).nextOption()

  /** Returns the row of a class, by its name alone. */
  private[kafka] def row(className: String): Option[Meaning] = byName.get(className)

  private def ofOne(failure: Throwable): Option[Meaning] = {
    val text = String.valueOf(failure.getMessage)
    if (text.contains("part of a batch which had one more")) Some(Neighbour)
    else
      Iterator.iterate[Class[_]](failure.getClass)(_.getSuperclass).takeWhile(_ != null)
        .flatMap(of => row(of.getName)).nextOption().filter(_ != Unknown).map {
          case NotThere if text.startsWith("Partition") => NoSuchPartition
          // The producer waits for a topic or a partition that is not there, and then speaks of a timeout.
          case Later if text.contains("present in metadata") =>
            if (text.startsWith("Partition")) NoSuchPartition else NotThere
          // Of several rows the brokers' code is one for all, and the text tells.
          case BadRow if text.contains("without key") => WithoutKey
          case BadRow if text.contains("imestamp") => WrongTime
          case other => other
        }
  }

  private val Errors = "org.apache.kafka.common.errors"
  private val Common = "org.apache.kafka.common"
  private val Clients = "org.apache.kafka.clients"

  private def rows(meaning: Meaning, in: String)(names: String): Map[String, Meaning] =
    names.trim.split("\\s+").map(name => s"$in.$name" -> meaning).toMap

  private val byName: Map[String, Meaning] = Seq(
    rows(Denied, Errors)(
      """AuthorizationException TopicAuthorizationException GroupAuthorizationException
        ClusterAuthorizationException TransactionalIdAuthorizationException
        DelegationTokenAuthorizationException"""
    ),
    rows(NotLoggedIn, Errors)(
      """AuthenticationException SaslAuthenticationException SslAuthenticationException
        IllegalSaslStateException UnsupportedSaslMechanismException UnsupportedByAuthenticationException
        SecurityDisabledException DelegationTokenDisabledException DelegationTokenExpiredException
        DelegationTokenNotFoundException DelegationTokenOwnerMismatchException
        UnacceptableCredentialException PrincipalDeserializationException InvalidPrincipalTypeException"""
    ),
    rows(NotLoggedIn, Common)(
      """network.DelayedResponseAuthenticationException
        security.oauthbearer.JwtRetrieverException security.oauthbearer.JwtValidatorException
        security.oauthbearer.internals.secured.UnretryableException
        security.oauthbearer.internals.secured.ValidateException
        security.oauthbearer.internals.unsecured.OAuthBearerIllegalTokenException
        security.oauthbearer.internals.unsecured.OAuthBearerConfigException"""
    ),
    rows(Misconfigured, Errors)("InvalidConfigurationException"),
    rows(Misconfigured, Common)("config.ConfigException"),
    rows(TooLarge, Errors)("RecordTooLargeException RecordBatchTooLargeException"),
    rows(WrongTime, Errors)("InvalidTimestampException"),
    rows(BadRow, Errors)("SerializationException RecordDeserializationException"),
    rows(BadRow, Common)("InvalidRecordException"),
    rows(BadName, Errors)("InvalidTopicException"),
    rows(NotThere, Errors)("UnknownTopicOrPartitionException UnknownTopicIdException"),
    rows(LostAcknowledged, Errors)("OutOfOrderSequenceException UnknownProducerIdException"),
    rows(LostAcknowledged, Clients)("consumer.LogTruncationException"),
    rows(Fenced, Errors)("ProducerFencedException InvalidProducerEpochException"),
    rows(Ended, Errors)(
      """InvalidTxnStateException TransactionAbortedException TransactionAbortableException
        ApplicationRecoverableException"""
    ),
    rows(Forgotten, Errors)("InvalidPidMappingException TransactionalIdNotFoundException"),
    rows(Later, Errors)(
      """RetriableException RefreshRetriableException TimeoutException DisconnectException
        NetworkException InvalidMetadataException LeaderNotAvailableException
        NotLeaderOrFollowerException NotLeaderForPartitionException ReplicaNotAvailableException
        PreferredLeaderNotAvailableException EligibleLeadersNotAvailableException
        FencedLeaderEpochException UnknownLeaderEpochException OffsetNotAvailableException
        NotEnoughReplicasException NotEnoughReplicasAfterAppendException KafkaStorageException
        CorruptRecordException NotControllerException ControllerMovedException NotCoordinatorException
        CoordinatorNotAvailableException CoordinatorLoadInProgressException
        ConcurrentTransactionsException TransactionCoordinatorFencedException
        BrokerNotAvailableException ListenerNotFoundException ThrottlingQuotaExceededException
        ReassignmentInProgressException InconsistentTopicIdException FetchSessionIdNotFoundException
        InvalidFetchSessionEpochException FetchSessionTopicIdException
        OffsetMovedToTieredStorageException AuthorizerNotReadyException StaleBrokerEpochException
        NewLeaderElectedException LogDirNotFoundException UnknownServerException
        OffsetOutOfRangeException PositionOutOfRangeException DuplicateSequenceException
        RebootstrapRequiredException TopicExistsException OperationNotAttemptedException"""
    ),
    rows(Later, Clients)(
      """StaleMetadataException producer.BufferExhaustedException consumer.OffsetOutOfRangeException
        consumer.NoOffsetForPartitionException consumer.InvalidOffsetException
        consumer.internals.NoAvailableBrokersException"""
    ),
    rows(Later, Common)("metrics.QuotaViolationException"),
    rows(Unfit, Errors)(
      """UnsupportedVersionException UnsupportedForMessageFormatException
        UnsupportedCompressionTypeException UnsupportedEndpointTypeException
        MismatchedEndpointTypeException InvalidTxnTimeoutException InvalidRequiredAcksException
        InvalidReplicationFactorException InvalidPartitionsException InvalidReplicaAssignmentException
        PolicyViolationException TopicDeletionDisabledException InvalidRequestException
        InvalidFetchSizeException InconsistentClusterIdException"""
    ),
    rows(Unfit, Common)(
      """network.InvalidReceiveException protocol.types.SchemaException
        requests.CorrelationIdMismatchException"""
    ),
    rows(Interrupted, Errors)("InterruptException WakeupException"),
    rows(Unknown, Errors)("ApiException"),
    rows(Unknown, Common)("KafkaException"),
    rows(Foreign, Errors)(
      """GroupIdNotFoundException GroupMaxSizeReachedException GroupNotEmptyException
        GroupSubscribedToTopicException IllegalGenerationException InconsistentGroupProtocolException
        InvalidGroupIdException InvalidSessionTimeoutException InvalidCommitOffsetSizeException
        MemberIdRequiredException RebalanceInProgressException UnknownMemberIdException
        FencedInstanceIdException FencedMemberEpochException FencedStateEpochException
        StaleMemberEpochException UnreleasedInstanceIdException UnsupportedAssignorException
        UnstableOffsetCommitException InvalidOffsetException OffsetMetadataTooLarge
        InvalidRegularExpression
        InvalidShareSessionEpochException ShareSessionNotFoundException
        ShareSessionLimitReachedException InvalidRecordStateException
        StreamsInvalidTopologyException StreamsInvalidTopologyEpochException
        StreamsTopologyFencedException
        BrokerIdNotRegisteredException DuplicateBrokerRegistrationException
        DuplicateResourceException DuplicateVoterException ElectionNotNeededException
        FeatureUpdateFailedException IneligibleReplicaException InconsistentVoterSetException
        InvalidRegistrationException InvalidUpdateVersionException InvalidVoterKeyException
        NoReassignmentInProgressException ResourceNotFoundException SnapshotNotFoundException
        TelemetryTooLargeException UnknownControllerIdException UnknownSubscriptionIdException
        VoterNotFoundException"""
    ),
    rows(Foreign, Clients)(
      """consumer.CommitFailedException consumer.RetriableCommitFailedException
        consumer.internals.AbstractCoordinator$UnjoinedGroupException"""
    ),
    rows(Foreign, Common)(
      """requests.OffsetFetchRequest$NoBatchedOffsetFetchRequestException
        requests.FindCoordinatorRequest$NoBatchedFindCoordinatorsException"""
    )
  ).flatten.toMap
}
