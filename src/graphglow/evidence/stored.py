"""Files of a frozen prediction: what new nodes need of it, and nothing that follows from that.

Stored are edges, labels, the views ``x`` and ``link``, the maps to them, the channels, and the
edges of both refined graphs. The other views are products of these, made when a file is read.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.evidence.channels import Channel
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.new_nodes import FrozenGraph
from graphglow.evidence.predictor import FinalRound, _carried
from graphglow.evidence.refined import RefinedGraph
from graphglow.evidence.rounds import GraphEvidence, adjacency_over
from graphglow.evidence.views import second_views, views_of
from graphglow.graph.feature_rows import FeatureEncoder
from graphglow.graph.graph import Graph
from graphglow.linalg.pairs import is_edge
from graphglow.linalg.rows import LowRank, times, unit_
from graphglow.storage import load_tensors, prefixed, save_tensors, within

KIND = "prediction"
STATE_VERSION = 2
"""Of what a file holds."""
GRAPH = ("low", "high", "weight", "y", "train")
KNOWN = ("context", "first_scale")
REFINED = ("scale", "probabilities")
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
    refined, known, graph = frozen.refined, frozen.known, frozen.graph
    final, learner, first = refined.final, known.learner, known.first_weight
    kept = torch.zeros_like(refined.pair_in_input)  # pairs that are edges of either graph
    kept[refined.edges] = True
    kept[: len(first)] |= first > 0
    assert learner is not None
    tensors: dict[str, Tensor | None] = {
        **prefixed("learner", dict(learner.state_dict())),
        **prefixed("more", more or {}),
        **prefixed("floor", {str(i): floor for i, floor in enumerate(frozen.floors)}),
        **{name: getattr(graph, name) for name in GRAPH},
        **{name: getattr(known, name) for name in KNOWN},
        **{name: getattr(refined, name) for name in REFINED},
        **{name: getattr(final, name) for name in FINAL if final is not None},
        **{f"map.{name}": found.matrix for name, found in known.maps.items()},
        "x": known.views["x"],
        "link": known.views["link"],
        "pairs": known.pairs[:, kept],
        "first_weight": first[kept[: len(first)]],
        "edges": kept.cumsum(0)[refined.edges] - 1,
        "log_odds": refined.pair_log_odds[kept],
    }
    if graph.encoder is not None:
        tensors |= {"columns": graph.encoder.kept, "columns_table": graph.encoder.table}
    for name, channel in refined.channels.items():
        parts = {"probabilities": channel.probabilities, "scores": channel.scores}
        weight = {} if channel.weight is None else {"weight": channel.weight}
        tensors |= prefixed(f"channel.{name}", parts | weight | prefixed("chosen", channel.chosen))
    state = {
        "state_version": STATE_VERSION,
        "learner": learner.facts(),
        "num_classes": graph.num_classes,
        "columns": graph.encoder and [graph.encoder.words, graph.encoder.width],
        "shortest": {name: found.shortest for name, found in known.maps.items()},
        "moments": known.moments,
        "known_channels": list(known.channels),
        "channels": list(refined.channels),
        "calibration": [known.first_calibration, refined.calibration],
        "sharpness": refined.sharpness,
        "search": known.search,
    }
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_tensors(path, KIND, given, {"state": state, "facts": facts or {}})


def load_state(
    path: str | Path, device: torch.device | str = "cpu"
) -> tuple[FrozenGraph, dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_state` wrote; anything else is refused in one sentence.

    Its candidates are the edges of both refined graphs alone, and its graph has no features.
    """
    tensors, meta = load_tensors(path, KIND)
    state: dict[str, Any] = meta.get("state") or {}
    version = state.get("state_version")
    if version != STATE_VERSION:
        raise InputError(
            f"{path} must hold a prediction of state version {STATE_VERSION}; got version "
            f"{version!r} (predict again with this graphglow)"
        )
    learner = EvidenceLearner.from_tensors(
        within("learner", tensors), state["learner"], str(path)
    ).to(device)
    more = within("more", tensors)
    tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
    graph = _graph(tensors, state)
    channels = {name: _channel(within(f"channel.{name}", tensors)) for name in state["channels"]}
    maps = {n: LowRank(tensors.get(f"map.{n}"), short) for n, short in state["shortest"].items()}
    views = views_of(graph, tensors["x"], tensors["link"])
    pairs, weight = tensors["pairs"], tensors["first_weight"]
    views |= second_views(views, adjacency_over(pairs[:, : len(weight)], weight, graph.num_nodes))
    known = GraphEvidence(
        graph=graph,
        views=views,
        moments={name: (mean, spread) for name, (mean, spread) in state["moments"].items()},
        channels={name: channels[name] for name in state["known_channels"]},
        pairs=pairs,
        search=state["search"],
        maps=maps,
        learner=learner,
        first_weight=weight,
        first_calibration=state["calibration"][0],
        **{name: tensors[name] for name in KNOWN},
    )
    parts: dict[str, Any] = {name: tensors[name] for name in REFINED}
    refined = RefinedGraph(
        known=known,
        edges=tensors["edges"],
        num_candidates=pairs.shape[1],
        pair_in_input=is_edge(graph.links, pairs),
        pair_log_odds=tensors["log_odds"],
        calibration=state["calibration"][1],
        sharpness=state["sharpness"],
        **parts,
    )
    if "of_node" in tensors:
        adjacency = refined.adjacency()
        fx = times(adjacency, views["x"])
        final = FinalRound(
            known=known,
            adjacency=adjacency,
            views={"ffx": unit_(times(adjacency, fx)), "fx": unit_(fx)},
            channels=channels,
            carried=_carried(graph, channels, adjacency)[0],
            **{name: tensors[name] for name in FINAL},
        )
        refined = replace(refined, final=final)
    return FrozenGraph(refined, tuple(within("floor", tensors).values())), more, meta["facts"]


def _graph(tensors: dict[str, Tensor], state: dict[str, Any]) -> Graph:
    given: dict[str, Any] = {name: tensors.get(name) for name in GRAPH}
    nothing = given["train"][:0]
    graph = Graph(None, **given, val=nothing, test=nothing, num_classes=state["num_classes"])
    encoder = None
    if state["columns"] is not None:
        words, width = state["columns"]
        encoder = FeatureEncoder(words, width, tensors["columns"], tensors["columns_table"])
    vars(graph)["encoded"] = (None, encoder)
    return graph


def _channel(parts: dict[str, Tensor]) -> Channel:
    return Channel(
        parts["probabilities"], parts["scores"], parts.get("weight"), within("chosen", parts)
    )
