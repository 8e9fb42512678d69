"""Runs the command as ``python -m statemark``."""

import sys

from statemark.cli import main

sys.exit(main())
