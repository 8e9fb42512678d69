"""The package's version; a test holds it equal to the repository's VERSION file."""

__version__ = "0.1.0"
