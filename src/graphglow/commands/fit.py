"""``graphglow fit``."""

from typing import Annotated

from tyro.conf import arg

from graphglow import competitors
from graphglow.commands import COMMANDS, flags
from graphglow.commands.files import check_output
from graphglow.commands.options import asked
from graphglow.commands.terminal import epoch_bar, tell, waiting
from graphglow.competitors import METHODS, method_named
from graphglow.competitors.method import Family
from graphglow.graph.write import prediction_file
from graphglow.settings import RunConfig

FAMILIES: dict[Family, str] = {
    "gnn": "GNNs on the input graph:",
    "control": "Controls:",
    "structure": "Structure learning, on this graph alone:",
    "graphglow": "GraphGLOW and its variants:",
}


def command_for(kind: type[RunConfig]) -> flags.Command:
    """``fit`` with the settings of ``kind`` as flags."""

    def fit(  # noqa: D417 (the flags and the config say the rest)
        method: Annotated[str, arg(metavar="NAME")],
        target: flags.GraphName,
        reading: flags.Reading,
        config: Annotated[RunConfig, flags.by_heading(kind)],
        predictions: flags.OptionalFile = None,
        overwrite: flags.Overwrite = False,
        json: flags.Json = False,
    ) -> None:
        """Train a competitor on a graph, under the same protocol as transfer.

        Args:
            method: What to train; graphglow fit --help lists the methods.
            predictions: Where to write every node's id, predicted class and probabilities (.csv or
                .parquet).
        """
        if predictions is not None:
            path, inputs = prediction_file(predictions), (target, reading.split_file)
            predictions = check_output(path, overwrite=overwrite, inputs=inputs)
        with waiting(f"loading {target}"):
            data, split = reading.read(target)
        with epoch_bar("training", config.epochs) as on_epoch:
            result = competitors.fit(method, data, config, on_epoch=on_epoch)
        if predictions is not None:
            result.write_predictions(predictions)
        facts = {**result.summary(), "split": split, "predictions": predictions}
        tell("Fit", facts, json=json)

    return fit


def choose(name: str, arguments: list[str]) -> flags.Command:
    """Look for the method first: it decides which flags there are."""
    method = asked("--method", arguments)
    return command_for(RunConfig if method is None else method_named(method).config)


def about(name: str) -> str:
    """What the help says of a method."""
    example = f"Example: graphglow fit --method {name} --target wine --json"
    return f"Train {name} on a graph: {METHODS[name].summary}.\n\n{example}"


def overview() -> str:
    """What there is to fit, by family."""
    width = max(map(len, METHODS)) + 2
    lines = [COMMANDS["fit"], "", "Example: graphglow fit --method gcn --target wine --json", ""]
    lines += ["Below are settings of all methods; graphglow fit --method gcn --help shows those of"]
    lines += ["gcn, with its own defaults."]
    for family, title in FAMILIES.items():
        lines += ["", title]
        lines += [f"  {n:<{width}}{m.summary}" for n, m in METHODS.items() if m.family == family]
    return "\n".join(lines)
