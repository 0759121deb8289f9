"""``fit``: every competitor on the same splits, with the same early stopping and the same clock."""

import time
from dataclasses import dataclass
from typing import Any

from graphglow.competitors import cpgnn, idgl, lds, vgcn
from graphglow.competitors.baselines import CONTROLS, PLAIN_GNNS
from graphglow.competitors.method import Method
from graphglow.competitors.variants import VARIANTS
from graphglow.device import (
    check_fits,
    out_of_memory_hint,
    peak_memory_bytes,
    reset_peak_memory,
    resolve_device,
)
from graphglow.errors import InputError, one_of, with_settings
from graphglow.gnn.train import Loop, OnEpoch
from graphglow.graph import as_graph, check_graph, training_graph
from graphglow.result import RunResult
from graphglow.settings import RunConfig

__all__ = ["METHODS", "FitResult", "Method", "fit", "method_named"]


METHODS: dict[str, Method] = {
    **PLAIN_GNNS,
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
    method = method_named(name)
    config = with_settings(method.config() if config is None else config, settings)
    if type(config) is not method.config:
        raise InputError(
            f"the config of {name} must be a {method.config.__name__}; got {type(config).__name__}"
        )
    data = check_graph(as_graph(data))
    began = time.perf_counter()
    device = resolve_device(config.device)
    graph = training_graph(data).to(device)
    reset_peak_memory(device)
    if method.pair_bytes:
        needed = method.pair_bytes * graph.num_nodes**2
        check_fits(name, needed, graph.name, device, "; idgl-anchor needs far less")
    size = f"{graph.num_nodes} nodes and {len(graph.low)} edges"
    with out_of_memory_hint(f"{name} on {size}", "another method, a smaller graph"):
        task = method.build(graph, config)
        train_began = time.perf_counter()
        history = Loop(task, config.epochs, config.patience).run(on_epoch)
        train_seconds = time.perf_counter() - train_began
        logits = task.logits().cpu()
    return FitResult(
        data=data,
        graph=task.graph,
        method=name,
        backbone=getattr(config, "backbone", method.backbone),
        config=config,
        logits=logits,
        history=history,
        train_seconds=train_seconds,
        seconds=time.perf_counter() - began,
        peak_memory_bytes=peak_memory_bytes(device),
    )
