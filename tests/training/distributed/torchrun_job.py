"""What torchrun starts in a test: both commands across ranks; rank 0 writes what it has to say."""

import json
import sys
from pathlib import Path

from graphglow.commands.across_ranks import pretrain_across_ranks, transfer_across_ranks
from graphglow.commands.graph_flags import GraphFlags
from graphglow.training.distributed import join
from tiny_graphs import pretrain_config, transfer_config

WIDTH, PIVOTS = 16, 20


def transfer_settings():
    return transfer_config(epochs=3, num_pivots=PIVOTS, dropout=0.5, device="cpu")


def pretrain_settings():
    return pretrain_config(schedule="together", epochs=2, episodes=1, device="cpu")


def transferred(target, predictions=None):
    return transfer_across_ranks(
        "random",
        target,
        GraphFlags(),
        transfer_settings(),
        embedding_size=WIDTH,
        predictions=predictions,
        log=None,
    )


def pretrained(out):
    return pretrain_across_ranks(
        ["wine", "synthetic"], out, GraphFlags(), pretrain_settings(), log=None
    )


if __name__ == "__main__":
    shards, out = sys.argv[1], Path(sys.argv[2])
    with join("cpu"):  # once for all: ranks that have parted cannot meet again
        from_shards = transferred(shards, predictions=out / "predictions")
        from_name = transferred("wine")
        learned = pretrained(out / "learner.safetensors")
    if learned is not None:
        _, facts = learned
        said = {"shards": from_shards, "name": from_name, "pretrain": facts}
        (out / "said.json").write_text(json.dumps(said, default=str))
