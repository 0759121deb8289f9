"""What users call their nodes and classes."""

import difflib

from torch_geometric.data import Data

from graphglow.errors import InputError


def node_ids(data: Data, num_nodes: int) -> list[int | str]:
    """The user's own ids; the indices where there are none."""
    ids = data.get("node_id")
    given = range(num_nodes) if ids is None else ids
    return [one.item() if hasattr(one, "item") else one for one in given]


def node_place(data: Data, ids: list[int | str], node: int | str) -> int:
    """The place of a node that is named by its id, or by its place where there are no ids."""
    names = [str(one) for one in ids]
    text = str(node.item() if hasattr(node, "item") else node)
    if text in names:
        return names.index(text)
    if data.get("node_id") is None:
        raise InputError(f"node must be an index in [0, {len(names) - 1}]; got {node!r}")
    bare = [name.lower().lstrip("0") for name in names[:20_000]]  # a zero or a case may be lost
    near = difflib.get_close_matches(text.lower().lstrip("0"), bare, n=3, cutoff=0.5)
    nearest = ", ".join([names[bare.index(one)] for one in near] or names[:3])
    raise InputError(f"node must be the id of a node (nearest: {nearest}); got {node!r}")


def class_names(data: Data, count: int) -> list[str]:
    """The user's own names; the classes' numbers where there are none."""
    given = data.get("class_names")
    if given is None or len(given) < count:
        return [str(number) for number in range(count)]
    return [str(name) for name in given[:count]]
