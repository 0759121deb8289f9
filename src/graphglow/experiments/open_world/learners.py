"""Learners of the suite: of held-out families, and of few sources, to see what more of them gain.

A lesson is a file by its name: ``fold0.safetensors`` has seen no family of fold 0; among these,
``fold0-4-alone.safetensors`` four sources only and no random graph, ``fold0-4.safetensors`` random
graphs besides.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphglow.evidence.pretrain import EvidencePretrainConfig, pretrain_evidence
from graphglow.experiments.open_world.targets import Target
from graphglow.experiments.provenance import provenance
from graphglow.graphs import load_graph
from graphglow.workers.executor import Workers, result_of

COUNTS = (1, 2, 4, 8, None)
"""Of sources; None is all."""
SHORTER = {"first_episodes": 100, "vote_episodes": 70, "second_episodes": 100, "steps": 1500}
"""A third of the episodes: there are ten learners for each fold."""


@dataclass(frozen=True)
class Lesson:
    """A learner that is asked for."""

    fold: int
    few: bool = False
    """Whether it is one of those that show what sources gain."""
    count: int | None = None
    random: bool = True
    """Whether random graphs are among the sources."""

    @property
    def name(self) -> str:
        kind = f"-{self.count or 'all'}{'' if self.random else '-alone'}" if self.few else ""
        return f"fold{self.fold}{kind}"

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.safetensors"

    def sources(self, every: Sequence[Target]) -> list[Target]:
        """Open graphs outside the fold; of few, each from another family as far as can be."""
        others = [target for target in every if target.fold not in (None, self.fold)]
        families = [target.family for target in others]
        rank = {target: families[:at].count(target.family) for at, target in enumerate(others)}
        return sorted(others, key=lambda t: (rank[t], t.family))[: self.count]

    @property
    def config(self) -> EvidencePretrainConfig:
        if not self.few:
            return EvidencePretrainConfig()
        share = EvidencePretrainConfig.random_share if self.random else 0.0
        return EvidencePretrainConfig(**SHORTER, random_share=share)  # type: ignore[arg-type]


def curve_lessons(fold: int) -> list[Lesson]:
    """All that a fold needs for the curve of sources."""
    return [Lesson(fold, True, count, random) for count in COUNTS for random in (True, False)]


def teach(lessons: Iterable[Lesson], every: Sequence[Target], folder: Path, pool: Workers) -> None:
    """Make learners, each in a file of its own."""
    jobs = [
        pool.submit(pretrain_on, one.sources(every), one.file(folder), pool.device, one.config)
        for one in lessons
    ]
    for job in jobs:
        result_of(job)


def pretrain_on(
    sources: Sequence[Target], out: Path, device: str, config: EvidencePretrainConfig
) -> None:
    """Pre-train a learner on open graphs, each family by the root of its size, and save it."""
    sizes = Counter(source.family for source in sources)
    weights = [sizes[source.family] ** -0.5 for source in sources]
    graphs = [load_graph(source.file) for source in sources]
    learner = pretrain_evidence(graphs, config, weights=weights, device=device)
    learner.provenance["source_weights"] = [round(weight, 3) for weight in weights]
    learner.provenance["command"] = provenance()["command"]
    out.parent.mkdir(parents=True, exist_ok=True)
    learner.to("cpu").save(out)
