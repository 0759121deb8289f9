"""Structure learners that come with the package, a few kilobytes each.

``benchmarks/make_pretrained.py`` makes them, and ``docs/pretrained.md`` says how they do on graphs
that they have never seen. A file's ``provenance`` holds its sources, settings, seed and command.
"""

import difflib
from pathlib import Path

from graphglow.errors import InputError
from graphglow.structure import StructureLearner

_CITATION = ("cora", "citeseer", "pubmed")
_SOCIAL = ("cornell5", "johnshopkins55", "amherst41", "reed98")

PRETRAINED: dict[str, tuple[str, ...]] = {
    "citation": _CITATION,
    "social": _SOCIAL,
    "universal": (*_CITATION, *_SOCIAL),
    "sharp": (*_CITATION, *_SOCIAL),
}
"""The learners by name (lower case), each with the graphs that it was trained on."""

FOLDER = Path(__file__).parent


def load_pretrained(name: str) -> StructureLearner:
    """Load a structure learner that comes with the package.

    Args:
        name: ``"citation"`` (Cora, CiteSeer, PubMed), ``"social"`` (four Facebook graphs),
            ``"universal"`` (all seven) or ``"sharp"`` (all seven, with ``delta="exp"``: for graphs
            whose edges are mostly wrong); any case. Files are read by
            :meth:`StructureLearner.load`.
    """
    if not isinstance(name, str):
        raise InputError(f"a pre-trained learner must be named by a text; got {name!r}")
    if name.lower() not in PRETRAINED:
        raise InputError(
            f"a pre-trained learner must be one of {', '.join(PRETRAINED)}; "
            f"got {name!r}{nearest(name)}"
        )
    return StructureLearner.load(pretrained_file(name))


def pretrained_file(name: str) -> Path:
    """Where a learner lies that comes with the package."""
    return FOLDER / f"{name.lower()}.safetensors"


def nearest(name: str) -> str:
    """The name that an unknown one may have meant, for the end of an error; "" if none is near."""
    near = difflib.get_close_matches(name.lower(), PRETRAINED, n=1, cutoff=0.5)
    return f" (nearest: {near[0]})" if near else ""
