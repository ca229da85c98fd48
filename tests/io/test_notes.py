"""What a model notes of its data: the names it is stored by, and what becomes of forged notes."""

import pytest

from esad.errors import ModelFileError
from esad.io.dialect import Reading
from esad.io.notes import DataSource, Notes, Roles

STORED = {
    "anomaly_value": "fraud",
    "id_column": "serial",
    "label_column": "verdict",
    "normal_value": 1,
    "unlabelled_value": "?",
    "ignored_columns": ["day", ""],
    "labels_csv": "/data/labels.csv",
    "decimal_point": ",",
    "date_format": "day-first",
    "encoding": "cp1250",
    "sheet": "June",
    "percent_columns": ["share"],
    "training_data": ["/data/a.csv", "/data/b.csv"],
    "training_fingerprints": ["1a", "2b"],
    "training_judgements": ["", "/data/b.esad.review"],
}


def test_the_names_by_which_notes_are_stored_stay_what_they_are():
    words = {"anomaly_value": "fraud", "normal_value": 1, "unlabelled_value": "?"}
    notes = Notes(
        roles=Roles(label_column="verdict", id_column="serial", ignore=("day", ""), **words),
        labels_csv="/data/labels.csv",
        written=Reading(
            decimal=",", date_format="day-first", encoding="cp1250", sheet="June", percents=frozenset({"share"})
        ),
        sources=(DataSource("/data/a.csv", "1a"), DataSource("/data/b.csv", "2b", "/data/b.esad.review")),
    )
    assert notes.to_json() == STORED
    assert "percent_columns" not in Notes().to_json()
    assert Notes.from_json(STORED | {"somebody's own": [1, 2]}) == notes


@pytest.mark.parametrize(
    "forged",
    [
        {"decimal_point": "x", "date_format": ["%d"], "encoding": "no such", "sheet": 3},
        {"training_data": "a.csv"},
        {"training_data": ["a.csv"], "training_fingerprints": ["1", "2"]},
        {"anomaly_value": ["a"], "labels_csv": 7, "ignored_columns": "day"},
    ],
)
def test_notes_that_are_of_no_use_are_passed_over(forged):
    assert Notes.from_json(forged) == Notes()


@pytest.mark.parametrize("damaged", [[], None, {"id_column": {}}, {"x": [[1]]}, {"ignored_columns": 7}])
def test_damaged_notes_are_refused(damaged):
    with pytest.raises(ModelFileError, match="notes"):
        Notes.from_json(damaged)
