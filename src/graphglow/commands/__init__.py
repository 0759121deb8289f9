"""The subcommands, a function each; flags come from the function's signature."""

import errno
from contextlib import ExitStack

COMMANDS: dict[str, str] = {
    "demo": "Show the main job in about a minute, on graphs that come with the package.",
    "datasets": "List the graphs that are known by name.",
    "pretrain": "Train a learner of your own on source graphs and random ones.",
    "transfer": "Train a small GNN on a new graph under a frozen learner.",
    "fit": "Train a competitor on a graph, under the same protocol as transfer.",
    "compare": "Run graphglow and others on your graph, and say which to use and how sure that is.",
    "refine": "Write a better graph to a file, in seconds and with nothing trained.",
    "audit": "Say which edges of a graph look wrong and which are missing, with nothing trained.",
    "predict": "Predict the class of every node, or of new nodes, with nothing trained.",
    "explain": "Say why: who carried a node's class, or what speaks for and against a pair.",
    "reproduce": "Run the tables and figures of the paper, as far as they are missing.",
    "report": "Show results as one page that opens offline: tables, charts, learned structures.",
}
"""Name and first docstring line of each command, here so that help need not import torch."""

MODULES = {
    "demo": "report",
    "datasets": "graphs",
    "pretrain": "train",
    "transfer": "train",
    "refine": "results",
}
"""Where a command is, if not in a module of its name."""

HELD = ExitStack()
"""What a command holds until it ends: the files that it alone may write."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
