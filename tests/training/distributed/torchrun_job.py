"""What torchrun starts in a test: both commands across ranks; rank 0 writes what it has to say."""

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

from graphglow.commands.files import CheckpointFlags
from graphglow.commands.flags import GraphFlags
from graphglow.commands.train import pretrain_paper, transfer_for
from graphglow.training import PaperConfig
from graphglow.training.distributed import join
from tiny_graphs import pretrain_config, transfer_config

PIVOTS = 20


def transfer_settings():
    return transfer_config(epochs=3, num_pivots=PIVOTS, dropout=0.5, device="cpu")


def pretrain_settings():
    return pretrain_config(schedule="together", epochs=2, episodes=1, device="cpu")


def facts(command, *words, **flags):
    """What the command prints as JSON; None on ranks that say nothing."""
    with redirect_stdout(io.StringIO()) as out:
        command(*words, CheckpointFlags(), json=True, **flags)
    return json.loads(out.getvalue() or "null")


def transferred(target, predictions=None):
    words = (target, GraphFlags(), transfer_settings())
    return facts(transfer_for(PaperConfig), *words, learner="paper", predictions=predictions)


def pretrained(out):
    return facts(pretrain_paper, ["wine", "synthetic"], out, GraphFlags(), pretrain_settings())


if __name__ == "__main__":
    shards, out = sys.argv[1], Path(sys.argv[2])
    with join("cpu"):  # once for all: ranks that have parted cannot meet again
        from_shards = transferred(shards, predictions=out / "predictions")
        from_name = transferred("wine")
        learned = pretrained(out / "learner.safetensors")
    if learned is not None:
        said = {"shards": from_shards, "name": from_name, "pretrain": learned}
        (out / "said.json").write_text(json.dumps(said))
