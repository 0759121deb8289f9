"""Algorithm 3 on a graph that no single machine need hold.

graphglow shard GRAPH --out FOLDER --parts 2
torchrun --nproc-per-node 2 -m graphglow transfer --learner paper --target FOLDER
"""

import copy
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphglow.gnn import Backbone
from graphglow.graphs.files import one_sentence
from graphglow.storage import atomic_path, checksum
from graphglow.structure import StructureLearner
from graphglow.structure.config import delta_facts
from graphglow.training.checkpoint import Checkpoints, graph_identity, held, learner_identity
from graphglow.training.config import PaperConfig
from graphglow.training.device import memory_advice, peak_memory_bytes, reset_peak_memory
from graphglow.training.distributed.agreement import (
    agree,
    anyone_saves,
    begin_together,
    settings_of,
    together,
)
from graphglow.training.distributed.graph_arrays import save_array
from graphglow.training.distributed.ranks import Ranks
from graphglow.training.distributed.shard import Shard
from graphglow.training.distributed.task import ShardTask
from graphglow.training.loop import Epoch, Loop, OnEpoch

PREDICTIONS = re.compile(r"(?:nodes|probabilities)-(\d+)\.npy")
"""What ranks call the files of their predictions."""


@dataclass(frozen=True, eq=False, repr=False)
class ShardResult:
    """What a transfer across ranks gives to each: the GNN, all scores, and its nodes' logits.

    Shapes:
        logits [N_r, C], in the order of ``shard.nodes``
    """

    shard: Shard
    config: PaperConfig
    learner: StructureLearner
    gnn: Backbone
    logits: Tensor
    ranks: Ranks
    history: list[Epoch]
    val_accuracy: float
    test_accuracy: float | None
    message_backend: str
    train_seconds: float
    seconds: float
    peak_memory_bytes: int
    """The most that any rank had in use."""
    bytes_sent: int
    """By this rank, in training."""

    def predict_proba(self) -> Tensor:
        """Class probabilities of the rank's own nodes: [N_r, C]."""
        return self.logits.softmax(dim=1).cpu()

    def write_predictions(self, folder: str | Path) -> None:
        """Write the own nodes' numbers and class probabilities as arrays, a file pair per rank.

        ``nodes-RANK.npy`` [N_r] and ``probabilities-RANK.npy`` [N_r, C]; each rank its own. All
        ranks call this, and a failure of one ends it on all. When all files are whole, those of
        ranks that this job does not have are removed: they are of another.
        """
        folder = Path(folder)
        tensors = {"nodes": self.shard.nodes.cpu(), "probabilities": self.predict_proba()}
        with together(self.ranks):
            for name, tensor in tensors.items():
                with atomic_path(folder / f"{name}-{self.ranks.rank}.npy") as temporary:
                    save_array(temporary, [tensor.numpy()], len(tensor))
        with (
            together(self.ranks),
            one_sentence(f"predictions of an older run in {folder} must be removable"),
        ):
            for path in folder.iterdir():
                match = PREDICTIONS.fullmatch(path.name)
                if match is not None and int(match[1]) >= self.ranks.size:
                    path.unlink(missing_ok=True)  # another rank may have been faster

    @property
    def method(self) -> str:
        if not self.learner.config.weighted:
            return f"graphglow-{self.learner.config.similarity}"
        return "graphglow" if self.learner.provenance.get("trained") else "random-theta"

    def summary(self) -> dict[str, Any]:
        """The facts of the run, as those of a transfer in one process; the same on every rank."""
        return {
            "target": self.shard.graph.name,
            "method": self.method,
            "backbone": self.config.backbone,
            **delta_facts(self.learner.config.delta),
            "test_accuracy": self.test_accuracy,
            "val_accuracy": self.val_accuracy,
            "epochs": len(self.history),
            "train_seconds": self.train_seconds,
            "total_seconds": self.seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "message_backend": self.message_backend,
            "device": self.ranks.device.type,
            "seed": self.config.seed,
            "ranks": self.ranks.size,
        }


def transfer_shard(
    learner: StructureLearner,
    shard: Shard,
    config: PaperConfig,
    ranks: Ranks,
    *,
    on_epoch: OnEpoch | None = None,
    pivots: Tensor | None = None,
    checkpoints: Checkpoints | None = None,
) -> ShardResult:
    """Train one GNN on a graph spread over ranks, under a frozen learner; all ranks call this.

    Gives what one rank gives with the same seed, up to rounding. A transfer in one process draws
    other masks and pivots from the same seed; without dropout and with its pivots, fixed, the two
    agree.

    Args:
        learner: Copied, and frozen.
        shard: This rank's part (:func:`read_shard`).
        config: Model and schedule; ``device`` is passed over, the ranks have one.
        ranks: This rank and the others (:func:`join`).
        on_epoch: Called after every epoch, on the ranks that give one.
        pivots: Of evaluation, as node numbers [P]; by default drawn.
        checkpoints: Rank 0's is where the run saves itself, to go on from there, on the same
            number of ranks, if it is killed; the others may give None, and see no file of it.
            Times are then sums over the parts of the run.
    """
    graph, device = shard.graph, ranks.device
    counts = (shard.num_nodes, shard.train_count, shard.val_count, shard.test_count)
    facts = {
        "job": "transfer",
        **settings_of(config),
        "learner": learner_identity(learner),
        "graph": [graph.name, *counts, graph.num_features, graph.num_classes],
    }
    agree(ranks, facts)
    began = time.perf_counter()
    learner = copy.deepcopy(learner).to(device).requires_grad_(False).eval()
    reset_peak_memory(device)
    with held(checkpoints if ranks.rank == 0 else None), memory_advice(len(shard.nodes), config):
        task = ShardTask(shard, learner, config, ranks, pivots=pivots)
        loop = Loop(task, config.epochs, config.patience or config.epochs)
        before = _save_in(checkpoints, task, loop)
        sent, train_began = ranks.traffic.sent, time.perf_counter() - before
        (history,) = loop.run(on_epoch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        train_seconds = time.perf_counter() - train_began
        bytes_sent = int(ranks.traffic.sent - sent)
        final = task.evaluate()
    logits, structure = final.logits, final.structure
    assert structure is not None  # there is a learner
    hits = logits.argmax(-1) == graph.y
    right = torch.stack([hits[graph.val].sum(), hits[graph.test].sum()])
    val_right, test_right = ranks.total(right).tolist()
    peak = torch.tensor(peak_memory_bytes(device), device=device)
    return ShardResult(
        shard=shard,
        config=config,
        learner=learner,
        gnn=task.gnn.requires_grad_(False).eval(),
        logits=logits,
        ranks=ranks,
        history=history,
        val_accuracy=val_right / shard.val_count,
        test_accuracy=test_right / shard.test_count if shard.test_count else None,
        message_backend=structure.chosen_backend,
        train_seconds=train_seconds,
        seconds=time.perf_counter() - began + before,
        peak_memory_bytes=int(ranks.gather(peak).max()),
        bytes_sent=bytes_sent,
    )


def _save_in(checkpoints: Checkpoints | None, task: ShardTask, loop: Loop) -> float:
    """Let rank 0 save the run, which is the same on all, and let all go on where it was.

    Return the seconds that it took so far.
    """
    ranks, shard = task.ranks, task.shard
    if not anyone_saves(checkpoints, ranks):
        return 0.0
    contents = ranks.texts(checksum({"nodes": shard.nodes}, graph_identity(shard.graph))[:16])
    run = {
        "command": "transfer across ranks",
        "config": asdict(task.config) | {"device": ranks.device.type},
        "learner": learner_identity(task.learner),
        "graph": {"name": shard.graph.name, "parts": contents},
        "pivots": checksum({"pivots": task.pivots.nodes})[:16],
        "ranks": ranks.size,
    }
    found = begin_together(
        checkpoints, run, ranks, lambda saved: saved.restore({"task": task, "loop": loop})
    )
    if checkpoints is not None and ranks.rank == 0:
        loop.on_read = lambda now: checkpoints.offer({"task": task, "loop": now})
    return 0.0 if found is None else float(found.facts["seconds"])
