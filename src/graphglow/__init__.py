"""graphglow learns how graphs should be wired.

One learner, pre-trained once over many graphs, is applied frozen to a graph it has never seen: it
says which edges look wrong and which are missing, and makes node predictions better::

    import graphglow

    data = graphglow.load_graph("breast_cancer")
    prediction = graphglow.predict(data)  # nothing is trained, and every given label is used
    refined = graphglow.refine(data)  # a better graph, and the same predictions
    audit = graphglow.audit(data)  # which edges look wrong, which are missing
    result = graphglow.transfer(data)  # a GNN over both graphs (Algorithm 3)

It began as GraphGLOW (Zhao et al., KDD 2023), which is here whole; ``docs/paper_notes.md`` maps
each equation to its place in the code, and says what goes beyond the paper.
"""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from graphglow.version import __version__ as __version__

_HOMES = {
    name.name: line.module
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(line, ast.ImportFrom) and line.module is not None
    for name in line.names
}
"""Public names by their module, which is imported on first use: help need not wait for torch."""
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphglow' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``graphglow.predict`` the function where Python would put the module of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOMES.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
