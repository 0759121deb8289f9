"""Data sets of PyG by class path: ``torch_geometric.datasets.Amazon:name=Computers``.

Only classes that ``torch_geometric.datasets`` lists are taken: a path to anything else would run
whatever code stands there. What PyG downloads and makes is kept in ``pyg/`` under the data root.
"""

import contextlib
import difflib
import inspect
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.check import MASKS

PREFIX = "torch_geometric.datasets."
NOT_SETTABLE = ("self", "root", "transform", "pre_transform", "pre_filter")


def is_dataset_path(source: str) -> bool:
    """Whether ``source`` is written as a class path (of PyG, or of what will be refused)."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\.[A-Z]\w*(:.*)?", source) is not None


def read_dataset_path(source: str, root: Path, split_seed: int) -> Data:
    """Build the data set and return its one graph, not yet checked.

    Of data sets with several splits (masks [N, S]) the split number ``split_seed`` modulo S is
    taken. Where PyG gives training nodes and no validation nodes, these are drawn by the seed.
    """
    path, _, given = source.partition(":")
    build = _dataset_class(path)
    arguments = _arguments(build, given, path)
    parameters = inspect.signature(build).parameters
    if "root" in parameters:
        folder = re.sub(r"[^\w=,.-]", "_", f"{path.removeprefix(PREFIX)} {given}".strip())
        arguments["root"] = str(root / "pyg" / folder)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")  # PyG's notes, and its chatter on stderr
            dataset = build(**arguments)
            count, graph = len(dataset), dataset[0]
    except Exception as error:  # no network, a missing package, a name that PyG does not know
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{source} must be a data set that PyG can build; got: {line}") from error
    if count != 1 or not isinstance(graph, Data):
        got = f"{count} graphs" if count != 1 else f"a {type(graph).__name__}"
        raise InputError(
            f"{source} must be one graph with one kind of nodes and edges, for node "
            f"classification; got {got}"
        )
    fields = ("x", "y", "edge_index", "edge_weight", *MASKS)
    kept = {name: graph[name] for name in fields if graph.get(name) is not None}
    data = Data(**kept, num_nodes=graph.num_nodes)
    _choose_split(data, split_seed)
    return data


def _dataset_class(path: str) -> Callable[..., Any]:
    import torch_geometric.datasets as pyg

    name = path.removeprefix(PREFIX)
    if not path.startswith(PREFIX) or "." in name:
        raise InputError(
            f"a class path must be {PREFIX}NAME (other code is not run by its name); got {path!r}"
        )
    found = getattr(pyg, name, None) if name in pyg.__all__ else None
    if not inspect.isclass(found):
        near = difflib.get_close_matches(name, pyg.__all__, n=3, cutoff=0.5)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        raise InputError(f"{PREFIX}NAME must name a data set of PyG{hint}; got {name!r}")
    return found


def _arguments(build: Callable[..., Any], given: str, path: str) -> dict[str, Any]:
    """``name=Computers,split=random`` as keyword arguments, as far as the class takes them."""
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(build).parameters.items()
        if name not in NOT_SETTABLE
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    arguments: dict[str, Any] = {}
    for item in filter(None, given.split(",")):
        key, equals, value = item.partition("=")
        if not equals or key.strip() not in parameters:
            raise InputError(
                f"settings of {path} must be written KEY=VALUE,KEY=VALUE with keys of "
                f"{', '.join(parameters) or 'none'}; got {item!r}"
            )
        arguments[key.strip()] = _value(value.strip())
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            raise InputError(
                f"{path} must be told its {name}, as in {path}:{name}=VALUE; got no {name}"
            )
    return arguments


def _value(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _choose_split(data: Data, seed: int) -> None:
    for name in MASKS:
        mask = data.get(name)
        if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] > 0:
            data[name] = mask[:, seed % mask.shape[1]]
    if data.get("train_mask") is None or data.get("val_mask") is not None:
        return
    if not isinstance(data.y, Tensor) or data.y.ndim != 1:
        return  # the check says what is wrong
    rest = ~data.train_mask & (data.y >= 0)
    pool = data.train_mask if data.get("test_mask") is not None else rest
    nodes = pool.nonzero()[:, 0]
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))
    data.val_mask = torch.zeros_like(data.train_mask)
    data.val_mask[nodes[order[: max(1, len(nodes) // 4)]]] = True
    if data.get("test_mask") is not None:
        data.train_mask = data.train_mask & ~data.val_mask
    else:
        data.test_mask = rest & ~data.val_mask
