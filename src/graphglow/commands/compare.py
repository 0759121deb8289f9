"""``graphglow compare``: which method to use on a graph of one's own."""

from typing import Annotated

from tyro.conf import arg

from graphglow.commands import flags
from graphglow.commands.output import print_json, print_note, print_text
from graphglow.commands.progress import progress_bar, spinner
from graphglow.errors import InputError

Methods = Annotated[
    tuple[str, ...], arg(metavar="NAME ...", help_behavior_hint="(default: usual ones)")
]


def compare(
    target: flags.GraphName,
    reading: flags.Reading,
    methods: Methods = (),
    learner: flags.LearnerName = "universal",
    seeds: int = 3,
    seed: int = 0,
    device: flags.Device = "auto",
    json: flags.Json = False,
) -> None:
    """Run graphglow and others on your graph, and say which to use and how sure that is.

    predict has training and validation labels at work, and is estimated by leave-one-out; methods
    that train are estimated by validation. The highest estimate is recommended, and test nodes say
    how good it is. Every method has the setting that it has in the open-world suite, the same for
    all graphs. A graph without a split of its own is split anew by each seed; without test nodes,
    labelled ones are tested in turn.

    Example: graphglow compare --target people.csv+relations.csv

    Args:
        methods: Which to run: gcn mlp linkx gpr h2gcn knn jaccard paper bag-gcn bag-gpr untrained
            transfer predict.
        seeds: Runs of each method.
        seed: The first of the seeds.
    """
    if reading.split_seed is not None:
        raise InputError("--split-seed has no effect: compare draws a split by each --seed")

    from graphglow.compare import DEFAULT_METHODS
    from graphglow.compare import compare as compare_methods
    from graphglow.lab.open_methods import METHOD_TITLES

    with spinner(f"loading {target}"):
        data, _ = reading.read(target, tell_split=False)  # other splits are drawn
    with progress_bar() as move:
        table = compare_methods(
            data,
            methods or DEFAULT_METHODS,
            seeds=seeds,
            seed=seed,
            learner=learner,
            device=device,
            progress=move,
        )
    if json:
        facts = {"command": "compare", "target": data.name, "how": table.how, "seed": seed}
        facts["recommended"] = table.recommended.method
        lines = [line._asdict() | {"basis": line.basis} for line in table.lines]
        print_json(facts | {"lines": lines, "failed": table.failed, "verdict": table.verdict})
        return
    for method, why in table.failed.items():
        print_note(f"{METHOD_TITLES[method]} could not run: {why}")
    print_text(f"{data.name}\n{table!r}")
