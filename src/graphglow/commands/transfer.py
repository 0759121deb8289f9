"""``graphglow transfer``: one small GNN over a graph and the better one of a frozen learner."""

from functools import partial
from typing import Any

from tyro.conf import OmitArgPrefixes

from graphglow.commands import flags
from graphglow.commands.output import TENSOR_SUFFIXES, check_output, print_facts, write_each
from graphglow.commands.progress import epoch_bar, spinner
from graphglow.errors import InputError
from graphglow.settings import PaperConfig, TransferConfig


def learner_settings(learner: str | None) -> type[TransferConfig | PaperConfig]:
    """Return the settings of a transfer under a learner; a file's kind says which."""
    if learner is None or learner.lower() in ("universal", "untrained"):
        return TransferConfig
    if learner.lower() == "paper":
        return PaperConfig
    from graphglow.pretrained import is_paper

    return PaperConfig if is_paper(learner) else TransferConfig


CHOSEN_BY = "--learner", learner_settings


def transfer(
    target: flags.GraphName,
    reading: flags.Reading,
    settings: OmitArgPrefixes[TransferConfig],
    learner: flags.LearnerName = "universal",
    out: flags.OptionalFile = None,
    predictions: flags.OptionalFile = None,
    resume: flags.Switch = False,
    overwrite: flags.Overwrite = False,
    json: flags.Json = False,
) -> None:
    """Train a small GNN on a new graph under a frozen learner.

    The graph is refined first, without training; then the GNN is trained over the input graph and
    the refined one, whose shares are chosen by validation. Under a learner of the paper's kind this
    is Algorithm 3; graphglow transfer --learner paper --help shows its settings.

    Example: graphglow transfer --target breast_cancer --out trained.safetensors

    Args:
        out: Where to write the trained result, as safetensors, for graphglow report and refine
            --result.
        predictions: Where to write every node's id, predicted class, probabilities, known class
            and split (.csv or .parquet).
        resume: Go on from the checkpoint beside --out of a run that was stopped or killed (under a
            learner of the paper's kind).
    """
    if resume and (out is None or not isinstance(settings, PaperConfig)):
        raise InputError("--resume goes with --out and a learner of the paper's kind")

    import graphglow
    from graphglow.graph.write import prediction_file
    from graphglow.pretrained import load_learner
    from graphglow.storage import Checkpoint

    inputs = (learner, target, reading.split_file)
    new = partial(check_output, overwrite=overwrite, inputs=inputs)
    out = out and new(out, suffixes=TENSOR_SUFFIXES)
    predictions = predictions and new(prediction_file(predictions))
    theta = load_learner(learner, seed=settings.seed)
    with spinner(f"loading {target}"):
        data, split = reading.read(target)
    checkpoint = None
    if out is not None and isinstance(settings, PaperConfig):
        checkpoint = Checkpoint(out.with_name(f"{out.name}.checkpoint"), resume=resume)
    with epoch_bar(settings.epochs) as on_epoch:
        result = graphglow.transfer(data, theta, settings, on_epoch=on_epoch, checkpoint=checkpoint)
    write_each((out, result.save), (predictions, result.write_predictions))
    if checkpoint is not None:
        checkpoint.remove()
    facts: dict[str, Any] = {
        **result.summary(),
        "learner": learner,
        "split": split,
        "out": out,
        "target_was_source": data.name in (result.learner.provenance.get("sources") or ()),
        "metrics": result.metrics(),
        "predictions": predictions,
    }
    print_facts("Transfer", facts, json=json)
