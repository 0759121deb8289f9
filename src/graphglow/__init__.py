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
    "METHODS": "graphglow.baselines",
    "Audit": "graphglow.inference.audit",
    "AuditEdges": "graphglow.inference.audit",
    "Auditor": "graphglow.auditing",
    "Checkpoints": "graphglow.training.checkpoint",
    "EvidenceLearner": "graphglow.evidence.learner",
    "EvidencePretrainConfig": "graphglow.evidence.pretrain",
    "Explanation": "graphglow.inference.explain",
    "FitResult": "graphglow.baselines",
    "GlowClassifier": "graphglow.inference.classifier",
    "InputError": "graphglow.errors",
    "InputWarning": "graphglow.errors",
    "LearnerConfig": "graphglow.structure",
    "NewPredictions": "graphglow.inference.new_nodes",
    "NodeExplanation": "graphglow.inference.explain_node",
    "ObjectiveConfig": "graphglow.structure",
    "PairExplanation": "graphglow.inference.explain_pair",
    "PaperConfig": "graphglow.training",
    "Prediction": "graphglow.predict",
    "PretrainConfig": "graphglow.training",
    "RefineStructure": "graphglow.inference.refine_structure",
    "StructureLearner": "graphglow.structure",
    "TransferConfig": "graphglow.training",
    "TransferResult": "graphglow.training",
    "audit": "graphglow.inference.audit",
    "compare": "graphglow.experiments.compare",
    "describe": "graphglow.graphs.describe",
    "explain_pair": "graphglow.inference.explain_pair",
    "fit": "graphglow.baselines",
    "fit_many": "graphglow.baselines",
    "load_graph": "graphglow.graphs",
    "load_learner": "graphglow.pretrained",
    "ops": "graphglow.ops",
    "predict": "graphglow.predict",
    "pretrain": "graphglow.training",
    "refine": "graphglow.inference.refine",
    "synthetic_graph": "graphglow.graphs",
    "to_networkx": "graphglow.graphs.write",
    "transfer": "graphglow.training",
    "transfer_many": "graphglow.training",
    "write_graph": "graphglow.graphs",
}
__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from graphglow import ops as ops
    from graphglow.auditing import Auditor as Auditor
    from graphglow.baselines import METHODS as METHODS
    from graphglow.baselines import FitResult as FitResult
    from graphglow.baselines import fit as fit
    from graphglow.baselines import fit_many as fit_many
    from graphglow.errors import InputError as InputError
    from graphglow.errors import InputWarning as InputWarning
    from graphglow.evidence.learner import EvidenceLearner as EvidenceLearner
    from graphglow.evidence.pretrain import EvidencePretrainConfig as EvidencePretrainConfig
    from graphglow.experiments.compare import compare as compare
    from graphglow.graphs import load_graph as load_graph
    from graphglow.graphs import synthetic_graph as synthetic_graph
    from graphglow.graphs import write_graph as write_graph
    from graphglow.graphs.describe import describe as describe
    from graphglow.graphs.write import to_networkx as to_networkx
    from graphglow.inference.audit import Audit as Audit
    from graphglow.inference.audit import AuditEdges as AuditEdges
    from graphglow.inference.audit import audit as audit
    from graphglow.inference.classifier import GlowClassifier as GlowClassifier
    from graphglow.inference.explain import Explanation as Explanation
    from graphglow.inference.explain_node import NodeExplanation as NodeExplanation
    from graphglow.inference.explain_pair import PairExplanation as PairExplanation
    from graphglow.inference.explain_pair import explain_pair as explain_pair
    from graphglow.inference.new_nodes import NewPredictions as NewPredictions
    from graphglow.inference.refine import refine as refine
    from graphglow.inference.refine_structure import RefineStructure as RefineStructure
    from graphglow.predict import Prediction as Prediction
    from graphglow.predict import predict as predict
    from graphglow.pretrained import load_learner as load_learner
    from graphglow.structure import LearnerConfig as LearnerConfig
    from graphglow.structure import ObjectiveConfig as ObjectiveConfig
    from graphglow.structure import StructureLearner as StructureLearner
    from graphglow.training import PaperConfig as PaperConfig
    from graphglow.training import PretrainConfig as PretrainConfig
    from graphglow.training import TransferConfig as TransferConfig
    from graphglow.training import TransferResult as TransferResult
    from graphglow.training import pretrain as pretrain
    from graphglow.training import transfer as transfer
    from graphglow.training import transfer_many as transfer_many
    from graphglow.training.checkpoint import Checkpoints as Checkpoints


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``graphglow --help`` does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphglow' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    return module if name == "ops" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``graphglow.predict`` the function where Python would put the module of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOMES.get(name) == value.__name__ and name != "ops":
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
