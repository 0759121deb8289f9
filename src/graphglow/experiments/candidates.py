"""What one trial of a search trains: a competitor, or graphglow with its pre-training.

Nothing here, and nothing behind it, sees a test label: graphs come as :class:`BlindGraph`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, get_args

from graphglow.baselines import fit_many, method_named
from graphglow.baselines.method import Space
from graphglow.checks import at_least, one_of, plain_numbers
from graphglow.errors import InputError
from graphglow.experiments.blind import BlindGraph
from graphglow.experiments.runs.config import with_encoder
from graphglow.experiments.search_spaces import PRETRAIN_SPACE, TRANSFER_SPACE
from graphglow.experiments.settings import config_of, locked
from graphglow.structure import StructureLearner
from graphglow.training import PretrainConfig, TransferConfig, pretrain, transfer_many
from graphglow.training.checkpoint import learner_identity
from graphglow.training.config import LARGEST_SEED, MAY_DIFFER, Device, RunConfig
from graphglow.training.loop import OnEpoch
from graphglow.version import __version__


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


class Candidate(Protocol):
    """What is searched: a space, and validation accuracies of settings drawn from it."""

    @property
    def space(self) -> Space:
        """Values by name; a dot in a name leads into nested settings."""
        ...

    def epochs(self, settings: Mapping[str, Any]) -> int:
        """Most epochs of one trial, all its runs and its pre-training together."""
        ...

    def program(self, settings: Mapping[str, Any]) -> str:
        """The same for trials whose runs can be made together."""
        ...

    def scores(
        self, trials: Sequence[Mapping[str, Any]], on_epoch: OnEpoch | None
    ) -> list[list[float]]:
        """Validation accuracy of each run of each of some trials of one program.

        :class:`InputError` if one fails.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """What, beside space and target, makes scores comparable."""
        ...


def scores_of(
    candidate: Candidate, trials: Sequence[Mapping[str, Any]], on_epoch: OnEpoch | None
) -> list[list[float] | InputError]:
    """What comes of each trial; those of one program are made together.

    Where one fails, or they do not fit in memory together, they are made one after another.
    """
    groups: dict[str, list[int]] = {}
    for place, settings in enumerate(trials):
        groups.setdefault(candidate.program(settings), []).append(place)
    found: dict[int, list[float] | InputError] = {}
    for places in groups.values():
        try:
            scores = candidate.scores([trials[place] for place in places], on_epoch)
            found.update(zip(places, scores, strict=True))
        except InputError as error:
            if len(places) == 1:
                found[places[0]] = error
            else:
                alone = [scores_of(candidate, [trials[place]], on_epoch)[0] for place in places]
                found.update(zip(places, alone, strict=True))
    return [found[place] for place in range(len(trials))]


def _shape(config: RunConfig) -> str:
    """What the runs of one batch have in common."""
    shared = {name: v for name, v in asdict(config).items() if name not in MAY_DIFFER}
    return json.dumps(shared, sort_keys=True)


def _by_trial(scores: list[float], trials: int) -> list[list[float]]:
    runs = len(scores) // trials
    return [scores[start : start + runs] for start in range(0, len(scores), runs)]


class FitCandidate:
    """A competitor of ``METHODS`` on one graph; its runs are one program where it is batched."""

    def __init__(
        self, name: str, target: BlindGraph, config: SearchConfig, *, extra: Space | None = None
    ) -> None:
        self.name, self.target, self.config = name, target, config
        self.method = method_named(name)
        self.space: Space = {**self.method.space, **(extra or {})}

    def configs(self, settings: Mapping[str, Any]) -> list[RunConfig]:
        return [config_of(self.method.config, settings, **run) for run in self.config.runs()]

    def epochs(self, settings: Mapping[str, Any]) -> int:
        return sum(config.epochs for config in self.configs(settings))

    def program(self, settings: Mapping[str, Any]) -> str:
        return _shape(self.configs(settings)[0])

    def scores(
        self, trials: Sequence[Mapping[str, Any]], on_epoch: OnEpoch | None
    ) -> list[list[float]]:
        configs = [config for settings in trials for config in self.configs(settings)]
        results = fit_many(self.name, self.target.data, configs, on_epoch=on_epoch)
        return _by_trial([result.val_accuracy for result in results], len(trials))

    def facts(self) -> dict[str, Any]:
        return {}


class GlowCandidate:
    """GraphGLOW: pre-trained on the sources, once for each learner's setting, then transferred.

    Args:
        target: The graph to transfer to.
        config: How it is searched.
        sources: To pre-train on; none where a learner is given.
        learner: To transfer; then only the transfer's settings are searched.
        extra: What is searched of the transfer besides.
        pretrain_space: What is searched of pre-training; ``STEPS`` alone needs few learners.
        folder: Where pre-trained learners are kept for other trials, workers and reruns; None
            keeps them in memory.
    """

    def __init__(
        self,
        target: BlindGraph,
        config: SearchConfig,
        *,
        sources: Sequence[BlindGraph] = (),
        learner: StructureLearner | None = None,
        extra: Space | None = None,
        pretrain_space: Space | None = None,
        folder: Path | None = None,
    ) -> None:
        if bool(sources) == (learner is not None):
            raise InputError(
                "graphglow must have either sources to pre-train on or a learner; "
                f"got {'both' if sources else 'neither'}"
            )
        self.target, self.config = target, config
        self.sources, self.learner, self.folder = sources, learner, folder
        self.transfer_space: Space = {**TRANSFER_SPACE, **(extra or {})}
        self.pretrain_space = PRETRAIN_SPACE if pretrain_space is None else pretrain_space
        self.digests = [source.digest for source in sources]
        self._made: dict[str, StructureLearner] = {}

    @property
    def space(self) -> Space:
        space = {f"transfer.{name}": values for name, values in self.transfer_space.items()}
        if self.learner is None:
            space |= {f"pretrain.{name}": values for name, values in self.pretrain_space.items()}
        return space

    def transfers(self, settings: Mapping[str, Any]) -> list[TransferConfig]:
        given = settings["transfer"]
        return [config_of(TransferConfig, given, **run) for run in self.config.runs()]

    def pretraining(self, settings: Mapping[str, Any]) -> PretrainConfig:
        return config_of(
            PretrainConfig,
            with_encoder(settings["pretrain"], settings["transfer"]),
            epochs=self.config.pretrain_epochs,
            seed=self.config.seed,
            device=self.config.device,
        )

    def epochs(self, settings: Mapping[str, Any]) -> int:
        total = sum(config.epochs for config in self.transfers(settings))
        if self.learner is None and self._known(self.pretraining(settings)) is None:
            made = self.pretraining(settings)
            total += made.episodes * made.epochs * len(self.sources)
        return total

    def program(self, settings: Mapping[str, Any]) -> str:
        learner = "" if self.learner is not None else self._key(self.pretraining(settings))
        return learner + _shape(self.transfers(settings)[0])

    def scores(
        self, trials: Sequence[Mapping[str, Any]], on_epoch: OnEpoch | None
    ) -> list[list[float]]:
        learner = self.learner_of(trials[0], on_epoch)
        configs = [config for settings in trials for config in self.transfers(settings)]
        results = transfer_many(learner, self.target.data, configs, on_epoch=on_epoch)
        return _by_trial([result.val_accuracy for result in results], len(trials))

    def learner_of(self, settings: Mapping[str, Any], on_epoch: OnEpoch | None) -> StructureLearner:
        """The learner that a trial transfers: the one given, or one pre-trained as it asks."""
        return self.learner or self._pretrained(self.pretraining(settings), on_epoch)

    def facts(self) -> dict[str, Any]:
        if self.learner is None:
            return {"sources": self.digests, "pretrain_epochs": self.config.pretrain_epochs}
        return {"learner": learner_identity(self.learner)}

    def _pretrained(self, config: PretrainConfig, on_epoch: OnEpoch | None) -> StructureLearner:
        """The learner, made if it is not there; another process that wants the same one waits."""
        file = None if self.folder is None else self._file(config)
        with nullcontext() if file is None else locked(file):
            learner = self._known(config)
            if learner is None:
                graphs = [source.data for source in self.sources]
                learner = pretrain(graphs, config, on_epoch=on_epoch)
                if file is None:
                    self._made[self._key(config)] = learner
                else:
                    learner.save(file)
        return learner

    def _known(self, config: PretrainConfig) -> StructureLearner | None:
        if self.folder is None or not self._file(config).exists():
            return self._made.get(self._key(config))
        try:
            return StructureLearner.load(self._file(config))
        except InputError:  # damaged: it is made again
            return None

    def _file(self, config: PretrainConfig) -> Path:
        assert self.folder is not None
        return self.folder / f"{self._key(config)}.safetensors"

    def _key(self, config: PretrainConfig) -> str:
        """A fingerprint of all that a pre-trained learner is a function of."""
        settings = asdict(replace(config, device="auto"))
        whole = [__version__, settings, self.digests]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:24]
