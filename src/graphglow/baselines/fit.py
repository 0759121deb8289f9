"""The one door to every competitor: same splits, same early stopping, same clock.

graphglow fit --method gcn --target cora
"""

import difflib
import time
from collections.abc import Sequence

import torch
from torch_geometric.data import Data

from graphglow.baselines.memory import check_fits
from graphglow.baselines.method import Method
from graphglow.baselines.methods import METHODS
from graphglow.baselines.result import FitResult
from graphglow.errors import InputError
from graphglow.graphs import Graph, check_graph, graph_of
from graphglow.training.config import RunConfig, check_same_shape
from graphglow.training.device import (
    out_of_memory_says,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.training.loop import Loop, OnEpoch, of_run


def method_named(name: str) -> Method:
    """Look a method up; an unknown name is refused with the nearest known ones."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(str(name).lower(), METHODS, n=3)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    if name == "graphglow":
        hint = " (it is made of two steps: pretrain on other graphs, then transfer)"
    raise InputError(f"method must be one of {', '.join(METHODS)}; got {name!r}{hint}")


def fit(
    name: str, data: Data, config: RunConfig | None = None, *, on_epoch: OnEpoch | None = None
) -> FitResult:
    """Train a competitor on ``data``, under the protocol of :func:`graphglow.transfer`.

    The epoch with the best validation accuracy is kept, as everywhere.

    Args:
        name: A method of ``graphglow.METHODS``.
        data: The graph.
        config: The method's own settings, ``METHODS[name].config``; by default its defaults.
        on_epoch: Called after every epoch.
    """
    method = method_named(name)
    return fit_many(name, data, [method.config() if config is None else config], on_epoch=on_epoch)[
        0
    ]


def fit_many(
    name: str,
    data: Data,
    configs: Sequence[RunConfig],
    *,
    on_epoch: OnEpoch | None = None,
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
    if not isinstance(configs, Sequence):
        raise InputError(f"fit_many needs a list of configs; got {type(configs).__name__}")
    if len(configs) == 0:
        raise InputError("fit_many needs at least one config; got none")
    for config in configs:
        if type(config) is not method.config:
            raise InputError(
                f"the config of {name} must be a {method.config.__name__}; "
                f"got {type(config).__name__}"
            )
    data = check_graph(data)
    if method.batched and len(configs) > 1:
        check_same_shape(configs)
        return _train(name, method, data, configs, on_epoch)
    return [
        _train(name, method, data, [config], of_run(on_epoch, run))[0]
        for run, config in enumerate(configs)
    ]


def _train(
    name: str,
    method: Method,
    data: Data,
    configs: Sequence[RunConfig],
    on_epoch: OnEpoch | None,
) -> list[FitResult]:
    began = time.perf_counter()
    first = configs[0]
    device = resolve_device(first.device)
    graph = graph_of(data).to(device)
    reset_peak_memory(device)
    _check_memory(name, method, graph, first)
    with out_of_memory_says(_advice(name, method, graph, len(configs))):
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


def _advice(name: str, method: Method, graph: Graph, runs: int) -> str:
    at_once = f", {runs} runs at once," if runs > 1 else ""
    lighter = f"; {method.lighter} needs far less" if method.lighter else ""
    edges = (graph.adj.col.numel() - graph.num_nodes) // 2
    return (
        f"{name} must fit in memory; with these settings, {graph.num_nodes} nodes and {edges} "
        f"edges{at_once} it does not{lighter}"
    )


def _check_memory(name: str, method: Method, graph: Graph, config: RunConfig) -> None:
    if method.memory is not None:
        needed = method.memory(graph, config)
        check_fits(name, needed, graph.name, graph.y.device, method.lighter)
