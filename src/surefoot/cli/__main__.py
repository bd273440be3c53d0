"""Runs the command line with `python -m surefoot.cli`."""

import sys

from surefoot.cli.main import main

sys.exit(main())
