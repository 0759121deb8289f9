"""What is searched: the values of each setting (Appendix C), and what one trial trains.

Nothing here, and nothing behind it, sees a test label: graphs come from :func:`blinded`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphglow.checks import at_least, one_of, plain_numbers
from graphglow.competitors import METHODS, fit_many
from graphglow.competitors.fit import FitResult
from graphglow.competitors.method import HIDDEN, Space
from graphglow.competitors.variants import BACKBONES, OBJECTIVES, PIVOT_SPACE
from graphglow.errors import InputError
from graphglow.graph import check_graph, training_graph
from graphglow.lab.paper import WIDER
from graphglow.lab.search.settings import config_of, locked
from graphglow.paper import StructureLearner
from graphglow.storage import checksum
from graphglow.training import TransferResult, pretrain, transfer_many
from graphglow.training.checkpoint import learner_identity
from graphglow.training.config import MAY_DIFFER, Device, PaperConfig, PretrainConfig, RunConfig
from graphglow.version import __version__

GLOW = "graphglow"
"""The method itself, which unlike those of ``METHODS`` needs sources or a learner."""
PRETRAIN_SPACE: Space = {
    "learner_learning_rate": (0.01, 0.1),
    "learner.embedding_size": HIDDEN,
    "learner.num_heads": (4, 6),
    "objective": OBJECTIVES["objective"],
    "episodes": (1, 2, 3),
    "refinements": PIVOT_SPACE["refinements"],
}
"""Appendix C, what makes a structure learner: theta's step (a small one leaves theta near its
random start, a large one fits it to the sources), its shape (d, H), the weights of its objective
(alpha, rho), E and T. What is a setting of both parts is searched for the transfer only: one
learner then serves many trials, as it serves all targets. The encoder is that of the target."""
TRANSFER_SPACE: Space = {n: v for n, v in PIVOT_SPACE.items() if n != "embedding_size"}
"""Appendix C, what the target's GNN is trained with; its width is the learner's d."""
OF_WIDER: Space = {**BACKBONES, "encoder": ("gcn",)}
"""On the target, beside the space of the method: the GNN too; the encoder is fixed in exchange."""

Scores = list[float] | InputError
"""Validation accuracy of each run of a trial, or why there are none."""


def blinded(data: Data) -> Data:
    """Take test nodes, and all labels but those of training and validation, out of a graph.

    What is kept is named here, one by one: a label that hides in another attribute is not. The
    number of classes is that of the labels that are left.
    """
    data = check_graph(data)
    known = data.train_mask | data.val_mask
    blind = Data(
        x=data.x,
        edge_index=data.edge_index,
        y=torch.where(known, data.y, -1),
        train_mask=data.train_mask,
        val_mask=data.val_mask,
        test_mask=torch.zeros_like(known),
        name=str(data.get("name") or "graph"),
    )
    if data.get("edge_weight") is not None:
        blind.edge_weight = data.edge_weight
    training_graph(blind)  # what no trial could train on is refused here
    return blind


def fingerprint(graph: Data) -> str:
    """Of all that a trial sees."""
    return checksum({name: value for name, value in graph.items() if torch.is_tensor(value)})[:16]


def check_methods(methods: Sequence[str], sources: Sized, learner: object) -> None:
    """Raise unless settings of these methods can be searched, graphglow with what it needs."""
    for name in methods:
        one_of("method", name, (*METHODS, GLOW, *WIDER))
    given = [len(sources) > 0, learner is not None]
    if sum(given) != any(map(has_learner, methods)):
        raise InputError(
            "graphglow must have either sources to pre-train on or a learner, and other methods "
            f"neither; got {('neither', 'one', 'both')[sum(given)]} for {', '.join(methods)}"
        )


def _base(method: str) -> str:
    return WIDER[method][0] if method in WIDER else method


def has_learner(method: str) -> bool:
    """Whether the method is graphglow, whatever of it is searched."""
    return _base(method) == GLOW


def encoded(value: Any) -> Any:
    """A value of a space as Optuna can store it: a scalar, or JSON that is the same every time."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list | tuple) else value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Stored values by dotted names as settings in settings: ``a.b`` is ``b`` of ``a``."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        inner = out
        for step in path:
            inner = inner.setdefault(step, {})
        is_json = isinstance(value, str) and value.startswith(("{", "["))
        inner[last] = json.loads(value) if is_json else value
    return out


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How settings are searched: the same budget for every method."""

    trials: int = 30
    """Different settings to try, of each method on each target; a search goes on up to so many."""
    trials_at_once: int = 1
    """Trials to draw and train together, those of one shape as one program: faster on a GPU. They
    are drawn without knowing each other's scores."""
    seeds_per_trial: int = 3
    """Runs of each trial, with seeds of their own; their mean validation accuracy counts."""
    epochs: int | None = None
    """Training epochs of each run; None takes the method's own number (500; 200 of lds)."""
    patience: int | None = 100
    """End a run after this many epochs without a better validation score; None runs them all."""
    pretrain_epochs: int = 80
    """Most epochs on one source in one visit, where graphglow is pre-trained."""
    seed: int = 0
    """Seeds the draws, the pre-training and the first run of each trial."""
    device: Device = "auto"
    """Where to compute: auto takes the GPU if there is one."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        for name in ("trials", "trials_at_once", "seeds_per_trial", "pretrain_epochs"):
            at_least(name, getattr(self, name), 1)
        RunConfig(**self.runs()[0])  # checks the rest
        RunConfig(seed=self.seed + self.seeds_per_trial - 1)

    def runs(self) -> list[dict[str, Any]]:
        """What is fixed in each run of a trial."""
        epochs = {} if self.epochs is None else {"epochs": self.epochs}
        fixed = {"patience": self.patience, "device": self.device, **epochs}
        return [{**fixed, "seed": self.seed + i} for i in range(self.seeds_per_trial)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """What is searched: a competitor on one graph; or graphglow, pre-trained and transferred."""

    method: str
    target: Data
    config: SearchConfig
    learner: StructureLearner | None = None
    """Of graphglow, to transfer: then only the transfer's settings are searched."""
    sources: Sequence[Data] = ()
    """Of graphglow, instead of a learner: to pre-train on, once for each learner's settings."""
    folder: Path | None = None
    """With sources: where learners are kept for other trials, processes and reruns."""

    @property
    def space(self) -> Space:
        """Values by name; a dot in a name leads into nested settings."""
        extra = OF_WIDER if self.method in WIDER else {}
        if not has_learner(self.method):
            return {**METHODS[_base(self.method)].space, **extra}
        space = {f"transfer.{name}": v for name, v in {**TRANSFER_SPACE, **extra}.items()}
        if self.learner is None:
            space |= {f"pretrain.{name}": values for name, values in PRETRAIN_SPACE.items()}
        return space

    @cached_property
    def study(self) -> str:
        """The same for trials that compare, whatever their number; readable at its beginning."""
        facts = [
            sorted((name, [repr(value) for value in among]) for name, among in self.space.items()),
            fingerprint(self.target),
            [{**run, "device": "auto"} for run in self.config.runs()],
            learner_identity(self.learner) if self.learner is not None else self._sources_seen,
            self.config.pretrain_epochs if self.sources else None,
        ]
        return f"{self.method} on {self.target.name} {_digest(facts)}"

    def scores(self, trials: Sequence[Mapping[str, Any]]) -> list[Scores]:
        """What comes of some trials, by their stored values, in whatever process makes them.

        Trials of one program are made together; where one fails, or they do not fit in memory
        together, they are made one after another.
        """
        programs: dict[str, list[int]] = {}
        for place, values in enumerate(trials):
            programs.setdefault(self._program(nested(values)), []).append(place)
        found: dict[int, Scores] = {}
        for places in programs.values():
            try:
                made = self._trained([nested(trials[place]) for place in places])
                found |= dict(zip(places, made, strict=True))
            except InputError as error:
                for place in places:
                    found[place] = error if len(places) == 1 else self.scores([trials[place]])[0]
        return [found[place] for place in range(len(trials))]

    def _program(self, settings: Mapping[str, Any]) -> str:
        """The same for trials whose runs can be made together."""
        shape = asdict(self._configs(settings)[0])
        if self.sources:
            shape["learner"] = self._learner_key(self._pretraining(settings))
        return json.dumps({n: v for n, v in shape.items() if n not in MAY_DIFFER}, sort_keys=True)

    def _trained(self, trials: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        """Validation accuracy of each run, by trial; all are of one program."""
        configs: list[Any] = [config for one in trials for config in self._configs(one)]
        runs: Sequence[FitResult | TransferResult]
        if has_learner(self.method):
            runs = transfer_many(self.target, self._learner_of(trials[0]), configs)
        else:
            runs = fit_many(_base(self.method), self.target, configs)
        each = self.config.seeds_per_trial
        scores = [run.val_accuracy or 0.0 for run in runs]  # there are validation nodes
        return [scores[i : i + each] for i in range(0, len(scores), each)]

    def _configs(self, settings: Mapping[str, Any]) -> list[RunConfig]:
        kind: type[RunConfig] = PaperConfig
        if not has_learner(self.method):
            kind, settings = METHODS[_base(self.method)].config, {"transfer": settings}
        return [config_of(kind, settings["transfer"], **run) for run in self.config.runs()]

    def _pretraining(self, settings: Mapping[str, Any]) -> PretrainConfig:
        encoder = {n: v for n, v in settings["transfer"].items() if n == "encoder"}  # the target's
        config, given = self.config, {**encoder, **settings["pretrain"]}
        fixed = {"epochs": config.pretrain_epochs, "seed": config.seed, "device": config.device}
        return config_of(PretrainConfig, given, **fixed)

    def _learner_of(self, settings: Mapping[str, Any]) -> StructureLearner:
        """The learner that a trial transfers: the one given, or one pre-trained as it asks.

        It is made if it is not there; another process that wants the same one waits.
        """
        if self.learner is not None:
            return self.learner
        assert self.folder is not None
        config = self._pretraining(settings)
        file = self.folder / f"{self._learner_key(config)}.safetensors"
        with locked(file):
            try:
                return StructureLearner.load(file)
            except InputError:  # new and empty, or damaged
                learner = pretrain(list(self.sources), config)
                learner.save(file)
                return learner

    def _learner_key(self, config: PretrainConfig) -> str:
        """A fingerprint of all that a pre-trained learner is a function of."""
        return _digest([asdict(replace(config, device="auto")), self._sources_seen])

    @cached_property
    def _sources_seen(self) -> list[str]:
        return [fingerprint(source) for source in self.sources]


def _digest(facts: Any) -> str:
    """Of facts and the version of graphglow."""
    text = json.dumps([__version__, facts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
