"""Learners by name: those that come with the package, a few kilobytes each, and files.

``universal`` is an evidence learner (``benchmarks/predictor.py --train`` makes it), ``paper`` the
paper's structure learner (``benchmarks/make_pretrained.py``), and ``untrained`` the control of the
first: the same candidates, weights never trained. A file's ``provenance`` says how it was made.
"""

import os
from dataclasses import asdict
from pathlib import Path

from graphglow.errors import InputError, at_least, did_you_mean
from graphglow.evidence.learner import KIND, EvidenceLearner
from graphglow.paper import StructureLearner
from graphglow.paper.learner import KIND as PAPER_KIND
from graphglow.storage import checksum, kind_of

UNIVERSAL, PAPER, UNTRAINED = "universal", "paper", "untrained"
PRETRAINED: dict[str, str] = {
    UNIVERSAL: "evidence learner, pre-trained on open and random graphs, none of them the paper's",
    PAPER: "the paper's structure learner (Eq. 9), pre-trained on the paper's seven graphs",
}
"""The learners in the package by name, and what they are."""

FOLDER = Path(__file__).parent
Learner = EvidenceLearner | StructureLearner
LearnerName = Learner | str | Path
"""A learner itself, the name of one of the package's, or a file."""


def load_learner(learner: LearnerName = UNIVERSAL, *, seed: int = 0) -> Learner:
    """Return a learner by name or from a file; a learner is returned as it is.

    Args:
        learner: ``"universal"``, ``"paper"`` or ``"untrained"`` in any case; or a file that either
            kind of learner was saved to, which is given as ``"./universal"`` if that is its name.
        seed: Seeds the weights of ``"untrained"``.
    """
    if isinstance(learner, Learner):
        return learner
    if not isinstance(learner, str | Path):
        raise InputError(
            "learner must be an EvidenceLearner, a StructureLearner, a name or a file; got "
            f"{type(learner).__name__}"
        )
    if isinstance(learner, str) and learner.lower() == UNTRAINED:
        control = EvidenceLearner.untrained(at_least("seed", seed, 0))
        shipped = EvidenceLearner.load(learner_file(UNIVERSAL))
        control.logit_scale.copy_(shipped.logit_scale)
        return control
    path = learner_file(learner, exists=True)
    return (EvidenceLearner if kind_of(path) == KIND else StructureLearner).load(path)


def learner_identity(learner: Learner) -> str:
    """Return a fingerprint of weights and configuration."""
    config = asdict(learner.config) if isinstance(learner, StructureLearner) else None
    return checksum(dict(learner.state_dict()), config)[:16]


def evidence_learner(learner: LearnerName = UNIVERSAL, *, seed: int = 0) -> EvidenceLearner:
    """Return :func:`load_learner`'s learner; refuse one of the paper's kind."""
    found = load_learner(learner, seed=seed)
    if isinstance(found, EvidenceLearner):
        return found
    raise InputError(f"this needs an evidence learner; got one of the paper's kind, {learner}")


def is_paper(learner: str | Path) -> bool:
    """Return whether a learner, by name or file, is of the paper's kind."""
    path = learner_file(learner, exists=True)
    if str(learner).lower() != UNTRAINED and kind_of(path) not in (KIND, PAPER_KIND):
        load_learner(learner)  # which says what is wrong
    return kind_of(path) == PAPER_KIND


def learner_file(name: str | Path, *, exists: bool = False) -> Path:
    """Return the file of a learner of the package by its name, or a path as it is.

    With ``exists`` a path of no file is refused; ``untrained`` has no file.
    """
    if isinstance(name, str) and name.lower() in PRETRAINED:
        return FOLDER / f"{name.lower()}.safetensors"
    path = Path(name).expanduser()
    there = str(name) != "" and os.path.exists(path)
    if exists and str(name).lower() != UNTRAINED and not there:
        raise InputError(  # exists is False, too, for what no path can be
            f"learner must be {', '.join((*PRETRAINED, UNTRAINED))} or an existing file; "
            f"got {str(name)!r}{did_you_mean(name, (*PRETRAINED, UNTRAINED))}"
        )
    return path
