"""The answer to why a node got its class: numbers, and a table.

:func:`graphglow.report.write_explanation` makes a page of it.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphglow.errors import InputError
from graphglow.graphs.write import write_table


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


@dataclass(frozen=True, kw_only=True)
class ClassVoice:
    """What all nodes of one predicted class added to the score together."""

    predicted: str
    nodes: int
    """Nodes of the class that are heard at all."""
    input_weight: float
    latent_weight: float
    input_part: float
    latent_part: float


@dataclass(frozen=True, kw_only=True)
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
    by_class: tuple[ClassVoice, ...]
    """All nodes that are heard, by their predicted class."""

    def to_frame(self) -> Any:
        """The contributions as a pandas DataFrame, strongest first."""
        import pandas as pd

        columns = list(Contribution.__dataclass_fields__)
        return pd.DataFrame([asdict(one) for one in self.contributions], columns=columns)

    def write(self, path: str | Path) -> None:
        """Write the table, ``.csv`` or ``.parquet``; an existing file is replaced.

        A page with pictures is :func:`graphglow.report.write_explanation`.
        """
        path = Path(path).expanduser()
        if path.suffix.lower() in (".html", ".htm"):
            raise InputError(
                "an explanation is written as a table, .csv or .parquet; a page is made by "
                f"graphglow.report.write_explanation(explanation, path); got {path}"
            )
        write_table(self.to_frame(), path, "an explanation")
