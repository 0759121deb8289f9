"""``graphglow fit``: a competitor on a graph, under the same protocol as transfer."""

from typing import Annotated

from tyro.conf import OmitArgPrefixes, arg

from graphglow.commands import flags
from graphglow.commands.output import check_output, print_facts
from graphglow.commands.progress import epoch_bar, spinner
from graphglow.settings import RunConfig


def method_settings(method: str | None) -> type[RunConfig]:
    """Return the settings of a method; without one, those that all methods have."""
    if not method:
        return RunConfig
    from graphglow.competitors import method_named

    return method_named(method).config


CHOSEN_BY = "--method", method_settings


def fit(
    method: Annotated[str, arg(metavar="NAME")],
    target: flags.GraphName,
    reading: flags.Reading,
    settings: OmitArgPrefixes[RunConfig],
    predictions: flags.OptionalFile = None,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Train a competitor on a graph, under the same protocol as transfer.

    GNNs on the input graph are gcn, sage, gat, appnp, gpr, h2gcn, gcnii and cpgnn; controls are
    mlp, link, link-features and linkx; structure learning on this graph alone is lds, idgl,
    idgl-anchor and vgcn; GraphGLOW's variants are graphglow-star, graphglow-dot, graphglow-knn,
    graphglow-cosine, graphglow-attention and random-theta.
    graphglow fit --method gcn --help shows the settings of gcn, with its own defaults.

    Example: graphglow fit --method gcn --target wine --json

    Args:
        method: What to train.
        predictions: Where to write every node's id, predicted class and probabilities (.csv or
            .parquet).
    """
    from graphglow import competitors
    from graphglow.graph.write import prediction_file

    if predictions is not None:
        path, inputs = prediction_file(predictions), (target, reading.split_file)
        predictions = check_output(path, overwrite=overwrite, inputs=inputs)
    with spinner(f"loading {target}"):
        data, split = reading.read(target)
    with epoch_bar(settings.epochs) as on_epoch:
        result = competitors.fit(method, data, settings, on_epoch=on_epoch)
    if predictions is not None:
        result.write_predictions(predictions)
    facts = {**result.summary(), "split": split, "predictions": predictions}
    print_facts("Fit", facts, json=json)
