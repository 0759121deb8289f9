"""From a cell to its run: what is tuned, then what the cell asks for, then the rest.

Also what makes two runs the same: their configs as rows hold them, completed by today's defaults.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, NamedTuple, get_args

from graphglow.checks import at_least, one_of, plain_numbers
from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.evidence.learner import EVIDENCE_VERSION
from graphglow.evidence.pretraining import EvidencePretrainConfig
from graphglow.lab.paper import EVIDENCE, LEARNED_ON, PRETRAINED
from graphglow.lab.paper.cells import Cell
from graphglow.lab.settings import Settings, config_of
from graphglow.pretrained import UNTRAINED, evidence_learner, learner_identity
from graphglow.settings import (
    LARGEST_SEED,
    Device,
    PaperConfig,
    PretrainConfig,
    RunConfig,
    TransferConfig,
)
from graphglow.workers.executor import ray_address

TargetConfig = RunConfig | TransferConfig
SourceConfig = PretrainConfig | EvidencePretrainConfig
NOT_THE_RESULT = ("seed", "device", "capture")
"""Settings that do not make a run another one; the seed is told apart by itself."""


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
    """How the cells of experiments are run."""

    seeds: int = 5
    """Runs of each cell, with seeds that follow each other; one where only the time counts."""
    seed: int = 0
    """The first of these seeds."""
    epochs: int | None = None
    """Training epochs on the target; None takes each method's own number (500; 200 of lds and
    under evidence learners)."""
    patience: int | None = None
    """End a run after this many epochs without a better validation score; None runs them all
    (under evidence learners: 50)."""
    learners: int = 1
    """Pre-trained learners of each set of sources, which the seeds take in turn: with 1, standard
    deviations are those of the transfer; with as many as seeds, those of pre-training too."""
    pretrain_epochs: int | None = None
    """Most epochs on one source in one visit of the paper's pre-training; None takes its own number
    (80)."""
    device: Device = "auto"
    """Where to compute: auto takes the GPU if there is one."""
    batch_seeds: bool = False
    """Train the seeds of a cell as one program where the method allows it: faster on a GPU."""
    retry_failed: bool = False
    """Make runs again that failed before (out of memory, a loss that is not finite)."""
    executor: str = "local"
    """Where runs are made: local, in processes of this machine; ray, on the Ray cluster that this
    machine has, or one that is started for it; ray:ADDRESS, on a cluster elsewhere (ray:auto,
    ray:10.0.0.1:6379, ray:ray://host:10001). A worker that dies is replaced, and rows are written
    here, once. Needs Ray: pip install "graphglow[ray]"."""
    processes: int | None = None
    """Runs at the same time, each in a process of its own; None: one per core, one on a GPU; with
    ray, one per CPU of the cluster, or per GPU."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        at_least("seed", self.seed, 0)
        for name in ("seeds", "learners", "epochs", "patience", "pretrain_epochs", "processes"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        if self.seed + self.seeds - 1 > LARGEST_SEED:
            raise InputError(f"seeds must be <= {LARGEST_SEED}; got {self.seed} for the first")
        one_of("device", self.device, get_args(Device))
        ray_address(self.executor)


class Run(NamedTuple):
    """A cell with one seed: its config on the target, and before it on the sources."""

    cell: Cell
    config: TargetConfig
    pretraining: SourceConfig | None

    def facts(self) -> dict[str, Any]:
        """What a row says of its run before it is made: all that the result is a function of."""
        cell = self.cell
        before: dict[str, Any] = asdict(self.pretraining) if self.pretraining else {}
        if cell.method in EVIDENCE:
            before |= _evidence_facts(EVIDENCE[cell.method])
        return {
            "method": cell.method,
            "sources": cell.sources,
            "target": cell.target,
            "split": cell.split,
            "seed": self.config.seed,
            "damage": cell.damage._asdict() if cell.damage else None,
            "observe_every": cell.observe_every,
            "config": asdict(self.config),
            "pretraining": before,
        }


@cache  # every run asks
def _evidence_facts(name: str) -> dict[str, Any]:
    """What a result depends on of an evidence learner, beside the settings of its pre-training.

    The package's says which it is and how it was made; the untrained one, whose weights are drawn
    by the run's seed, has the scale of that one's log-odds.
    """
    facts: dict[str, Any] = {"evidence_version": EVIDENCE_VERSION}
    if not name:
        return facts
    learner = evidence_learner(name)
    if name == UNTRAINED:
        return facts | {"logit_scale": learner.logit_scale.tolist()}
    made, identity = learner.provenance, learner_identity(learner)
    return {**made["config"], **facts, "sources": made["sources"], "identity": identity}


def run_of(cell: Cell, seed: int, settings: Settings, config: ReproduceConfig) -> Run:
    """The run of a cell with a seed; settings that do not exist are refused."""
    fixed: dict[str, Any] = {"seed": seed, "device": config.device}
    given = {"epochs": config.epochs, "patience": config.patience}
    fixed |= {name: value for name, value in given.items() if value is not None}
    kind = config_kind(cell.method)
    early: dict[str, Any] = {"seed": seed % config.learners, "device": config.device}
    if cell.method in EVIDENCE:  # nothing is tuned
        source = EvidencePretrainConfig
        lesson = config_of(source, cell.pretraining, **early) if cell.sources else None
        return Run(cell, config_of(kind, cell.settings, **fixed), lesson)
    tuned = tuned_settings(cell, settings)
    if cell.method not in PRETRAINED:
        return Run(cell, config_of(kind, merged(tuned, cell.settings), **fixed), None)
    before = merged(tuned.get("pretrain", {}), cell.pretraining)
    after = merged(tuned.get("transfer", {}), cell.settings)
    if "encoder" in after:
        before = {"encoder": after["encoder"], **before}
    if cell.method == "graphglow-attention":
        before = merged(before, {"learner": {"similarity": "attention"}})
    if config.pretrain_epochs is not None:
        early["epochs"] = config.pretrain_epochs
    return Run(cell, config_of(kind, after, **fixed), config_of(PretrainConfig, before, **early))


def tuned_settings(cell: Cell, settings: Settings) -> dict[str, Any]:
    """Those for a cell; the best, where none are known in which the learned graph takes part."""
    name = cell.tuned_as or cell.method
    own = settings.of(name, cell.target, cell.sources)
    usual = LEARNED_ON.get(name, (name, ""))[0]
    return own or settings.of(usual, cell.target, cell.sources)


def merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """``first`` with what ``then`` says; settings in settings are merged too."""
    out = dict(first)
    for name, value in then.items():
        both = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
        out[name] = merged(out[name], value) if both else value
    return out


def config_kind(method: str) -> type[TargetConfig]:
    """The config of a method's run on the target; of a method of others, what all have."""
    if method in EVIDENCE:
        return TransferConfig
    if method in PRETRAINED:
        return PaperConfig
    return METHODS[method].config if method in METHODS else RunConfig


def source_kind(method: str) -> type[SourceConfig]:
    """The config of a method's pre-training."""
    return EvidencePretrainConfig if method in EVIDENCE else PretrainConfig


def as_compared(
    kind: type[TargetConfig | SourceConfig], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """A config as two runs are compared by it.

    A setting that the stored one lacks did not exist then and counts as today's default, so that a
    new option does not make old rows foreign; one whose default has changed does.
    """
    stored = {name: value for name, value in stored.items() if name in _defaults(kind)}
    whole = merged(_defaults(kind), stored)  # type: ignore[arg-type]
    return {name: _number(v) for name, v in whole.items() if name not in NOT_THE_RESULT}


def _number(value: Any) -> Any:
    """Numbers that are equal are the same: 1.0 becomes 1."""
    if isinstance(value, Mapping):
        return {name: _number(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache  # thousands of rows are compared, each by the same few
def _defaults(kind: type[TargetConfig | SourceConfig]) -> dict[str, Any]:
    return asdict(kind())
