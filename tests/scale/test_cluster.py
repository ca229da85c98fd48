"""A Ray cluster of two nodes: found by its address, and one of them lost on the way."""

import pytest

from esad.scale import score_shards

pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]  # Ray's own


@pytest.fixture
def cluster():
    utils = pytest.importorskip("ray.cluster_utils")
    made = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


def test_shards_of_a_lost_node_are_scored_by_another(cluster, forest, shards, check, write, tmp_path):
    for part in range(12):
        write(shards / f"part-{part}.parquet", 20_000, seed=part)
    node, done = cluster.add_node(num_cpus=1), []

    def on_done(name, answer):
        done.append(name)
        if len(done) == 3:
            cluster.remove_node(node, allow_graceful=False)

    found = score_shards(forest[1], shards, tmp_path / "out", engine="ray", address=cluster.address, on_done=on_done)
    assert (len(found.records), found.failures) == (12, {})
    for leftover in (tmp_path / "out").rglob(".esad-*"):  # of the lost node
        leftover.unlink()
    check(shards, tmp_path / "out")
