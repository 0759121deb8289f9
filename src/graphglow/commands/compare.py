"""``graphglow compare``: which method to use on a graph of one's own."""

from typing import Annotated

from tyro.conf import arg

from graphglow.checks import at_least, one_of
from graphglow.commands import flags, terminal
from graphglow.commands.terminal import percent, print_json, say, show_rows, waiting
from graphglow.errors import InputError
from graphglow.lab.open_world.methods import NAMES
from graphglow.pretrained import UNIVERSAL, check_learner
from graphglow.settings import Device

Methods = Annotated[tuple[str, ...], flags.said(None, "NAME ...", "(default: usual ones)")]


def compare(  # noqa: D417 (flags.py says the rest)
    target: flags.GraphName,
    reading: flags.Reading,
    methods: Methods = (),
    learner: flags.LearnerFlag = UNIVERSAL,
    seeds: int = 3,
    seed: int = 0,
    device: Annotated[Device, arg(help="Where to compute.")] = "auto",
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
    from graphglow.compare import COMPARED
    from graphglow.compare import compare as compare_methods

    check_learner(learner)
    for method in methods:
        one_of("methods", method, NAMES)
    at_least("seeds", seeds, 1)
    if reading.split_seed is not None:
        raise InputError("compare draws a split by each --seed on; got --split-seed")
    with waiting(f"loading {target}"):
        data, _ = reading.read(target, tell_split=False)  # other splits are drawn
    with terminal.job_bar() as told:
        found = compare_methods(
            data,
            methods or COMPARED,
            seeds=seeds,
            seed=seed,
            learner=learner,
            device=device,
            progress=told,
        )
    if json:
        facts = {"command": "compare", "target": data.name, "how": found.how, "seed": seed}
        facts["recommended"] = found.recommended.method
        lines = [line._asdict() | {"basis": line.basis} for line in found.lines]
        print_json(facts | {"lines": lines, "failed": found.failed, "verdict": found.verdict})
        return
    rows = [
        (
            NAMES[line.method],
            percent(line.accuracy),
            "" if line.deviation is None else f"{100 * line.deviation:.1f}",
            f"{percent(line.estimate)} by {line.basis}",
            f"{line.seconds:.1f}",
            line.against_highest,
        )
        for line in found.lines
    ]
    columns = ("method", "test", "+-", "own estimate", "seconds", "against the highest")
    show_rows(columns, rows, f"{data.name}: {found.how}")
    for method, why in found.failed.items():
        terminal.note(f"{NAMES[method]} could not run: {why}")
    say(found.verdict)
