"""From a cell to the configs of its run: what is tuned, then what the cell asks for, then the rest.

Also what makes two runs the same: their configs as rows hold them, completed by today's defaults.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple, get_args

from graphglow.baselines import method_named
from graphglow.checks import at_least, one_of, plain_numbers
from graphglow.experiments.cell import Cell, by_degree
from graphglow.experiments.lines import BY_DEGREE, LATENT_DEGREE, LEARNED_ON, ON, PRETRAINED
from graphglow.experiments.search.settings import Settings, config_of
from graphglow.structure import LearnerConfig
from graphglow.training import PretrainConfig, TransferConfig
from graphglow.training.config import Device, RunConfig

PARTS = {"pretrain", "transfer"}
"""Of the settings of a method with pre-training, as ``graphglow search`` writes them."""
PRETRAIN_ONLY = {"learner", "objective", "learner_learning_rate", "episodes", "schedule"}
NOT_THE_RESULT = ("seed", "device", "capture")
"""Settings that do not make a run another one; the seed is told apart by itself."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What holds for every run."""

    epochs: int | None = None
    """Training epochs on the target; None takes each method's own number (500; 200 of lds)."""
    patience: int | None = None
    """End a run after this many epochs without a better validation score; None runs them all."""
    learners: int = 1
    """Pre-trained learners of each set of sources, which the seeds take in turn: with 1, standard
    deviations are those of the transfer; with as many as seeds, those of pre-training too."""
    pretrain_epochs: int | None = None
    """Most epochs on one source in one visit of pre-training; None takes its own number (80)."""
    device: Device = "auto"
    """Where to compute: auto takes the GPU if there is one."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        at_least("learners", self.learners, 1)
        for name in ("epochs", "patience", "pretrain_epochs"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        one_of("device", self.device, get_args(Device))


class Configs(NamedTuple):
    """Of one run: on the target, and before it on the sources."""

    run: RunConfig
    pretraining: PretrainConfig | None


def configs_of(cell: Cell, seed: int, settings: Settings, protocol: Protocol) -> Configs:
    """The configs of a cell with a seed; settings that do not exist are refused."""
    fixed: dict[str, Any] = {"seed": seed, "device": protocol.device}
    for name in ("epochs", "patience"):
        if getattr(protocol, name) is not None:
            fixed[name] = getattr(protocol, name)
    tuned = tuned_settings(cell, settings)
    if cell.method not in PRETRAINED:
        kind = method_named(cell.method).config
        return Configs(config_of(kind, merged(tuned, cell.settings), **fixed), None)
    before, after = in_parts(tuned)
    if cell.method == "graphglow-attention":
        before = merged(before, {"learner": {"similarity": "attention"}})
    early = {"seed": seed % protocol.learners, "device": protocol.device}
    if protocol.pretrain_epochs is not None:
        early["epochs"] = protocol.pretrain_epochs
    after = merged(after, cell.settings)
    before = with_encoder(merged(before, cell.pretraining), after)
    return Configs(
        config_of(TransferConfig, after, **fixed), config_of(PretrainConfig, before, **early)
    )


def tuned_settings(cell: Cell, settings: Settings) -> dict[str, Any]:
    """What the settings file has for a cell.

    Where the best settings with the learned graph on are asked for and none are known, the best;
    where lambda by degree is, those with the learned graph on and the usual c.
    """
    name = cell.tuned_as or cell.method
    own = settings.of(name, cell.target, cell.sources)
    if own:
        return own
    if name in LEARNED_ON:
        return settings.of(LEARNED_ON[name][0], cell.target, cell.sources)
    if name in BY_DEGREE:
        on = tuned_settings(replace(cell, tuned_as=ON[BY_DEGREE[name][0]]), settings)
        return with_degree(on, cell.method, LATENT_DEGREE)
    return own


def with_degree(tuned: Mapping[str, Any], method: str, latent_degree: float) -> dict[str, Any]:
    """Settings with lambda by degree in the place of one lambda."""
    if method not in PRETRAINED:
        return merged(tuned, by_degree(latent_degree))
    before, after = in_parts(tuned)
    return {"pretrain": before, "transfer": merged(after, by_degree(latent_degree))}


def with_encoder(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of pre-training: where they name no encoder, it is the transfer's."""
    return {**({"encoder": after["encoder"]} if "encoder" in after else {}), **before}


def in_parts(tuned: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of pre-training and of transfer.

    Flat ones, from a search of the same learner trained on the target, are told apart: what makes
    the learner belongs to pre-training.
    """
    if set(tuned) <= PARTS:
        return dict(tuned.get("pretrain", {})), dict(tuned.get("transfer", {}))
    of_learner = {field.name for field in fields(LearnerConfig)}
    learner = {name: value for name, value in tuned.items() if name in of_learner}
    before = {name: value for name, value in tuned.items() if name in PRETRAIN_ONLY}
    after = {n: v for n, v in tuned.items() if n not in of_learner | PRETRAIN_ONLY}
    return (merged(before, {"learner": learner}) if learner else before), after


def merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """``first`` with what ``then`` says; settings in settings are merged too."""
    out = dict(first)
    for name, value in then.items():
        both = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
        out[name] = merged(out[name], value) if both else value
    return out


def config_kind(method: str) -> type[RunConfig]:
    """The config of a method's run on the target."""
    return TransferConfig if method in PRETRAINED else method_named(method).config


def as_compared(kind: type[RunConfig], stored: Mapping[str, Any]) -> dict[str, Any]:
    """A config as two runs are compared by it.

    A setting that the stored one lacks did not exist then and counts as today's default, so that a
    new option does not make old rows foreign; one whose default has changed does.
    """
    whole = merged(_defaults(kind), stored)  # type: ignore[arg-type]
    return {name: _number(v) for name, v in whole.items() if name not in NOT_THE_RESULT}


def _number(value: Any) -> Any:
    """Numbers that are equal are the same: 1.0 becomes 1."""
    if isinstance(value, Mapping):
        return {name: _number(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache  # thousands of rows are compared, each by the same few
def _defaults(kind: type[RunConfig]) -> dict[str, Any]:
    return asdict(kind())
