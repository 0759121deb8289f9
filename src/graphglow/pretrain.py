"""Pre-training: an evidence learner by default, an auditor, or the paper's learner (Algorithm 2).

graphglow pretrain --kind paper --sources cora citeseer --out learner.safetensors
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphglow.auditing.pretraining import pretrain_auditor
from graphglow.device import out_of_memory_hint, resolve_device, where_to_compute
from graphglow.errors import InputError, one_of, with_settings
from graphglow.evidence.pretraining import Progress, pretrain_evidence
from graphglow.gnn.train import OnEpoch
from graphglow.graph import as_graph, prepare
from graphglow.graph.graph import known_graph
from graphglow.paper.algorithms import pretrain_structure
from graphglow.settings import PRETRAINING
from graphglow.storage import Checkpoint


def pretrain(
    sources: Sequence[Any],
    config: Any = None,
    *,
    kind: str | None = None,
    on_progress: Progress = lambda stage, done, total: None,
    on_epoch: OnEpoch | None = None,
    checkpoint: Checkpoint | None = None,
    workers: int | None = None,
    **settings: Any,
) -> Any:
    """Train a learner on source graphs: an evidence learner, unless another kind is asked for.

    Args:
        sources: The source graphs, each a ``Data`` or anything else that :func:`load_graph` takes.
            For an evidence learner and an auditor all labels ``y`` are used (-1 where unknown),
            whatever their split; the paper's has training and validation nodes.
        config: An :class:`EvidencePretrainConfig`, an :class:`AuditPretrainConfig`, or a
            :class:`PretrainConfig` for the paper's.
        kind: ``"evidence"``, ``"auditor"`` or ``"paper"``; by default the kind of ``config``.
        on_progress: Called with the stage, the steps done and all steps, except for the paper's.
        on_epoch: For the paper's: called after every epoch.
        checkpoint: For the paper's: the file from which a training that was stopped goes on.
        workers: For an evidence learner: Ray workers that draw the episodes on CPU cores; None
            draws them in this process. On a CPU the learner is the same.
        settings: Settings by name, which replace those of ``config``.

    Returns:
        An :class:`EvidenceLearner`, an :class:`Auditor` or a :class:`StructureLearner`, on the
        CPU; its ``provenance`` tells how it was made.
    """
    given = next((name for name, of in PRETRAINING.items() if isinstance(config, of)), None)
    kind = kind or given or "evidence"
    one_of("kind", kind, PRETRAINING)
    if isinstance(sources, Data | str | Path):
        raise InputError("pretrain needs a list of source graphs; got a single graph")
    if len(sources) == 0:
        raise InputError("pretrain needs at least one source graph; got none")
    if config is not None and kind != given:
        wanted = PRETRAINING[kind].__name__
        raise InputError(f"config must be a {wanted}; got {type(config).__name__}")
    chosen: Any = with_settings(PRETRAINING[kind]() if config is None else config, settings)
    if workers is not None and kind != "evidence":
        raise InputError("workers must go with kind evidence")
    if kind == "paper":
        graphs = [prepare(as_graph(source)) for source in sources]
        return pretrain_structure(graphs, chosen, on_epoch=on_epoch, checkpoint=checkpoint)
    if on_epoch is not None or checkpoint is not None:
        raise InputError("on_epoch and checkpoint must go with kind paper")
    sources = [as_graph(source, split=False) for source in sources]
    for source in sources:
        known_graph(source)  # one bad graph is said now, and not after minutes
    if kind == "auditor":
        with out_of_memory_hint("pre-training the auditor", "a smaller --max-nodes"):
            return pretrain_auditor(sources, chosen, on_progress=partial(on_progress, "auditor"))
    device = resolve_device(chosen.device)
    draw_on = device if workers in (None, 1) else torch.device("cpu")  # cores are faster together
    _, map_blocks = where_to_compute("cpu", workers, None)
    where: dict[str, Any] = {"device": device, "draw_on": draw_on, "map_blocks": map_blocks}
    smaller = "a smaller --max-nodes, fewer --pairs, fewer episodes"
    with out_of_memory_hint("pre-training the evidence learner", smaller):
        return pretrain_evidence(sources, chosen, on_progress=on_progress, **where).to("cpu")
