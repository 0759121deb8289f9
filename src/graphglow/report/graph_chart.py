"""The drawing of a graph as a chart: classes as colours, new edges among the input's."""

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from graphglow.report.drawing import Drawing
from graphglow.report.figure import Chart, chart_text, translucent
from graphglow.report.learned_structure import UNLABELLED, LearnedStructure
from graphglow.report.theme import OURS, series_styles

GREY = "rgba(128,138,152,0.38)"


def graph_chart(structure: LearnedStructure, found: Drawing) -> Chart:
    """The graph: classes as colours, input edges grey, new edges in colour."""
    figure = go.Figure()
    x, y = found.places.T
    label = structure.y[found.nodes]
    _add_edges(figure, found.places, found.input_edges, "input edges", GREY, 1.0, "solid")
    ends = label[found.new_edges]  # [2, E]
    known = (ends >= 0).all(dim=0)
    same = known & (ends[0] == ends[1])
    for name, mask, dash in (
        ("new edges within a class", same, "solid"),
        ("new edges between classes", known & ~same, "dash"),
        ("new edges, class not known", ~known, "dot"),
    ):
        faint = translucent(OURS, 0.8 if dash == "solid" else 0.6)
        _add_edges(figure, found.places, found.new_edges[:, mask], name, faint, 1.6, dash)
    names = [structure.class_of(n) for n in found.nodes.tolist()]
    styles = series_styles([*structure.class_names, UNLABELLED])
    for name in dict.fromkeys(names):
        at = np.array([i for i, other in enumerate(names) if other == name])
        figure.add_scatter(
            x=x[at],
            y=y[at],
            mode="markers",
            name=chart_text(name),
            text=[_node_text(structure, int(found.nodes[i])) for i in at],
            hovertemplate="%{text}<extra></extra>",
            marker={
                "size": 8,
                "color": styles[name].colour,
                "symbol": styles[name].symbol,
                "line": {"width": 1, "color": "rgba(255,255,255,0.75)"},
            },
        )
    hidden = {"visible": False, "automargin": False}
    figure.update_layout(
        height=620,
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
        xaxis=hidden,
        yaxis=hidden,
        hovermode="closest",
        dragmode="pan",
        legend={"orientation": "h", "yanchor": "top", "y": -0.01, "x": 0},
    )
    return Chart(
        "The graph",
        f"Drawing of {len(found.nodes)} nodes coloured by class with {found.input_edges.shape[1]} "
        f"input edges and {found.new_edges.shape[1]} new edges, {int(same.sum())} of them within "
        "a class.",
        _drawing_caption(structure, found),
        figure,
    )


def _drawing_caption(structure: LearnedStructure, found: Drawing) -> str:
    parts = ["Nodes coloured by class; input edges grey; edges that the learner added in colour."]
    if len(found.nodes) < structure.num_nodes:
        parts.append(
            f"{len(found.nodes)} of {structure.num_nodes:,} nodes: a sample by class and the nodes "
            "that their strongest edges reach."
        )
    for name, shown, whole in (
        ("input", found.input_edges.shape[1], found.all_input),
        ("new", found.new_edges.shape[1], found.all_new),
    ):
        if shown < whole:
            parts.append(
                f"Of {whole:,} {name} edges between them {shown:,}, the strongest of each node."
            )
    parts.append("Nodes of one predicted class lie together; edges pull a little.")
    return " ".join(parts)


def _node_text(structure: LearnedStructure, node: int) -> str:
    predicted = structure.class_names[int(structure.predicted[node])]
    return (
        f"<b>{chart_text(structure.node_names[node], 60)}</b><br>class "
        f"{chart_text(structure.class_of(node))}<br>predicted {chart_text(predicted)}"
    )


def _add_edges(
    figure: go.Figure,
    places: np.ndarray,
    pairs: Tensor,
    name: str,
    colour: str,
    width: float,
    dash: str,
) -> None:
    if not pairs.shape[1]:
        return
    ends = places[pairs.numpy()]  # [2, E, 2]
    gap = np.full(ends.shape[1:], np.nan, dtype=np.float32)
    path = np.stack([ends[0], ends[1], gap], axis=1).reshape(-1, 2)
    figure.add_scatter(
        x=path[:, 0],
        y=path[:, 1],
        mode="lines",
        name=name,
        hoverinfo="skip",
        line={"color": colour, "width": width, "dash": dash},
    )
