"""Spark's own published test suites, run against our state store provider."""
