"""A command in small blocks, as a process of its own: refine or audit, with these words."""

import sys

from graphglow.cli import main
from graphglow.evidence import candidates
from graphglow.workers import blocks

if __name__ == "__main__":
    candidates.NODES["cpu"], candidates.PAIRS["cpu"], blocks.AHEAD = 16, 128, 1
    sys.exit(main(sys.argv[1:]))
