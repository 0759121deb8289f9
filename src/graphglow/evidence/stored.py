"""Files of a frozen prediction: what new nodes need of it, and nothing that follows from that."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.evidence.channels import Channel
from graphglow.evidence.insertion import FrozenGraph
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.predictor import FinalRound, final_views
from graphglow.evidence.refined import RefinedGraph
from graphglow.evidence.rounds import GraphEvidence, adjacency_over
from graphglow.evidence.views import second_views, views_of
from graphglow.graph.graph import FeatureEncoder, Graph
from graphglow.linalg.rows import LowRank
from graphglow.storage import load_tensors, prefixed, save_tensors, within

KIND, STATE_VERSION = "prediction", 3
CLASSES = (Channel, FeatureEncoder, FinalRound, Graph, GraphEvidence, LowRank, RefinedGraph)
STORED: dict[str, Any] = {kind.__name__: kind for kind in CLASSES}


def save_state(
    path: str | Path,
    frozen: FrozenGraph,
    more: dict[str, Tensor] | None = None,
    facts: dict[str, Any] | None = None,
) -> None:
    """Write a frozen prediction and its learner as one safetensors file.

    It holds edges, labels, the views ``x`` and ``link`` with the maps to them, the channels, and
    the edges of both refined graphs. The other views are products of these, computed on reading.

    Args:
        path: Where to write; an existing file is replaced.
        frozen: What to write.
        more: Other tensors to keep in the file, by name.
        facts: Anything that JSON can hold, to keep with them.
    """
    refined, known = frozen.refined, frozen.known
    first, final, learner = known.first_weight, refined.final, known.learner
    assert learner is not None
    kept = torch.zeros_like(refined.pair_in_input)  # pairs that are edges of either graph
    kept[refined.edges] = True
    kept[: len(first)] |= first > 0
    absent: Any = None  # follows from the rest
    bare = replace(
        refined,
        known=replace(
            known,
            graph=replace(known.graph, raw_x=None),
            views={name: known.views[name] for name in ("x", "link")},
            channels={} if final else known.channels,
            pairs=known.pairs[:, kept],
            first_weight=first[kept[: len(first)]],
            learner=None,
        ),
        edges=kept.cumsum(0)[refined.edges] - 1,
        num_candidates=int(kept.sum()),
        pair_in_input=refined.pair_in_input[kept],
        pair_log_odds=refined.pair_log_odds[kept],
        final=final and replace(final, known=absent, adjacency=absent, views={}),
    )
    tensors = prefixed("learner", dict(learner.state_dict())) | prefixed("more", more or {})
    state = {
        "version": STATE_VERSION,
        "learner": learner.facts(),
        "refined": _pack(bare, "refined", tensors),
        "encoder": _pack(known.graph.encoder, "encoder", tensors),
        "known_channels": list(known.channels),
    }
    save_tensors(path, KIND, tensors, {"state": state, "facts": facts or {}})


def load_state(
    path: str | Path, device: torch.device | str = "cpu"
) -> tuple[FrozenGraph, dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_state` wrote; anything else is refused in one sentence.

    Its candidates are the edges of both refined graphs alone, and its graph has no features.
    """
    tensors, meta = load_tensors(path, KIND)
    state: dict[str, Any] = meta.get("state") or {}
    if (version := state.get("version")) != STATE_VERSION:
        raise InputError(
            f"{path} must hold a prediction of state version {STATE_VERSION}; got version "
            f"{version!r} (predict again with this graphglow)"
        )
    weights, more = within("learner", tensors), within("more", tensors)
    learner = EvidenceLearner.from_tensors(weights, state["learner"], str(path)).to(device)
    tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
    refined: RefinedGraph = _unpack(state["refined"], tensors)
    known, final = refined.known, refined.final
    graph, weight = known.graph, known.first_weight
    vars(graph)["encoded"] = (None, _unpack(state["encoder"], tensors))
    views = views_of(graph, known.views["x"], known.views["link"])
    first = adjacency_over(known.pairs[:, : len(weight)], weight, graph.num_nodes)
    channels = known.channels
    if final is not None:
        channels = {name: final.channels[name] for name in state["known_channels"]}
    views |= second_views(views, first)
    known = replace(known, views=views, channels=channels, learner=learner)
    refined = replace(refined, known=known)
    if final is not None:
        adjacency = refined.adjacency()
        views = final_views(known, adjacency)
        final = replace(final, known=known, adjacency=adjacency, views=views)
    return FrozenGraph(replace(refined, final=final)), more, meta["facts"]


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Take a value apart: tensors go to ``tensors`` by name, JSON can hold what is returned."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, list | tuple):
        return [_pack(part, f"{name}.{i}", tensors) for i, part in enumerate(value)]
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"class": type(value).__name__, "parts": _pack(parts, name, tensors)}
    if isinstance(value, dict):
        return {key: _pack(part, f"{name}.{key}", tensors) for key, part in value.items()}
    return value


def _unpack(packed: Any, tensors: dict[str, Tensor]) -> Any:
    """Put together what :func:`_pack` took apart; tuples come back as lists."""
    if isinstance(packed, list):
        return [_unpack(part, tensors) for part in packed]
    if not isinstance(packed, dict):
        return packed
    if "tensor" in packed:
        return tensors[packed["tensor"]]
    if "class" in packed:
        return STORED[packed["class"]](**_unpack(packed["parts"], tensors))
    return {key: _unpack(part, tensors) for key, part in packed.items()}
