"""``python -m graphglow`` is the ``graphglow`` command."""

import sys

from graphglow.cli import main

sys.exit(main())
