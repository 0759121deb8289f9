"""Structure learners by name: those that come with the package, a few kilobytes each, and files.

``benchmarks/make_pretrained.py`` makes them, and ``docs/pretrained.md`` says how they do on graphs
that they have never seen. A file's ``provenance`` holds its sources, settings, seed and command.
"""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from graphglow.errors import InputError
from graphglow.structure import StructureLearner

PRETRAINED: dict[str, tuple[str, ...]] = {
    "universal": (
        *("cora", "citeseer", "pubmed"),
        *("cornell5", "johnshopkins55", "amherst41", "reed98"),
    ),
}
"""The learners by name (lower case), each with the graphs that it was trained on."""

FOLDER = Path(__file__).parent


def load_learner(
    learner: StructureLearner | str | Path, *, also: Sequence[str] = ()
) -> StructureLearner:
    """Return the learner that ``learner`` is or names: one of the package's, a file, an object.

    A bare name of the package's (``"universal"``, any case) goes before a file of that name, which
    is then given as ``"./universal"``.

    Args:
        learner: A name, a file that :meth:`StructureLearner.save` wrote, or the learner itself.
        also: More names that the caller takes, for the error.
    """
    if isinstance(learner, StructureLearner):
        return learner
    if not isinstance(learner, str | Path):
        raise InputError(
            f"learner must be a StructureLearner, a name or a file; got {type(learner).__name__}"
        )
    path = learner_file(learner)
    if not os.path.exists(path):  # False, too, for what no path can be
        raise InputError(
            f"learner must be {', '.join((*PRETRAINED, *also))} or an existing file; "
            f"got {str(learner)!r}{_nearest(str(learner))}"
        )
    return StructureLearner.load(path)


def learner_file(name: str | Path) -> Path:
    """The file that a learner's name means: one of the package's, or a path as it is."""
    if isinstance(name, str) and name.lower() in PRETRAINED:
        return FOLDER / f"{name.lower()}.safetensors"
    return Path(name).expanduser()


def _nearest(name: str) -> str:
    """The name that an unknown one may have meant, for the end of an error; "" if none is near."""
    near = difflib.get_close_matches(name.lower(), PRETRAINED, n=1, cutoff=0.5)
    return f" (nearest: {near[0]})" if near else ""
