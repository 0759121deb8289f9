"""``python -m graphglow`` is the ``graphglow`` command."""

import sys

try:
    from graphglow.cli import main

    status = main()
except KeyboardInterrupt:  # before the command could hear it
    sys.stderr.write("graphglow: interrupted\n")
    status = 130
sys.exit(status)
