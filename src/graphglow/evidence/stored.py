"""Files of a frozen prediction: what new nodes need of it, and nothing that follows from that.

Stored are edges, labels, the view ``x``, the maps of features and adjacency, the channels, and the
edges of both refined graphs. The other views are products of these, made when a file is read.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.evidence.channels import Channel
from graphglow.evidence.context import VOTED_CONTEXT
from graphglow.evidence.frozen import FrozenGraph
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.predictor import FinalRound, _carried
from graphglow.evidence.problem import Columns, Problem
from graphglow.evidence.refined import RefinedGraph
from graphglow.evidence.rounds import FirstRound, SecondRound, Voted, graph_of
from graphglow.evidence.views import link_rows, second_views, views_of
from graphglow.graph.graph import adjacency_of
from graphglow.linalg.pairs import is_edge
from graphglow.linalg.rows import LowRank, times, unit_
from graphglow.storage import load_tensors, prefixed, save_tensors, within

KIND = "prediction"
STATE_VERSION = 1
"""Of what a file holds."""
FINAL = ("of_class", "of_node", "of_graph")


def save_state(
    path: str | Path,
    frozen: FrozenGraph,
    more: dict[str, Tensor] | None = None,
    facts: dict[str, Any] | None = None,
) -> None:
    """Write a frozen prediction and its learner as one safetensors file.

    Args:
        path: Where to write; an existing file is replaced.
        frozen: What to write.
        more: Other tensors to keep in the file, by name.
        facts: Anything that JSON can hold, to keep with them.
    """
    tensors, state = state_of(frozen)
    tensors |= prefixed("more", more or {})
    save_tensors(path, KIND, tensors, {"state": state, "facts": facts or {}})


def load_state(
    path: str | Path, device: torch.device | str = "cpu"
) -> tuple[FrozenGraph, dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_state` wrote; anything else is refused in one sentence."""
    tensors, meta = load_tensors(path, KIND)
    frozen = from_state(tensors, meta.get("state"), str(path), device)
    return frozen, within("more", tensors), meta["facts"]


def state_of(frozen: FrozenGraph) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a frozen prediction by name, and what JSON can hold of it."""
    refined, problem = frozen.refined, frozen.problem
    voted = refined.known
    second, first, final = voted.second, voted.second.first, refined.final
    counts = second.weight > 0
    assert refined.probabilities is not None  # there are labels
    tensors = {
        **prefixed("learner", dict(frozen.learner.state_dict())),
        "probabilities": refined.probabilities,
        "low": problem.low, "high": problem.high, "labelled": problem.labelled,
        "classes": problem.classes, "seen": problem.seen, "x": first.views["x"],
        "first_context": first.context, "second_context": second.context,
        "context": voted.context, "first_scale": second.scale, "scale": refined.scale,
        "first_pairs": first.pairs[:, counts], "first_weight": second.weight[counts],
        "pairs": voted.pairs[:, refined.edges], "log_odds": refined.pair_log_odds[refined.edges],
        "floors_0": frozen.floors[0], "floors_1": frozen.floors[1], "stack": frozen.stack,
    }  # fmt: skip
    if problem.weight is not None:
        tensors["weight"] = problem.weight
    if problem.columns is not None:
        tensors |= {"columns": problem.columns.kept, "columns_table": problem.columns.table}
    for name, found in first.maps.items():
        if found.matrix is not None:
            tensors[f"map_{name}"] = found.matrix
    channels = {**first.channels, **second.channels, "vote": voted.vote}
    if final is not None:
        channels = final.channels
        tensors |= {name: getattr(final, name) for name in FINAL}
    for name, channel in channels.items():
        parts = {"probabilities": channel.probabilities, "scores": channel.scores}
        if channel.weight is not None:
            parts["weight"] = channel.weight
        tensors |= prefixed(f"channel.{name}", parts | prefixed("chosen", channel.chosen))
    facts = {
        "state_version": STATE_VERSION,
        "learner": frozen.learner.facts(),
        "num_nodes": problem.num_nodes,
        "num_classes": problem.num_classes,
        "columns": problem.columns and [problem.columns.words, problem.columns.width],
        "shortest": {name: found.shortest for name, found in first.maps.items()},
        "scales": [first.scales, second.scales],
        "channels": [list(first.channels), list(second.channels), list(channels)],
        "calibration": [second.calibration, refined.calibration],
        "sharpness": refined.sharpness,
        "search": first.search,
        "channel_scores": refined.channel_scores,
        "predicted": final is not None,
    }  # fmt: skip
    return tensors, facts


def from_state(
    tensors: dict[str, Tensor], facts: Any, origin: str, device: torch.device | str = "cpu"
) -> FrozenGraph:
    """Rebuild what :func:`state_of` took apart; ``origin`` names it in errors.

    Its refined graph has its edges as the only candidates, and its problem no features.
    """
    version = facts.get("state_version") if isinstance(facts, dict) else None
    if version != STATE_VERSION:
        raise InputError(
            f"{origin} must hold a prediction of state version {STATE_VERSION}; got version "
            f"{version!r} (predict again with this graphglow)"
        )
    learner = EvidenceLearner.from_tensors(within("learner", tensors), facts["learner"], origin)
    learner = learner.to(device)
    tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
    problem = _problem(tensors, facts)
    channels = {name: _channel(within(f"channel.{name}", tensors)) for name in facts["channels"][2]}
    firsts, seconds, _ = ({c: channels[c] for c in names} for names in facts["channels"])
    one, two = ({n: (s[0], s[1]) for n, s in some.items()} for some in facts["scales"])
    maps = {n: LowRank(tensors.get(f"map_{n}"), short) for n, short in facts["shortest"].items()}
    links = link_rows(problem)
    link = tensors["x"].new_zeros(problem.num_nodes, 0) if links is None else maps["link"](links)
    views = views_of(problem, tensors["x"], link)
    first = FirstRound(
        problem, views, one, firsts, tensors["first_pairs"], tensors["first_context"],
        facts["search"], maps,
    )  # fmt: skip
    graph = graph_of(first.pairs, tensors["first_weight"], problem.num_nodes)
    second = SecondRound(
        first, tensors["first_scale"], second_views(views, graph), two, seconds,
        tensors["second_context"], tensors["first_weight"], facts["calibration"][0],
    )  # fmt: skip
    voted = Voted(learner, second, channels["vote"], tensors["pairs"], tensors["context"])
    edges = torch.arange(voted.pairs.shape[1], device=problem.device)
    refined = RefinedGraph(
        edges=edges,
        probabilities=tensors["probabilities"],
        channel_scores=facts["channel_scores"],
        context=dict(zip(VOTED_CONTEXT, voted.context.tolist(), strict=True)),
        num_nodes=problem.num_nodes,
        chance=problem.chance,
        calibration=facts["calibration"][1],
        search=facts["search"],
        num_candidates=len(edges),
        pair_in_input=is_edge(problem.links, voted.pairs),
        pair_log_odds=tensors["log_odds"],
        scale=tensors["scale"],
        known=voted,
        sharpness=facts["sharpness"],
    )
    if facts["predicted"]:
        graph = refined.adjacency()
        fx = times(graph, views["x"])
        final = FinalRound(
            voted=voted, graph=graph, views={"ffx": unit_(times(graph, fx)), "fx": unit_(fx)},
            channels=channels, carried=_carried(problem, channels, graph)[0],
            **{name: tensors[name] for name in FINAL},
        )  # fmt: skip
        refined = replace(refined, final=final)
    floors = (tensors["floors_0"], tensors["floors_1"])
    return FrozenGraph(learner, refined, floors, tensors["stack"])


def _problem(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Problem:
    low, high, weight = tensors["low"], tensors["high"], tensors.get("weight")
    columns = None
    if facts["columns"] is not None:
        words, width = facts["columns"]
        columns = Columns(words, width, tensors["columns"], tensors["columns_table"])
    return Problem(
        features=None,
        adj=adjacency_of(low, high, weight, facts["num_nodes"]),
        low=low,
        high=high,
        weight=weight,
        labelled=tensors["labelled"],
        classes=tensors["classes"],
        seen=tensors["seen"],
        num_classes=facts["num_classes"],
        columns=columns,
    )


def _channel(parts: dict[str, Tensor]) -> Channel:
    return Channel(
        parts["probabilities"], parts["scores"], parts.get("weight"), within("chosen", parts)
    )
