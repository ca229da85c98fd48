"""Which files are shards and what their scores are called."""

import os

import pytest

from esad.errors import DataFileError, InputError, OutputError
from esad.scale.shards import plan_shards


def named(shards):
    return [(shard.name, os.path.basename(shard.target)) for shard in shards]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "a/x.csv",
        "a/b/y.parquet",
        "a/b/_SUCCESS",
        "a/.hidden/z.csv",
        "a/_temporary/z.csv",
        "a/n.txt",
        "c.tsv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def test_a_folder_is_every_table_below_it_but_hidden_ones(place):
    assert named(plan_shards(["a"], place / "out")) == [("b/y.parquet", "y.parquet"), ("x.csv", "x.csv")]
    assert [shard.target for shard in plan_shards(["a"], place / "out")] == [
        str(place / "out" / "b" / "y.parquet"),
        str(place / "out" / "x.csv"),
    ]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a/*", ["x.csv"]),
        ("a/**/*", ["b/y.parquet", "x.csv"]),
        ("*/b/y.parquet", ["a/b/y.parquet"]),
        ("a/b/[xy].p*", ["y.parquet"]),
        ("?.tsv", ["c.tsv"]),
    ],
)
def test_names_are_those_below_the_fixed_part_of_a_pattern(place, pattern, names):
    assert [shard.name for shard in plan_shards([pattern], place / "out")] == names


def test_single_files_are_named_below_what_they_share(place):
    assert [shard.name for shard in plan_shards(["a/x.csv", "a/b/y.parquet"], place / "out")] == [
        "b/y.parquet",
        "x.csv",
    ]
    assert [shard.name for shard in plan_shards(["c.tsv", place / "c.tsv"], place / "out")] == ["c.tsv"]


def test_the_format_of_the_scores_is_that_of_the_shard_or_the_one_asked_for(place):
    for name in ("g.csv.gz", "h.tsv.gz", "i.PQ"):
        (place / name).write_text("x")
    files = ["c.tsv", "g.csv.gz", "h.tsv.gz", "i.PQ"]
    assert [target for _, target in named(plan_shards(files, place / "out"))] == [
        "c.csv",
        "g.csv.gz",
        "h.csv.gz",
        "i.pq",
    ]
    assert {target for _, target in named(plan_shards(files, place / "out", form="parquet"))} == {
        f"{stem}.parquet" for stem in "cghi"
    }


def test_scores_of_an_earlier_run_in_the_same_folder_are_no_shards(place):
    (place / "a" / "scores").mkdir()
    (place / "a" / "scores" / "x.csv").write_text("x")
    assert [shard.name for shard in plan_shards(["a"], place / "a" / "scores")] == ["b/y.parquet", "x.csv"]
    assert [shard.name for shard in plan_shards(["a/**/*.csv"], place / "a" / "scores")] == ["x.csv"]
    assert len(plan_shards(["a"], place)) == 3  # the folder above is none of its own


def test_mistakes_are_named(place):
    def assert_refused(error, message, *args, **options):
        with pytest.raises(error, match=message):
            plan_shards(*args, **options)

    (place / "empty").mkdir()
    (place / "c.csv").write_text("x")
    assert_refused(DataFileError, "No table matches 'z-\\*.csv'", ["z-*.csv"], place / "out")
    assert_refused(DataFileError, "holds no table", ["empty"], place / "out")
    assert_refused(DataFileError, "no such file", ["gone.csv"], place / "out")
    assert_refused(DataFileError, "must end in one of", ["a/n.txt"], place / "out")
    assert_refused(InputError, "one of csv, parquet, xlsx. Got 'json'", ["a"], place / "out", form="json")
    assert_refused(InputError, "'c.csv' and 'c.tsv' would both go to", ["c.csv", "c.tsv"], place / "out")
    assert_refused(OutputError, "it is a file being read", ["a"], place / "a")
    (place / "d").mkdir()
    (place / "d" / "x.csv").write_text("x")
    assert_refused(InputError, "would have the same name", ["a", "d"], place / "out")
