"""From experiment files to cells; wrong files are refused by name."""

import pytest

from esad.bench import grid
from esad.errors import DataFileError, InputError

TEXT = """
name = "tiny"
title = "A tiny experiment"
data = ["breast_cancer", "wine"]
seeds = 3

[scenario]
kind = "table"
labelled_ratio = 0.05

[axes]
"scenario.pollution_ratio" = [0.0, 0.1]

[[variants]]
name = "few trees"
method = "iforest"
settings = { n_trees = 5 }

[[variants]]
name = "many trees"
method = "iforest"
settings = { n_trees = 9 }
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT)
    return path


def test_every_combination_is_a_cell(file):
    cells = list(grid.read_experiment(file).cells())
    assert len(cells) == 2 * 2 * 2 * 3
    assert len({cell.name for _, cell in cells}) == len(cells)
    place, cell = cells[-1]
    assert place == grid.Place("many trees", "wine", (("scenario.pollution_ratio", 0.1),))
    assert cell.scenario == {"kind": "table", "labelled_ratio": 0.05, "pollution_ratio": 0.1}
    assert (cell.settings, cell.seed) == ({"n_trees": 9}, 2)


def test_a_cell_can_be_made_again_from_its_description(file):
    for _, cell in grid.read_experiment(file).cells():
        assert grid.Cell(**cell.describe()).name == cell.name


def test_the_name_depends_on_what_decides_the_outcome_and_on_nothing_else(file):
    experiment = grid.read_experiment(file)
    other = grid.read_experiment(file.rename(file.with_name("other.toml")))
    assert [cell.name for _, cell in experiment.cells()] == [cell.name for _, cell in other.cells()]


def test_a_subset_keeps_values_and_sets_others(file):
    small = grid.read_experiment(file).subset(
        {"data": ["wine"], "seed": ["0", "2"], "variant": ["few trees"], "scenario.pollution_ratio": ["0.1"]}
    )
    assert [(cell.data, cell.seed) for _, cell in small.cells()] == [("wine", 0), ("wine", 2)]
    changed = grid.read_experiment(file).subset({"settings.n_trees": ["2"]})
    assert {cell.settings["n_trees"] for _, cell in changed.cells()} == {2}


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("data", ["iris"], "'iris' is none of"),
        ("seed", ["7"], "'7' is none of"),
        ("epochs", ["3"], "chosen by one of"),
        ("settings.n_trees", ["1", "2"], "chosen by one of"),
    ],
)
def test_a_wrong_subset_is_refused(file, name, values, said):
    with pytest.raises(InputError, match=said):
        grid.read_experiment(file).subset({name: values})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "tiny"', "", "lacks name"),
        ("seeds = 3", 'seeds = "3"', "`seeds` must be"),
        ("seeds = 3", "seeds = 3\ncolour = 1", "unknown keys: colour"),
        ('"wine"', '"iris"', "no data set 'iris'"),
        ('kind = "table"', 'kind = "chair"', "must be one of table"),
        ('method = "iforest"', 'method = "if"', "Unknown method 'if'"),
        ("n_trees = 5", "n_tree = 5", "no parameter 'n_tree'"),
        ("[0.0, 0.1]", "0.1", "the axis"),
        ("[scenario]", "[scenario", "is not TOML"),
        ("seeds = 3", "seeds = 0", "`seeds` must not be empty"),
        ("seeds = 3", "seeds = -1", "`seeds` must be"),
        ("seeds = 3", 'seeds = 3\ncodes = "many"', "`codes` must be a whole number"),
        ("seeds = 3", "seeds = 3\npublished = 3", "`published` must be a text"),
        ('method = "iforest"', "method = 3", "`method` must be a text"),
        ("settings = { n_trees = 5 }", 'settings = ["n_trees"]', "`settings` must be a table"),
        ("settings = { n_trees = 5 }", "choose = { n_trees = 5 }", "`choose.n_trees` must be a list"),
        ("settings = { n_trees = 5 }", 'data = "wine"', "`data` must be a list"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(file, old, new, said):
    file.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(DataFileError, match=said) as caught:
        grid.read_experiment(file)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataFileError, match="Cannot read the experiment"):
        grid.read_experiment(tmp_path / "none.toml")


def test_where_nothing_is_labelled_all_labelled_classes_are_one_cell(tmp_path):
    path = tmp_path / "pictures.toml"
    axes = '"scenario.labelled_ratio" = [0.0, 0.1]\n"scenario.labelled_offset" = [1, 2, 3]'
    path.write_text(TEXT.replace('"scenario.pollution_ratio" = [0.0, 0.1]', axes).replace("labelled_ratio = 0.05", ""))
    cells = [
        cell for _, cell in grid.read_experiment(path).subset({"data": ["wine"], "variant": ["few trees"]}).cells()
    ]
    drawn = [(cell.scenario["labelled_ratio"], cell.scenario["labelled_offset"]) for cell in cells if cell.seed == 0]
    assert drawn == [(0.0, 1), (0.1, 1), (0.1, 2), (0.1, 3)]


def test_a_variant_can_be_for_some_of_the_data(tmp_path):
    path = tmp_path / "tiny.toml"
    own = TEXT.replace('name = "few trees"', 'name = "trees"\ndata = ["wine"]')
    path.write_text(own.replace('name = "many trees"', 'name = "trees"\ndata = ["breast_cancer"]'))
    found = {
        (place.variant, place.data, cell.settings["n_trees"]) for place, cell in grid.read_experiment(path).cells()
    }
    assert found == {("trees", "wine", 5), ("trees", "breast_cancer", 9)}
