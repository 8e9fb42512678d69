"""Helpers of the tests across languages."""
