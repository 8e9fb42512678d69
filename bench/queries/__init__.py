"""Whole queries on each provider: time, processor time and memory."""
