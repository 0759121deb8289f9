"""Steps for workers, in a module that they can import."""

import os
import time
from pathlib import Path

DONE = "done"
"""A file in the folder that a step is told: one line for each block that was begun."""


def total(known, block):
    """Sum of a run of the numbers, noted."""
    numbers, folder = known
    with open(Path(folder, DONE), "a") as file:
        file.write(f"{block.start}\n")
    return numbers[block.start : block.stop].sum()[None]


def slow_total(known, block):
    time.sleep(0.3)
    return total(known, block)


def fatal(known, block):
    os._exit(1)


def begun(folder):
    path = Path(folder, DONE)
    return [int(line) for line in path.read_text().split()] if path.exists() else []
