"""What the paper has: its figures, the lines of its tables, and its experiments as data."""

from graphglow.experiments.paper.numbers import (
    CITATION,
    GRAPHS,
    SOCIAL,
    of_the_other_kind,
    others_of_its_kind,
)

__all__ = ["CITATION", "GRAPHS", "SOCIAL", "of_the_other_kind", "others_of_its_kind"]
