"""The one door to every competitor: same splits, same early stopping, same clock.

A competitor is a line of :data:`METHODS`, which the doors and the tests walk. What is known of a
method, its search space among it, stands beside its code.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import one_of, with_settings
from graphglow.competitors import cpgnn, idgl, lds, vgcn
from graphglow.competitors.gnns import CONTROLS, PURE_GNNS
from graphglow.competitors.method import Method
from graphglow.competitors.variants import VARIANTS
from graphglow.errors import InputError
from graphglow.graph import as_graph, check_graph, training_graph
from graphglow.settings import LearnerConfig, RunConfig, delta_facts
from graphglow.training.device import (
    check_fits,
    out_of_memory_says,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.training.loop import Loop, OnEpoch, of_run
from graphglow.training.result import RunResult
from graphglow.training.runs import check_same_shape

METHODS: dict[str, Method] = {
    **PURE_GNNS,
    "cpgnn": cpgnn.METHOD,
    **CONTROLS,
    "lds": lds.METHOD,
    "idgl": idgl.METHOD,
    "idgl-anchor": idgl.ANCHOR_METHOD,
    "vgcn": vgcn.METHOD,
    **VARIANTS,
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FitResult(RunResult):
    """A competitor's predictions at its best epoch."""

    method: str
    backbone: str | None
    config: RunConfig
    logits: Tensor
    """[N, C], on the CPU."""
    device: str

    def _scores(self) -> Tensor:
        return self.logits

    def _about(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "backbone": self.backbone,
            **delta_facts(getattr(self.config, "delta", LearnerConfig.delta)),
            "device": self.device,
            "seed": self.config.seed,
        }


def method_named(name: str) -> Method:
    """Look a method up; an unknown name is refused, with the nearest."""
    if name == "graphglow":
        raise InputError(
            "method must be a competitor; got 'graphglow' (pretrain on other graphs, then transfer)"
        )
    one_of("method", name, METHODS)
    return METHODS[name]


def fit(
    name: str,
    data: Any,
    config: RunConfig | None = None,
    *,
    on_epoch: OnEpoch | None = None,
    **settings: Any,
) -> FitResult:
    """Train a competitor on ``data``, under the protocol of :func:`graphglow.transfer`.

    Args:
        name: A method of ``graphglow.METHODS``.
        data: The graph: a ``Data``, or anything else that :func:`load_graph` takes.
        config: The method's own settings, ``METHODS[name].config``; by default its defaults.
        on_epoch: Called after every epoch.
        settings: Settings by name, which go before those of ``config``.
    """
    chosen = with_settings(method_named(name).config() if config is None else config, settings)
    return fit_many(name, data, [chosen], on_epoch=on_epoch)[0]


def fit_many(
    name: str, data: Any, configs: Sequence[RunConfig], *, on_epoch: OnEpoch | None = None
) -> list[FitResult]:
    """Train a competitor several times, as one batched program where the method allows it.

    The runs of a batch may differ in seed, learning rate, weight decay, dropout and, with a learned
    structure, lambda and momentum. Times of a batch are those of the whole.

    Args:
        name: As in :func:`fit`.
        data: The graph of all runs.
        configs: One per run.
        on_epoch: Called for every epoch of every run.
    """
    method = method_named(name)
    if not isinstance(configs, Sequence) or len(configs) == 0:
        raise InputError(f"fit_many needs a list of one or more configs; got {configs!r}")
    for config in configs:
        if type(config) is not method.config:
            raise InputError(
                f"the config of {name} must be a {method.config.__name__}; "
                f"got {type(config).__name__}"
            )
    data = check_graph(as_graph(data))
    if method.batched and len(configs) > 1:
        check_same_shape(configs)
        return _train(name, data, configs, on_epoch)
    return [
        _train(name, data, [config], of_run(on_epoch, run))[0] for run, config in enumerate(configs)
    ]


def _train(
    name: str, data: Data, configs: Sequence[RunConfig], on_epoch: OnEpoch | None
) -> list[FitResult]:
    method = METHODS[name]
    began = time.perf_counter()
    first = configs[0]
    device = resolve_device(first.device)
    graph = training_graph(data).to(device)
    reset_peak_memory(device)
    advice = f"; {method.lighter} needs far less" if method.lighter else ""
    if method.memory is not None:
        check_fits(name, method.memory(graph, first), graph.name, device, advice)
    at_once = f", {len(configs)} runs at once," if len(configs) > 1 else ""
    edges = (graph.adj.col.numel() - graph.num_nodes) // 2
    with out_of_memory_says(
        f"{name} must fit in memory; with these settings, {graph.num_nodes} nodes and {edges} "
        f"edges{at_once} it does not{advice}"
    ):
        task = method.build(graph, configs)
        loop = Loop(task, first.epochs, first.patience or first.epochs)
        train_began = time.perf_counter()
        histories = loop.run(on_epoch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        train_seconds = time.perf_counter() - train_began
        logits = task.logits().cpu()
    return [
        FitResult(
            data=data,
            graph=task.graph,
            method=name,
            backbone=getattr(config, "backbone", method.backbone),
            config=config,
            logits=logits if len(configs) == 1 else logits[run],
            history=histories[run],
            train_seconds=train_seconds,
            seconds=time.perf_counter() - began,
            peak_memory_bytes=peak_memory_bytes(device),
            device=device.type,
        )
        for run, config in enumerate(configs)
    ]
