"""Structure learners by name: those that come with the package, a few kilobytes each, and files.

``benchmarks/make_pretrained.py`` makes them, and ``docs/pretrained.md`` says how they do on graphs
that they have never seen. A file's ``provenance`` holds its sources, settings, seed and command.
"""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from graphglow.errors import InputError
from graphglow.evidence import EvidenceLearner
from graphglow.structure import StructureLearner

PRETRAINED: dict[str, tuple[str, ...]] = {
    "universal": (
        *("cora", "citeseer", "pubmed"),
        *("cornell5", "johnshopkins55", "amherst41", "reed98"),
    ),
}
"""The learners by name (lower case), each with the graphs that it was trained on."""

EVIDENCE = "evidence"
"""The shipped evidence learner, pre-trained on open and random graphs, none of them the paper's."""

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


def load_pretrained(name: str) -> StructureLearner:
    """Load a structure learner that comes with the package, by its name in any case.

    There is one, ``"universal"``, trained on the seven graphs of the paper. :func:`load_learner`
    takes files too.
    """
    if not isinstance(name, str):
        raise InputError(f"a pre-trained learner must be named by a text; got {name!r}")
    if name.lower() not in PRETRAINED:
        raise InputError(
            f"a pre-trained learner must be one of {', '.join(PRETRAINED)}; "
            f"got {name!r}{_nearest(name)}"
        )
    return StructureLearner.load(learner_file(name))


def load_evidence_learner(
    learner: EvidenceLearner | str | Path = EVIDENCE, *, seed: int = 0
) -> EvidenceLearner:
    """Return the evidence learner that ``learner`` is or names: the package's, a file, an object.

    ``"untrained"`` is the control: the same evidence and candidates, weights drawn from ``seed``,
    log-odds brought to the scale of the shipped one.
    """
    if isinstance(learner, EvidenceLearner):
        return learner
    if not isinstance(learner, str | Path):
        raise InputError(
            f"learner must be an EvidenceLearner, a name or a file; got {type(learner).__name__}"
        )
    shipped = FOLDER / f"{EVIDENCE}.safetensors"
    if learner == "untrained":
        control = EvidenceLearner.untrained(seed)
        control.logit_scale.copy_(EvidenceLearner.load(shipped).logit_scale)
        return control
    path = shipped if learner == EVIDENCE else Path(learner).expanduser()
    if not os.path.exists(path):
        raise InputError(
            f"learner must be {EVIDENCE}, untrained or an existing file; got {str(learner)!r}"
        )
    return EvidenceLearner.load(path)


def learner_file(name: str | Path) -> Path:
    """The file that a learner's name means: one of the package's, or a path as it is."""
    if isinstance(name, str) and name.lower() in PRETRAINED:
        return FOLDER / f"{name.lower()}.safetensors"
    return Path(name).expanduser()


def _nearest(name: str) -> str:
    """The name that an unknown one may have meant, for the end of an error; "" if none is near."""
    near = difflib.get_close_matches(name.lower(), PRETRAINED, n=1, cutoff=0.5)
    return f" (nearest: {near[0]})" if near else ""
