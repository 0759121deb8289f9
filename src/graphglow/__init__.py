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

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from graphglow.version import __version__ as __version__

_NAMES = {
    "audit": "Audit audit",
    "auditing": "Auditor",
    "checkpoint": "Checkpoint",
    "compare": "compare",
    "competitors": "FitResult METHODS fit",
    "errors": "InputError InputWarning",
    "evidence.learner": "EvidenceLearner",
    "explain": "Explanation explain_pair",
    "graph": "load_graph synthetic_graph write_graph",
    "graph.load": "describe",
    "graph.write": "to_networkx",
    "inductive": "NewPredictions",
    "paper": "StructureLearner",
    "predict": "Prediction predict",
    "pretrain": "pretrain",
    "pretrained": "load_learner",
    "pyg_api": "AuditEdges RefineStructure",
    "refine": "refine",
    "result": "TransferResult",
    "settings": "AuditPretrainConfig EvidencePretrainConfig LearnerConfig ObjectiveConfig "
    "PaperConfig PretrainConfig TransferConfig",
    "sklearn_api": "GlowClassifier",
    "transfer": "transfer",
}
"""Public names by their module, which is imported on first use: help need not wait for torch."""
_HOMES = {name: f"graphglow.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from graphglow.audit import Audit as Audit, audit as audit
    from graphglow.auditing import Auditor as Auditor
    from graphglow.checkpoint import Checkpoint as Checkpoint
    from graphglow.compare import compare as compare
    from graphglow.competitors import FitResult as FitResult, METHODS as METHODS, fit as fit
    from graphglow.errors import InputError as InputError, InputWarning as InputWarning
    from graphglow.evidence.learner import EvidenceLearner as EvidenceLearner
    from graphglow.explain import Explanation as Explanation, explain_pair as explain_pair
    from graphglow.graph import load_graph as load_graph, synthetic_graph as synthetic_graph
    from graphglow.graph import write_graph as write_graph
    from graphglow.graph.load import describe as describe
    from graphglow.graph.write import to_networkx as to_networkx
    from graphglow.inductive import NewPredictions as NewPredictions
    from graphglow.paper import StructureLearner as StructureLearner
    from graphglow.predict import Prediction as Prediction, predict as predict
    from graphglow.pretrain import pretrain as pretrain
    from graphglow.pretrained import load_learner as load_learner
    from graphglow.pyg_api import AuditEdges as AuditEdges, RefineStructure as RefineStructure
    from graphglow.refine import refine as refine
    from graphglow.result import TransferResult as TransferResult
    from graphglow.settings import AuditPretrainConfig as AuditPretrainConfig
    from graphglow.settings import EvidencePretrainConfig as EvidencePretrainConfig
    from graphglow.settings import LearnerConfig as LearnerConfig
    from graphglow.settings import ObjectiveConfig as ObjectiveConfig, PaperConfig as PaperConfig
    from graphglow.settings import PretrainConfig as PretrainConfig
    from graphglow.settings import TransferConfig as TransferConfig
    from graphglow.sklearn_api import GlowClassifier as GlowClassifier
    from graphglow.transfer import transfer as transfer


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
