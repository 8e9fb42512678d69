package statemark.spark

/** Spark's acceptance suite for state store providers, on ours. */
class StatemarkStateStoreSuite extends ProviderSuiteBase[StatemarkStateStoreProvider]
