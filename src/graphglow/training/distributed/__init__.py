"""Training across processes: one large graph in shards, or several sources at once."""

from graphglow.training.distributed.graph_arrays import GraphArrays
from graphglow.training.distributed.meeting import join, world_size
from graphglow.training.distributed.pretrain import pretrain_together
from graphglow.training.distributed.ranks import HeardError, RankLostError, Ranks
from graphglow.training.distributed.shard import Shard, is_shard_folder, read_shard, shards_info
from graphglow.training.distributed.shard_folder import write_shards
from graphglow.training.distributed.transfer import ShardResult, transfer_shard

__all__ = [
    "GraphArrays",
    "HeardError",
    "RankLostError",
    "Ranks",
    "Shard",
    "ShardResult",
    "is_shard_folder",
    "join",
    "pretrain_together",
    "read_shard",
    "shards_info",
    "transfer_shard",
    "world_size",
    "write_shards",
]
