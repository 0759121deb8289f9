"""Why a node got its class: what each node said in the last layer, and by which edge it came.

The logits of node u are a sum over nodes v (:class:`~graphglow.gnn.LastLayer`), and each
summand has two parts, by the input graph and by the learned one::

    logit_uc = sum_v lambda A_uv said_vc + sum_v (1 - lambda) L_uv said_vc + own_uc + bias_c

A message over the learned graph goes from node to pivot to node; L_uv is the weight of all these
paths together. The sum is exact. What it cannot say is why v says what it says: that is the work
of the layers below.

:func:`graphglow.report.write_explanation` makes a page of the answer.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from graphglow.checks import at_least
from graphglow.errors import InputError
from graphglow.gnn import backbone_class, backbones_that
from graphglow.graph.write import class_names, own_ids, split_names, write_table
from graphglow.inference.explain_pair import edge_reasons
from graphglow.inference.own_names import node_place
from graphglow.inference.refined_graph import OperatorRows

if TYPE_CHECKING:  # which imports this
    from graphglow.training.result import TransferResult


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What one node added to the score; ``contribution = input_part + latent_part``."""

    node: int
    """Its index."""
    id: int | str
    """The user's own id; the index where there is none."""
    label: str | None
    """Its known class."""
    predicted: str
    """Its predicted class."""
    split: str
    """``train``, ``val``, ``test``, or nothing."""
    input_edge: bool
    """Whether the input graph joins it to the node that is explained, or it is that node."""
    message: float
    """What it says for the class, before any weight."""
    input_weight: float
    """How much of that is heard by the input graph: lambda * A."""
    latent_weight: float
    """How much of it is heard by the learned graph: (1 - lambda) * L."""
    input_part: float
    latent_part: float
    contribution: float
    share: float
    """Of the absolute contributions of all nodes; negative where it speaks against the class."""
    probability: float | None = None
    """Where a refined edge joins the two: that they are of one class."""
    evidence_for: str | None = None
    """What spoke most for that edge, and by how much: ``features around (+1.2)``."""
    evidence_against: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClassTotal:
    """What all nodes of one predicted class added to the score together."""

    predicted: str
    nodes: int
    """Nodes of the class that are heard at all."""
    input_weight: float
    latent_weight: float
    input_part: float
    latent_part: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """Why a node got its class.

    ``score = bias + own + input_total + latent_total``, up to rounding, and the totals are those of
    ``contributions`` and of the nodes that are not listed.
    """

    node: int
    id: int | str
    target: str
    """The graph's name."""
    label: str | None
    """The node's known class."""
    predicted: str
    explained: str
    """The class that the numbers speak for: the predicted one unless asked otherwise."""
    against: str | None
    """Given, the numbers are those of ``explained`` less those of this class."""
    probability: float
    """Of ``explained``."""
    score: float
    """The logit of ``explained``, less that of ``against``."""
    bias: float
    """The same for all nodes."""
    own: float
    """What the node adds without any message: 0 with gcn and gat."""
    input_total: float
    """What all nodes add by the input graph, the node's own self-loop included."""
    latent_total: float
    """What all nodes add by the learned graph."""
    contributions: tuple[Contribution, ...]
    """The strongest, by absolute value."""
    others_input: float
    """What all other nodes add by the input graph."""
    others_latent: float
    num_others: int
    """Other nodes that are heard at all."""
    by_class: tuple[ClassTotal, ...]
    """All nodes that are heard, by their predicted class."""

    def __repr__(self) -> str:
        return f"Explanation({self.summary()})"

    def summary(self) -> str:
        """The decision in two or three sentences."""
        from graphglow.report.explanation import summary

        return summary(self)

    def text(self) -> str:
        """All of it in lines for people, as the command line prints it."""
        frame = self.to_frame()
        columns = ["id", "label", "input_part", "latent_part", "contribution", "share"]
        others = f"{self.others_input + self.others_latent:+.4f} by {self.num_others} others"
        alike = f"{self.own:+.4f} without a message, {self.bias:+.4f} for all nodes alike"
        said = [
            self.summary(),
            frame[columns].to_string(index=False, na_rep="-", float_format="{:+.4f}".format),
            f"score: {self.score:+.4f}, the sum of these and {others}, {alike}",
        ]
        joined = frame[frame.probability.notna()]
        if len(joined):
            columns = ["id", "probability", "evidence_for", "evidence_against"]
            why = joined[columns].to_string(index=False, na_rep="-", float_format="{:.0%}".format)
            said += ["why the refined graph joins them:", why]
        return "\n".join(said)

    def to_frame(self) -> Any:
        """The contributions as a pandas DataFrame, strongest first."""
        import pandas as pd

        return pd.DataFrame(self.contributions, columns=[f.name for f in fields(Contribution)])

    def plot(self) -> Any:
        """A bar for each node that contributed, as a Plotly figure (the extra ``report``)."""
        from graphglow.report.explanation import bar_chart, title
        from graphglow.report.page import plotly_figure

        return plotly_figure(bar_chart(self)._replace(title=title(self)))

    def write(self, path: str | Path) -> None:
        """Write the table, ``.csv`` or ``.parquet``; an existing file is replaced.

        A page with pictures is :func:`graphglow.report.write_explanation`.
        """
        write_table(self.to_frame(), path, "an explanation")


class Explainer:
    """One evaluation pass of a result, taken apart once for all of its nodes."""

    def __init__(self, result: "TransferResult") -> None:
        import pandas as pd

        data, graph = result.data, result.graph
        if not backbone_class(result.backbone).explainable():
            able = backbones_that(lambda kind: kind.explainable())
            raise InputError(
                f"explaining needs a backbone whose scores are a sum over neighbours ({able}); "
                f"got {result.backbone}"
            )
        self.result = result
        self.layer = result.last_layer()
        self.operator = OperatorRows(self.layer.adj, *result.message_graph)
        self.names = class_names(data, graph.num_classes)
        self.predicted = result.predict().numpy()
        about = {
            "node": range(graph.num_nodes),
            "id": own_ids(data, graph.num_nodes),
            "label": [None if label < 0 else self.names[label] for label in data.y.tolist()],
            "predicted": [self.names[label] for label in self.predicted],
            "split": split_names(data),
        }
        self.nodes = pd.DataFrame(about, dtype=object)

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
        at = node_place(result.data, len(self.nodes), node)
        chosen = int(self.predicted[at]) if label is None else self._class(label)
        other = None if against is None else self._class(against)
        if other == chosen:
            raise InputError(f"against must be another class; got {self.names[chosen]} twice")

        def towards(values: Tensor) -> Tensor:
            """The column of the class, less that of the other one: [.., C] -> [..]."""
            kept = values[..., chosen].double()
            return kept if other is None else kept - values[..., other].double()

        heard = self._heard(at, towards(layer.said))
        order = heard.contribution.abs().sort_values(ascending=False, kind="stable").index
        listed, others = heard.loc[order[:top_k]], heard.loc[order[top_k:]]
        reasons = edge_reasons(result, at, listed.node.tolist())
        about, logits = self.nodes.loc[at], result.logits[at]
        return Explanation(
            **about[["node", "id", "label", "predicted"]].to_dict(),
            target=result.graph.name,
            explained=self.names[chosen],
            against=None if other is None else self.names[other],
            probability=float(logits.softmax(0)[chosen]),
            score=float(towards(logits)),
            bias=float(towards(layer.bias)),
            own=float(towards(layer.own[at])),
            input_total=float(heard.input_part.sum()),
            latent_total=float(heard.latent_part.sum()),
            contributions=tuple(
                Contribution(**row, **reasons.get(row["node"], {}))
                for row in listed.to_dict("records")
            ),
            others_input=float(others.input_part.sum()),
            others_latent=float(others.latent_part.sum()),
            num_others=len(others),
            by_class=self._by_class(heard),
        )

    def _heard(self, at: int, messages: Tensor) -> Any:
        """All nodes that ``at`` hears at all, as a frame with the fields of a contribution.

        Shapes:
            messages [N]
        """
        adj = self.layer.adj
        joined = adj.col[int(adj.crow[at]) : int(adj.crow[at + 1])].tolist()
        rows = self.operator.parts(slice(at, at + 1))
        weights = [part[0].double().cpu().numpy() for part in rows]
        said = messages.cpu().numpy()
        frame = self.nodes.assign(
            input_edge=self.nodes.node.isin([at, *joined]),
            message=said,
            input_weight=weights[0],
            latent_weight=weights[1],
            input_part=weights[0] * said,
            latent_part=weights[1] * said,
        )
        frame["contribution"] = frame.input_part + frame.latent_part
        frame["share"] = frame.contribution / (frame.contribution.abs().sum() or 1.0)
        return frame[(frame.input_weight != 0) | (frame.latent_weight != 0)]

    def _by_class(self, heard: Any) -> tuple[ClassTotal, ...]:
        """Sums over the nodes of each predicted class; classes that are not heard are left out."""
        sums = ["input_weight", "latent_weight", "input_part", "latent_part"]
        return tuple(
            ClassTotal(predicted=self.names[label], nodes=len(nodes), **nodes[sums].sum().to_dict())
            for label, nodes in heard.groupby(self.predicted[heard.index])
        )

    def _class(self, name: int | str) -> int:
        if not isinstance(name, bool) and str(name) in self.names:
            return self.names.index(str(name))
        raise InputError(f"a class must be one of {', '.join(self.names[:20])}; got {name!r}")
