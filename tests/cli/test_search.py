"""`esad fit --search`: says which recipe and why, before the training."""

import pytest


@pytest.fixture(autouse=True)
def one_recipe(monkeypatch):
    """One beside the default: what recipes are tried is tested with the search itself."""
    monkeypatch.setattr("esad.advice.search.RECIPES", {"little input noise": {"input_noise": 0.1}})


@pytest.fixture
def labelled(kit, tmp_path):
    """Six known anomalies, enough to choose by."""
    table = kit.rows()
    for row in (10, 30, 50):
        table[row] = [table[row][0], "9.1", "black", *table[row][3:5], "anomaly"]
    return kit.csv(tmp_path / "labelled.csv", kit.header, table)


def test_the_recipe_is_named_and_the_trials_are_in_the_json(esad, labelled, kit, tmp_path):
    out = tmp_path / "out.esad"
    roles = ("-l", "verdict", "-i", "serial", "--out", out, "--search")
    found = esad("fit", labelled, *roles, "-m", "esad", "--json", *kit.tiny).json["search"]
    assert [trial["name"] for trial in found["trials"]] == ["default", "little input noise"]
    assert found["chosen"] in {trial["name"] for trial in found["trials"]}


def test_the_method_that_the_data_choose_is_searched(esad, labelled, kit, tmp_path):
    out = tmp_path / "out.esad"
    roles = ("-l", "verdict", "-i", "serial", "--out", out, "--search", "--set", "n_trees=10")
    done = esad("fit", labelled, *roles, "--json", *kit.tiny).json
    assert [trial["name"] for trial in done["search"]["trials"]] == ["default", "ESAD alone", "trees alone"]
    methods = {"default": "committee", "ESAD alone": "esad", "trees alone": "bagged_trees"}
    assert done["method"] == methods[done["search"]["chosen"]]


def test_with_few_labels_recipes_are_judged_by_their_agreement(esad, parts, kit, tmp_path):
    done = esad("fit", parts, "-l", "verdict", "--out", tmp_path / "out.esad", "--search", *kit.tiny)
    assert done.code == 0
    said = next(line for line in done.out.splitlines() if line.startswith("Recipe: "))
    assert "agreement" in done.out[done.out.index(said) :]


def test_other_methods_have_no_recipes(esad, labelled, tmp_path):
    out = tmp_path / "out.esad"
    done = esad("fit", labelled, "-l", "verdict", "-i", "serial", "-m", "iforest", "--search", "--out", out, "--quiet")
    assert done.code == 2
    assert done.err == "error: There are recipes for ESAD and the committee on tables only. Leave --search out.\n"
    assert not out.exists()
