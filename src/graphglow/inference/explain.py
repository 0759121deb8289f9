"""Why a node got its class: what each node said in the last layer, and by which edge it came.

The logits of node u are a sum over nodes v (:class:`~graphglow.gnn.LastLayer`), and each
summand has two parts, by the input graph and by the learned one::

    logit_uc = sum_v lambda A_uv said_vc + sum_v (1 - lambda) L_uv said_vc + own_uc + bias_c

A message over the learned graph goes from node to pivot to node; L_uv is the weight of all these
paths together. The sum is exact. What it cannot say is why v says what it says: that is the work
of the layers below.
"""

import difflib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphglow.checks import at_least
from graphglow.errors import InputError
from graphglow.gnn import MixedPropagation, backbone_class, backbones_that
from graphglow.inference.explanation import ClassVoice, Contribution, Explanation
from graphglow.inference.refined_graph import OperatorRows

if TYPE_CHECKING:  # which imports this
    from graphglow.training.result import TransferResult


class Voices:
    """What all nodes say, and how much of it is heard by each of the two graphs.

    Shapes:
        said, given, learned: [N] each, and so is everything made of them
    """

    def __init__(self, said: Tensor, given: Tensor, learned: Tensor) -> None:
        self.said, self.given, self.learned = said, given, learned
        self.by_input, self.by_latent = given * said, learned * said
        self.total = self.by_input + self.by_latent
        self.heard = (given != 0) | (learned != 0)


class Explainer:
    """One evaluation pass of a result, taken apart once for all of its nodes."""

    def __init__(self, result: "TransferResult") -> None:
        config = result.config
        if not backbone_class(config.backbone).explainable():
            able = backbones_that(lambda kind: kind.explainable())
            raise InputError(
                f"explaining needs a backbone whose scores are a sum over neighbours ({able}); "
                f"got {config.backbone}"
            )
        self.result, final = result, result.refinement
        mix = MixedPropagation(result.graph.adj, final.latent, config.input_weight)
        with torch.no_grad():
            self.layer = result.gnn.last_layer(final.encoded, mix)
        self.operator = OperatorRows(self.layer.adj, final.latent, config.input_weight)
        self.predicted: list[int] = result.predict().tolist()
        graph = result.graph
        parts = {"train": graph.train, "val": graph.val, "test": graph.test}
        self.split = {node: name for name, nodes in parts.items() for node in nodes.tolist()}
        self.names = class_names(result)

    def explain(
        self,
        node: int | str,
        *,
        top_k: int = 10,
        label: int | str | None = None,
        against: int | str | None = None,
    ) -> Explanation:
        """See :meth:`TransferResult.explain`."""
        at_least("top_k", top_k, 1)
        result, layer = self.result, self.layer
        at = node_index(result.data.get("node_id"), node, result.graph.num_nodes)
        chosen = self.predicted[at] if label is None else self._class(label)
        other = None if against is None else self._class(against)
        if other == chosen:
            raise InputError(f"against must be another class; got {self.names[chosen]} twice")

        def towards(values: Tensor) -> Tensor:
            """The column of the class, less that of the other one: [.., C] -> [..]."""
            kept = values[..., chosen].double()
            return kept if other is None else kept - values[..., other].double()

        given, learned = (part[0].double() for part in self.operator.parts(slice(at, at + 1)))
        voices = Voices(towards(layer.said), given, learned)
        size = voices.total.abs()
        order = size.argsort(descending=True, stable=True)[:top_k]
        order = order[voices.heard[order]]
        logits = result.refinement.logits[at]
        return Explanation(
            node=at,
            id=self._id(at),
            target=result.graph.name,
            label=self._label(at),
            predicted=self.names[self.predicted[at]],
            explained=self.names[chosen],
            against=None if other is None else self.names[other],
            probability=float(logits.softmax(0)[chosen]),
            score=float(towards(logits)),
            bias=float(towards(layer.bias)),
            own=float(towards(layer.own[at])),
            input_total=float(voices.by_input.sum()),
            latent_total=float(voices.by_latent.sum()),
            contributions=self._listed(voices, order.tolist(), at),
            others_input=float(voices.by_input.sum() - voices.by_input[order].sum()),
            others_latent=float(voices.by_latent.sum() - voices.by_latent[order].sum()),
            num_others=int(voices.heard.sum()) - len(order),
            by_class=self._by_class(voices),
        )

    def _listed(self, voices: Voices, nodes: list[int], at: int) -> tuple[Contribution, ...]:
        whole = float(voices.total.abs().sum())
        adj = self.layer.adj
        joined = {at, *adj.col[int(adj.crow[at]) : int(adj.crow[at + 1])].tolist()}
        return tuple(
            Contribution(
                node=v,
                id=self._id(v),
                label=self._label(v),
                predicted=self.names[self.predicted[v]],
                split=self.split.get(v, ""),
                input_edge=v in joined,
                message=float(voices.said[v]),
                input_weight=float(voices.given[v]),
                latent_weight=float(voices.learned[v]),
                input_part=float(voices.by_input[v]),
                latent_part=float(voices.by_latent[v]),
                contribution=float(voices.total[v]),
                share=float(voices.total[v]) / whole if whole > 0 else 0.0,
            )
            for v in nodes
        )

    def _by_class(self, voices: Voices) -> tuple[ClassVoice, ...]:
        """Sums over the nodes of each predicted class; classes that are not heard are left out."""
        predicted = torch.tensor(self.predicted, device=voices.said.device)
        count = self.result.graph.num_classes
        nodes = torch.bincount(predicted[voices.heard], minlength=count).tolist()
        zero = voices.said.new_zeros(count)
        parts = (voices.given, voices.learned, voices.by_input, voices.by_latent)
        sums = [zero.index_add(0, predicted, part).tolist() for part in parts]
        return tuple(
            ClassVoice(
                predicted=self.names[label],
                nodes=nodes[label],
                input_weight=sums[0][label],
                latent_weight=sums[1][label],
                input_part=sums[2][label],
                latent_part=sums[3][label],
            )
            for label in range(count)
            if nodes[label]
        )

    def _class(self, name: int | str) -> int:
        if not isinstance(name, bool) and str(name) in self.names:
            return self.names.index(str(name))
        raise InputError(f"a class must be one of {', '.join(self.names[:20])}; got {name!r}")

    def _label(self, node: int) -> str | None:
        label = int(self.result.data.y[node])
        return None if label < 0 else self.names[label]

    def _id(self, node: int) -> int | str:
        ids = self.result.data.get("node_id")
        own: int | str = node if ids is None else ids[node]
        return own.item() if hasattr(own, "item") else own


def class_names(result: "TransferResult") -> list[str]:
    """The user's own names; the classes' numbers where there are none."""
    given, count = result.data.get("class_names"), result.graph.num_classes
    if given is None or len(given) < count:
        return [str(number) for number in range(count)]
    return [str(name) for name in given[:count]]


def node_index(ids: Any, node: int | str, num_nodes: int) -> int:
    """The index of a node that is named by its own id, or by its index where there are no ids."""
    text = str(node.item() if hasattr(node, "item") else node)
    if ids is None:
        if text.isascii() and text.isdigit() and int(text) < num_nodes:
            return int(text)
        raise InputError(f"node must be an index in [0, {num_nodes - 1}]; got {node!r}")
    names = [str(own.item() if hasattr(own, "item") else own) for own in ids]
    if text in names:
        return names.index(text)
    bare = text.lower().lstrip("0")
    near = [own for own in names if own.lower().lstrip("0") == bare][:3]  # a zero or a case lost
    near = near or difflib.get_close_matches(text, names[:20_000], n=3, cutoff=0.5) or names[:3]
    raise InputError(f"node must be the id of a node (nearest: {', '.join(near)}); got {node!r}")
