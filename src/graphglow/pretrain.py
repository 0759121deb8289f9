"""Pre-training: an evidence learner by default, an auditor, or the paper's learner (Algorithm 2).

graphglow pretrain --kind paper --sources cora citeseer --out learner.safetensors
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch_geometric.data import Data

from graphglow.auditing.auditor import Auditor
from graphglow.auditing.pretraining import pretrain_auditor
from graphglow.checkpoint import Checkpoint
from graphglow.checks import one_of, with_settings
from graphglow.device import out_of_memory_hint, resolve_device
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.pretraining import Progress, pretrain_evidence
from graphglow.gnn.train import OnEpoch
from graphglow.graph import as_graph, prepare
from graphglow.graph.graph import known_graph
from graphglow.paper import StructureLearner
from graphglow.paper.algorithms import pretrain_structure
from graphglow.parallel import where_to_compute
from graphglow.settings import AuditPretrainConfig, EvidencePretrainConfig, PretrainConfig

Kind = Literal["evidence", "auditor", "paper"]
Config = EvidencePretrainConfig | AuditPretrainConfig | PretrainConfig
CONFIGS: dict[str, type[Any]] = {
    "evidence": EvidencePretrainConfig,
    "auditor": AuditPretrainConfig,
    "paper": PretrainConfig,
}


@overload
def pretrain(
    sources: Sequence[Any],
    config: EvidencePretrainConfig | None = None,
    *,
    kind: Literal["evidence"] | None = None,
    on_progress: Progress | None = None,
    workers: int | None = None,
    **settings: Any,
) -> EvidenceLearner: ...
@overload
def pretrain(
    sources: Sequence[Any],
    config: AuditPretrainConfig | None = None,
    *,
    kind: Literal["auditor"],
    on_progress: Progress | None = None,
    **settings: Any,
) -> Auditor: ...
@overload
def pretrain(
    sources: Sequence[Any],
    config: PretrainConfig | None = None,
    *,
    kind: Literal["paper"],
    on_epoch: OnEpoch | None = None,
    checkpoint: Checkpoint | None = None,
    **settings: Any,
) -> StructureLearner: ...
@overload
def pretrain(
    sources: Sequence[Any],
    config: PretrainConfig,
    *,
    on_epoch: OnEpoch | None = None,
    checkpoint: Checkpoint | None = None,
    **settings: Any,
) -> StructureLearner: ...
def pretrain(
    sources: Sequence[Any],
    config: Config | None = None,
    *,
    kind: Kind | None = None,
    on_progress: Progress | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoint: Checkpoint | None = None,
    workers: int | None = None,
    **settings: Any,
) -> EvidenceLearner | Auditor | StructureLearner:
    """Train a learner on source graphs: an evidence learner, unless another kind is asked for.

    Args:
        sources: The source graphs, each a ``Data`` or anything else that :func:`load_graph` takes.
            For an evidence learner and an auditor all labels ``y`` are used (-1 where unknown),
            whatever their split; the paper's has training and validation nodes.
        config: An :class:`EvidencePretrainConfig`, an :class:`AuditPretrainConfig`, or a
            :class:`PretrainConfig` for the paper's.
        kind: ``"evidence"``, ``"auditor"`` or ``"paper"``; by default what ``config`` is of.
        on_progress: Called with the stage, and how far it is; not for the paper's.
        on_epoch: Of the paper's: called after every epoch.
        checkpoint: Of the paper's: the file from which a training that was stopped goes on.
        workers: Of an evidence learner: Ray workers that draw the episodes, on CPU cores; None:
            this process. On a CPU the learner is the same.
        settings: Settings by name, which go before those of ``config``.

    Returns:
        The learner on the CPU, with ``provenance`` telling how it was made.
    """
    given = next((name for name, of in CONFIGS.items() if isinstance(config, of)), None)
    asked: str = kind or given or "evidence"
    one_of("kind", asked, CONFIGS)
    if isinstance(sources, Data | str | Path):
        raise InputError("pretrain needs a list of source graphs; got a single graph")
    if len(sources) == 0:
        raise InputError("pretrain needs at least one source graph; got none")
    if config is not None and asked != given:
        raise InputError(f"config must be a {CONFIGS[asked].__name__}; got {type(config).__name__}")
    others = {
        "on_progress": on_progress is not None and asked == "paper",
        "workers": workers is not None and asked != "evidence",
        "on_epoch": on_epoch is not None and asked != "paper",
        "checkpoint": checkpoint is not None and asked != "paper",
    }
    if unused := [name for name, unfit in others.items() if unfit]:
        raise InputError(f"{' and '.join(unused)} must go with another kind; got kind {asked}")
    chosen: Any = with_settings(CONFIGS[asked]() if config is None else config, settings)
    if asked == "paper":
        graphs = [prepare(as_graph(source)) for source in sources]
        return pretrain_structure(graphs, chosen, on_epoch=on_epoch, checkpoint=checkpoint)
    sources = [as_graph(source, split=False) for source in sources]
    for source in sources:
        known_graph(source)  # one bad graph is said now, and not after minutes
    if asked == "auditor":
        progress = on_progress or (lambda stage, done, total: None)
        with out_of_memory_hint("pre-training the auditor", "a smaller --max-nodes"):
            return pretrain_auditor(sources, chosen, on_progress=partial(progress, "auditor"))
    device = resolve_device(chosen.device)
    draw_on = device if workers in (None, 1) else torch.device("cpu")  # cores are faster together
    progress = on_progress or (lambda stage, done, total: None)
    _, map_blocks = where_to_compute("cpu", workers, None)
    smaller = "a smaller --max-nodes, fewer --pairs, fewer episodes"
    with out_of_memory_hint("pre-training the evidence learner", smaller):
        learner = pretrain_evidence(
            sources,
            chosen,
            device=device,
            draw_on=draw_on,
            on_progress=progress,
            map_blocks=map_blocks,
        )
    return learner.to("cpu")
