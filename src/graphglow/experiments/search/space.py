"""What is searched: the values of each setting (Appendix C), and what one trial trains.

Nothing here, and nothing behind it, sees a test label: graphs come as :class:`BlindGraph`.
"""

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

from graphglow.baselines import METHODS, fit_many
from graphglow.baselines.fit import FitResult
from graphglow.baselines.method import HIDDEN, Space
from graphglow.baselines.variants import BACKBONES, OBJECTIVES, PIVOT_SPACE
from graphglow.checks import at_least, one_of, plain_numbers
from graphglow.errors import InputError
from graphglow.experiments.paper import WIDER
from graphglow.experiments.search.blind import BlindGraph
from graphglow.experiments.search.settings import config_of, locked
from graphglow.structure import StructureLearner
from graphglow.training import (
    PretrainConfig,
    TransferConfig,
    TransferResult,
    pretrain,
    transfer_many,
)
from graphglow.training.config import LARGEST_SEED, Device, RunConfig
from graphglow.training.run_identity import learner_identity
from graphglow.training.runs import MAY_DIFFER
from graphglow.version import __version__

GLOW = "graphglow"
"""The method itself, which unlike those of ``METHODS`` needs sources or a learner."""
STEPS: Space = {"learner_learning_rate": (0.01, 0.1)}
"""The step size of theta, the one setting of pre-training that moves targets by much: a small one
leaves theta near its random start, a large one fits it to the sources."""
PRETRAIN_SPACE: Space = {
    **STEPS,
    "learner.embedding_size": HIDDEN,
    "learner.num_heads": (4, 6),
    "objective": OBJECTIVES["objective"],
    "episodes": (1, 2, 3),
    "refinements": PIVOT_SPACE["refinements"],
}
"""Appendix C, what makes a structure learner: its shape (d, H), the weights of its objective
(alpha, rho; a frozen learner has none), theta's step, E, and T. The GNN's learning rate, dropout,
lambda, P and the tolerance are settings of both parts. Here the transfer's are searched, and
pre-training keeps its defaults: one learner then serves all trials that differ in them only, as it
serves all targets. The encoder is that of the target.
"""
TRANSFER_SPACE: Space = {n: v for n, v in PIVOT_SPACE.items() if n != "embedding_size"}
"""Appendix C, what the target's GNN is trained with; its width is the learner's d."""
OF_WIDER: Space = {**BACKBONES, "encoder": ("gcn",)}
"""On the target, beside the space of the method: the GNN too; the encoder is fixed in exchange."""


def check_methods(methods: Sequence[str], sources: Sized, learner: object) -> None:
    """Raise unless settings of these methods can be searched, graphglow with what it needs."""
    known = [*METHODS, GLOW, *WIDER]
    for name in methods:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f" (did you mean {' or '.join(near)}?)" if near else ""
            raise InputError(f"method must be one of {', '.join(known)}; got {name!r}{hint}")
    glow, given = any(map(has_learner, methods)), (len(sources) > 0, learner is not None)
    if glow and all(given) == any(given):
        raise InputError(
            "graphglow must have either sources to pre-train on or a learner; "
            f"got {'both' if all(given) else 'neither'}"
        )
    if not glow and any(given):
        what = "sources" if given[0] else "a learner"
        raise InputError(f"{what} must go with the method graphglow; got {', '.join(methods)}")


def base_and_extra(name: str) -> tuple[str, Space]:
    """The method that a search of this name is of, and what is searched besides."""
    return (WIDER[name][0], OF_WIDER) if name in WIDER else (name, {})


def has_learner(method: str) -> bool:
    """Whether the method is graphglow, whatever of it is searched."""
    return base_and_extra(method)[0] == GLOW


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
        inner[last] = json.loads(value) if str(value).startswith(("{", "[")) else value
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
        for name in ("epochs", "patience"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, 0)
        if self.seed + self.seeds_per_trial - 1 > LARGEST_SEED:
            raise InputError(f"seeds must be <= {LARGEST_SEED}; got {self.seed} for the first")
        one_of("device", self.device, get_args(Device))

    def runs(self) -> list[dict[str, Any]]:
        """What is fixed in each run of a trial."""
        fixed: dict[str, Any] = {"patience": self.patience, "device": self.device}
        if self.epochs is not None:
            fixed["epochs"] = self.epochs
        return [{**fixed, "seed": self.seed + run} for run in range(self.seeds_per_trial)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """What is searched: a competitor on one graph; or graphglow, pre-trained and transferred."""

    method: str
    target: BlindGraph
    config: SearchConfig
    learner: StructureLearner | None = None
    """Of graphglow, to transfer: then only the transfer's settings are searched."""
    sources: Sequence[BlindGraph] = ()
    """Of graphglow, instead of a learner: to pre-train on, once for each learner's settings."""
    folder: Path | None = None
    """With sources: where learners are kept for other trials, processes and reruns."""
    pretrain_space: Space | None = None
    """What is searched of pre-training, if not all; ``STEPS`` alone needs few learners."""

    @property
    def space(self) -> Space:
        """Values by name; a dot in a name leads into nested settings."""
        base, extra = base_and_extra(self.method)
        if base != GLOW:
            return {**METHODS[base].space, **extra}
        space = {f"transfer.{name}": v for name, v in {**TRANSFER_SPACE, **extra}.items()}
        if self.learner is None:
            before = PRETRAIN_SPACE if self.pretrain_space is None else self.pretrain_space
            space |= {f"pretrain.{name}": values for name, values in before.items()}
        return space

    def scores(self, trials: Sequence[Mapping[str, Any]]) -> list[list[float] | InputError]:
        """Validation accuracies of each trial's runs, or why it has none.

        Trials of one program are made together; where one fails, or they do not fit in memory
        together, they are made one after another.
        """
        groups: dict[str, list[int]] = {}
        for place, settings in enumerate(trials):
            groups.setdefault(self._program(settings), []).append(place)
        found: dict[int, list[float] | InputError] = {}
        for places in groups.values():
            try:
                made = self._trained([trials[place] for place in places])
                runs = self.config.seeds_per_trial
                found |= {p: made[i * runs : (i + 1) * runs] for i, p in enumerate(places)}
            except InputError as error:
                for place in places:
                    found[place] = error if len(places) == 1 else self.scores([trials[place]])[0]
        return [found[place] for place in range(len(trials))]

    def _program(self, settings: Mapping[str, Any]) -> str:
        """The same for trials whose runs can be made together."""
        shape = asdict(self._configs(settings)[0])
        if self.sources:
            shape["learner"] = self._key(self.pretraining(settings))
        return json.dumps({n: v for n, v in shape.items() if n not in MAY_DIFFER}, sort_keys=True)

    def _trained(self, trials: Sequence[Mapping[str, Any]]) -> list[float]:
        """Validation accuracy of each run of trials of one program, trial by trial."""
        configs: list[Any] = [config for one in trials for config in self._configs(one)]
        runs: Sequence[FitResult | TransferResult]
        if has_learner(self.method):
            runs = transfer_many(self.learner_of(trials[0]), self.target.data, configs)
        else:
            runs = fit_many(base_and_extra(self.method)[0], self.target.data, configs)
        return [run.val_accuracy for run in runs]

    def _configs(self, settings: Mapping[str, Any]) -> list[RunConfig]:
        kind = METHODS.get(base_and_extra(self.method)[0])
        if kind is None:
            runs = self.config.runs()
            return [config_of(TransferConfig, settings["transfer"], **run) for run in runs]
        return [config_of(kind.config, settings, **run) for run in self.config.runs()]

    def pretraining(self, settings: Mapping[str, Any]) -> PretrainConfig:
        encoder = {n: v for n, v in settings["transfer"].items() if n == "encoder"}  # the target's
        return config_of(
            PretrainConfig,
            {**encoder, **settings["pretrain"]},
            epochs=self.config.pretrain_epochs,
            seed=self.config.seed,
            device=self.config.device,
        )

    def learner_of(self, settings: Mapping[str, Any]) -> StructureLearner:
        """The learner that a trial transfers: the one given, or one pre-trained as it asks.

        It is made if it is not there; another process that wants the same one waits.
        """
        if self.learner is not None:
            return self.learner
        assert self.folder is not None
        config = self.pretraining(settings)
        file = self.folder / f"{self._key(config)}.safetensors"
        with locked(file):
            try:
                return StructureLearner.load(file)
            except InputError:  # new and empty, or damaged
                learner = pretrain([source.data for source in self.sources], config)
                learner.save(file)
                return learner

    def facts(self) -> dict[str, Any]:
        """What, beside space and target, makes scores comparable."""
        if self.learner is not None:
            return {"learner": learner_identity(self.learner)}
        digests = [source.digest for source in self.sources]
        return (
            {"sources": digests, "pretrain_epochs": self.config.pretrain_epochs} if digests else {}
        )

    def _key(self, config: PretrainConfig) -> str:
        """A fingerprint of all that a pre-trained learner is a function of."""
        settings = asdict(replace(config, device="auto"))
        whole = [__version__, settings, [source.digest for source in self.sources]]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:24]
