"""Many files scored by many workers: shard by shard, each result whole or not there, resumed where it stopped."""

from esad.scale.run import Outcome, score_shards

__all__ = ["Outcome", "score_shards"]
