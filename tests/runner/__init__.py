"""Runs the suites of both languages side by side: `make test`, `make quick`, `make test-full`."""
