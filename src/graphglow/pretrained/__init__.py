"""Learners by name: those that come with the package, a few kilobytes each, and files.

``universal`` is an evidence learner (``benchmarks/predictor.py --train`` makes it), ``paper`` the
paper's structure learner (``benchmarks/make_pretrained.py``), and ``untrained`` the control of the
first: the same candidates, weights never trained. A file's ``provenance`` says how it was made.
"""

import os
from dataclasses import asdict
from pathlib import Path

from graphglow.errors import InputError, at_least, did_you_mean
from graphglow.evidence.learner import KIND as EVIDENCE
from graphglow.evidence.learner import EvidenceLearner
from graphglow.paper.learner import KIND as STRUCTURE
from graphglow.paper.learner import StructureLearner
from graphglow.storage import checksum, load_tensors

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
    name = learner.lower() if isinstance(learner, str) else ""
    path = Path(learner).expanduser()
    if name in (*PRETRAINED, UNTRAINED):
        path = FOLDER / f"{PAPER if name == PAPER else UNIVERSAL}.safetensors"
    elif str(learner) == "" or not os.path.exists(path):  # False, too, for what no path can be
        known = (*PRETRAINED, UNTRAINED)
        raise InputError(
            f"learner must be {', '.join(known)} or an existing file; got "
            f"{str(learner)!r}{did_you_mean(learner, known)}"
        )
    tensors, meta = load_tensors(path, EVIDENCE, STRUCTURE)
    if meta["kind"] == STRUCTURE:
        return StructureLearner.from_tensors(tensors, meta, str(path))
    found = EvidenceLearner.from_tensors(tensors, meta, str(path))
    return untrained_like(found, seed) if name == UNTRAINED else found


def untrained_like(learner: EvidenceLearner, seed: int) -> EvidenceLearner:
    """Return the control: weights never trained, log-odds on the learner's scale."""
    control = EvidenceLearner.untrained(at_least("seed", seed, 0))
    control.logit_scale.copy_(learner.logit_scale.cpu())
    return control


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
