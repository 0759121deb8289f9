"""graphglow learns how graphs should be wired.

One learner, pre-trained once over many graphs, is applied frozen to a graph it has never seen: it
says which edges look wrong and which are missing, and makes node predictions better::

    import graphglow

    data = graphglow.load_graph("breast_cancer")
    prediction = graphglow.predict(data)  # nothing is trained, and every given label is used
    refined = graphglow.refine(data)  # a better graph, and the same predictions
    result = graphglow.transfer(data)  # small GNNs over both graphs, mixed by validation
    result.test_accuracy, result.predict_proba(), result.refined_graph(top_k=16)

It began as GraphGLOW (Zhao et al., KDD 2023), which is here whole; ``docs/paper_notes.md`` maps
each equation to its place in the code, and says what goes beyond the paper.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from graphglow.version import __version__ as __version__

_HOMES = {
    "METHODS": "graphglow.competitors",
    "Audit": "graphglow.audit",
    "AuditEdges": "graphglow.pyg_api",
    "Auditor": "graphglow.auditing",
    "Checkpoint": "graphglow.checkpoint",
    "EvidenceLearner": "graphglow.evidence.learner",
    "EvidencePretrainConfig": "graphglow.evidence.pretraining",
    "Explanation": "graphglow.explain",
    "FitResult": "graphglow.competitors",
    "GlowClassifier": "graphglow.sklearn_api",
    "InputError": "graphglow.errors",
    "InputWarning": "graphglow.errors",
    "LearnerConfig": "graphglow.settings",
    "NewPredictions": "graphglow.new_nodes",
    "ObjectiveConfig": "graphglow.settings",
    "PaperConfig": "graphglow.settings",
    "Prediction": "graphglow.predict",
    "PretrainConfig": "graphglow.settings",
    "RefineStructure": "graphglow.pyg_api",
    "StructureLearner": "graphglow.paper",
    "TransferConfig": "graphglow.settings",
    "TransferResult": "graphglow.training.result",
    "audit": "graphglow.audit",
    "compare": "graphglow.compare",
    "describe": "graphglow.graph.describe",
    "explain_pair": "graphglow.explain",
    "fit": "graphglow.competitors",
    "load_graph": "graphglow.graph",
    "load_learner": "graphglow.pretrained",
    "predict": "graphglow.predict",
    "pretrain": "graphglow.pretrain",
    "refine": "graphglow.refine",
    "synthetic_graph": "graphglow.graph",
    "to_networkx": "graphglow.graph.write",
    "transfer": "graphglow.transfer",
    "write_graph": "graphglow.graph",
}
__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from graphglow.audit import Audit as Audit
    from graphglow.audit import audit as audit
    from graphglow.auditing import Auditor as Auditor
    from graphglow.checkpoint import Checkpoint as Checkpoint
    from graphglow.compare import compare as compare
    from graphglow.competitors import METHODS as METHODS
    from graphglow.competitors import FitResult as FitResult
    from graphglow.competitors import fit as fit
    from graphglow.errors import InputError as InputError
    from graphglow.errors import InputWarning as InputWarning
    from graphglow.evidence.learner import EvidenceLearner as EvidenceLearner
    from graphglow.evidence.pretraining import EvidencePretrainConfig as EvidencePretrainConfig
    from graphglow.explain import Explanation as Explanation
    from graphglow.explain import explain_pair as explain_pair
    from graphglow.graph import load_graph as load_graph
    from graphglow.graph import synthetic_graph as synthetic_graph
    from graphglow.graph import write_graph as write_graph
    from graphglow.graph.describe import describe as describe
    from graphglow.graph.write import to_networkx as to_networkx
    from graphglow.new_nodes import NewPredictions as NewPredictions
    from graphglow.paper import StructureLearner as StructureLearner
    from graphglow.predict import Prediction as Prediction
    from graphglow.predict import predict as predict
    from graphglow.pretrain import pretrain as pretrain
    from graphglow.pretrained import load_learner as load_learner
    from graphglow.pyg_api import AuditEdges as AuditEdges
    from graphglow.pyg_api import RefineStructure as RefineStructure
    from graphglow.refine import refine as refine
    from graphglow.settings import LearnerConfig as LearnerConfig
    from graphglow.settings import ObjectiveConfig as ObjectiveConfig
    from graphglow.settings import PaperConfig as PaperConfig
    from graphglow.settings import PretrainConfig as PretrainConfig
    from graphglow.settings import TransferConfig as TransferConfig
    from graphglow.sklearn_api import GlowClassifier as GlowClassifier
    from graphglow.training.result import TransferResult as TransferResult
    from graphglow.transfer import transfer as transfer


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``graphglow --help`` does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphglow' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``graphglow.predict`` the function where Python would put the module of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOMES.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
