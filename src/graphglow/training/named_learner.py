"""A structure learner as people name it: one of the package's, a file, or the learner itself."""

import os
from pathlib import Path

from graphglow.errors import InputError
from graphglow.pretrained import PRETRAINED, load_pretrained, nearest
from graphglow.structure import StructureLearner


def named_learner(learner: StructureLearner | str | Path) -> StructureLearner:
    """Return the learner that ``learner`` is or names.

    A bare name of the package's (``"universal"``, any case) goes before a file of that name, which
    is then given as ``"./universal"``.
    """
    if isinstance(learner, StructureLearner):
        return learner
    if not isinstance(learner, str | Path):
        raise InputError(
            f"learner must be a StructureLearner, a name or a file; got {type(learner).__name__}"
        )
    if isinstance(learner, str) and learner.lower() in PRETRAINED:
        return load_pretrained(learner)
    path = Path(learner).expanduser()
    if not os.path.exists(path):  # False, too, for what no path can be
        raise InputError(
            f"learner must be {', '.join(PRETRAINED)} or an existing file; "
            f"got {str(learner)!r}{nearest(str(learner))}"
        )
    return StructureLearner.load(path)
