"""Labels and truths as users bring them, and every way of getting them wrong."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad import labels
from esad.errors import InputError, LabelError

CONTAINERS = {
    "list": list,
    "pandas": pd.Series,
    "pandas object": lambda values: pd.Series(values, dtype=object),
    "polars": lambda values: pl.Series(values, strict=False),
    "arrow": pa.array,
    "arrow chunked": lambda values: pa.chunked_array([pa.array(values)]),
}


@pytest.fixture(params=CONTAINERS.values(), ids=CONTAINERS.keys())
def container(request):
    return request.param


class TestCheck:
    def test_none_means_that_no_row_is_labelled(self):
        y = labels.check(None, 3)
        assert y.dtype == np.int8
        assert y.tolist() == [0, 0, 0]

    def test_missing_entries_are_unlabelled_in_every_library(self, container):
        y = labels.check(container([-1, None, 0, 1]), 4)
        assert y.dtype == np.int8
        assert y.tolist() == [-1, 0, 0, 1]

    def test_pandas_nullable_integers_are_read(self):
        assert labels.check(pd.Series([-1, None, 1], dtype="Int64"), 3).tolist() == [-1, 0, 1]

    @pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, np.float64, object])
    def test_every_number_type_is_read(self, dtype):
        assert labels.check(np.array([-1, 0, 1], dtype=dtype), 3).tolist() == [-1, 0, 1]

    @pytest.mark.parametrize("bad", [2, 0.5, np.inf, -2])
    def test_another_number_is_named_with_the_fix(self, bad):
        with pytest.raises(LabelError, match=r"`y` must hold -1 .*Got \[.*\]\. See esad\.labels\.from_binary\."):
            labels.check([0, -1, bad], 3)

    def test_the_message_is_the_documented_one(self):
        with pytest.raises(LabelError) as caught:
            labels.check([2, 0], 2)
        assert str(caught.value) == (
            "`y` must hold -1 (anomaly), 0 (unlabelled) or +1 (normal). Got [2]. See esad.labels.from_binary."
        )

    def test_words_are_read_as_in_a_file(self, container):
        assert labels.check(container(["Fraud", None, "Not Fraud"]), 3).tolist() == [-1, 0, 1]

    @pytest.mark.parametrize("library", [pd, pl])
    def test_a_series_named_by_a_question_may_hold_yes_and_no(self, library):
        answers = library.Series(name="is_fraud", **{"data" if library is pd else "values": ["yes", "", "no"]})
        assert labels.check(answers, 3).tolist() == [-1, 0, 1]
        assert labels.check(answers.to_frame(), 3).tolist() == [-1, 0, 1]

    @pytest.mark.parametrize("y", [["yes", "no"], ["1", "0"], ["anomaly", "shipped"]])
    def test_words_that_may_mean_anything_point_to_from_column(self, y):
        with pytest.raises(LabelError, match=r"esad\.labels\.from_column\(y, anomaly_value=\.\.\.\)"):
            labels.check(y, 2)

    @pytest.mark.parametrize("y", [[[-1], [0], [1]], np.array([[-1.0], [np.nan], [1.0]]), [["bad"], [""], ["good"]]])
    def test_a_table_of_one_column_is_one_column(self, y):
        assert labels.check(y, 3).tolist() == [-1, 0, 1]

    @pytest.mark.parametrize("cells", [[-1, 0, 1, -1], [[-1], [9], [1], [-1]], ["bad", "?", "good", "bad"]])
    def test_masked_cells_are_unlabelled(self, cells):
        masked = np.ma.array(cells, mask=np.reshape([False, True, False, True], np.shape(cells)))
        assert labels.check(masked, 4).tolist() == [-1, 0, 1, 0]

    @pytest.mark.parametrize("y", [[True, False], pd.Series([True, None]), np.array([True, False], dtype=object)])
    def test_booleans_are_ambiguous(self, y):
        with pytest.raises(LabelError, match="from_binary"):
            labels.check(y, 2)

    @pytest.mark.parametrize("y", [np.zeros((2, 2)), np.float64(1), [[0, 1], [0]], [0, [1]]])
    def test_anything_but_one_column_is_refused(self, y):
        with pytest.raises(LabelError, match="must be one column"):
            labels.check(y, 2)

    def test_unhashable_cells_are_refused(self):
        cells = np.empty(2, dtype=object)
        cells[:] = [0, {}]
        with pytest.raises(LabelError, match="row 1"):
            labels.check(cells, 2)

    @pytest.mark.parametrize("y", [np.array([1 + 0j, 0j]), np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")])
    def test_values_that_are_no_real_numbers_are_refused(self, y):
        with pytest.raises(LabelError, match="must hold"):
            labels.check(y, 2)

    def test_wrong_length_says_both_lengths(self):
        with pytest.raises(LabelError, match="2 labels for 3 rows"):
            labels.check([0, 1], 3)

    def test_only_zero_and_one_warns_that_one_means_normal(self):
        with pytest.warns(UserWarning, match="1 means normal here"):
            labels.check([0, 1, 0], 3)

    @pytest.mark.parametrize("y", [[-1, 1], [1, 1], [-1, -1]])
    def test_no_unlabelled_row_warns_once(self, y):
        with pytest.warns(UserWarning, match="no unlabelled row") as caught:
            labels.check(y, 2)
        assert len(caught) == 1

    @given(st.lists(st.sampled_from([-1, 0, 1, None]), min_size=1))
    def test_checking_twice_changes_nothing(self, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            once = labels.check(y, len(y))
            assert labels.check(once, len(y)).tolist() == once.tolist() == [label or 0 for label in y]

    def test_many_wrong_values_are_cut_short(self):
        with pytest.raises(LabelError, match=r"\[2, 3, 4, 5, 6, \.\.\. \(98 values\)\]"):
            labels.check(np.arange(2, 100), 98)


class TestFromBinary:
    def test_one_is_anomaly_and_zero_unlabelled(self, container):
        assert labels.from_binary(container([1, 0, None])).tolist() == [-1, 0, 0]

    def test_booleans_are_read_in_every_library(self, container):
        assert labels.from_binary(container([True, False, None])).tolist() == [-1, 0, 0]

    def test_zero_may_mean_normal(self):
        y = labels.from_binary([1, 0, None], zero="normal")
        assert y.dtype == np.int8
        assert y.tolist() == [-1, 1, 0]

    @pytest.mark.parametrize("y", [[0, 2], ["1", "0"], [-1, 1]])
    def test_other_values_are_refused(self, y):
        with pytest.raises(LabelError, match="Got"):
            labels.from_binary(y)

    def test_an_unknown_meaning_of_zero_is_refused(self):
        with pytest.raises(InputError, match='"unlabelled" or "normal"'):
            labels.from_binary([0, 1], zero="other")


class TestFromColumn:
    def test_words_are_read_in_any_case_and_blanks_are_unlabelled(self, container):
        column = ["Anomaly", " NORMAL ", "unlabelled", "Unlabeled", "unknown", "", "  ", None]
        assert labels.from_column(container(column)).tolist() == [-1, 1, 0, 0, 0, 0, 0, 0]

    @pytest.mark.parametrize("column", [[-1, 0, 1, None], ["-1", "0", "+1", ""], [-1.0, 0.0, 1.0, np.nan]])
    def test_the_three_numbers_are_read(self, column):
        assert labels.from_column(column).tolist() == [-1, 0, 1, 0]

    @pytest.mark.parametrize("column", [[0, 1], ["0", "1"], [0.0, 1.0], [1, None]])
    def test_zero_and_one_need_the_anomaly_value(self, column):
        with pytest.raises(LabelError, match=r"'state'.*`anomaly_value=1`"):
            labels.from_column(column, name="state")

    @pytest.mark.parametrize(("column", "word"), [([True, False], "True"), (["true", "false"], "'true'")])
    def test_truth_values_need_the_one_that_marks_anomalies(self, column, word):
        with pytest.raises(LabelError, match=rf"`anomaly_value={word}`"):
            labels.from_column(column)
        assert labels.from_column(column, anomaly_value=column[0], normal_value=column[1]).tolist() == [-1, 1]

    @pytest.mark.parametrize("anomaly_value", [1, "1", 1.0, "1.0", True, "true"])
    @pytest.mark.parametrize("column", [[0, 1], ["0", "1"], [0.0, 1.0], [False, True], ["False", "True"]])
    def test_the_same_number_matches_however_it_is_written(self, column, anomaly_value):
        assert labels.from_column(column, anomaly_value=anomaly_value).tolist() == [0, -1]

    def test_normal_value_marks_known_normals(self):
        assert labels.from_column([0, 1, None], anomaly_value=1, normal_value=0).tolist() == [1, -1, 0]
        assert labels.from_column(["bad", "good", ""], anomaly_value="bad", normal_value="good").tolist() == [-1, 1, 0]
        assert labels.from_column([0, 1], normal_value=1).tolist() == [0, 1]

    def test_signs_may_be_swapped(self):
        assert labels.from_column([1, 0, -1], anomaly_value=1, normal_value=-1).tolist() == [-1, 0, 1]

    def test_naming_the_usual_values_changes_nothing(self):
        assert labels.from_column([-1, 0, 1], anomaly_value=-1).tolist() == [-1, 0, 1]

    def test_a_column_of_blanks_and_zeros_is_unlabelled(self):
        assert labels.from_column([None, ""]).tolist() == [0, 0]
        assert labels.from_column([0, 0]).tolist() == [0, 0]

    def test_an_anomaly_value_that_never_occurs_lists_what_was_seen(self):
        with pytest.raises(LabelError, match=r"'frod' never occurs in 'kind', which holds \['fraud', 'ok'\]"):
            labels.from_column(["fraud", "ok"], anomaly_value="frod", name="kind")

    def test_a_normal_value_that_never_occurs_is_refused(self):
        with pytest.raises(LabelError, match="normal value 'fine' never occurs"):
            labels.from_column(["fraud", "ok"], anomaly_value="fraud", normal_value="fine")

    def test_values_left_over_are_named(self):
        with pytest.raises(LabelError, match=r"Got \['ok'\]"):
            labels.from_column(["fraud", "ok", ""], anomaly_value="fraud")
        with pytest.raises(LabelError, match=r"Got \[2\]"):
            labels.from_column([-1, 0, 2])

    def test_one_value_cannot_mean_both(self):
        with pytest.raises(LabelError, match="must differ"):
            labels.from_column([0, 1], anomaly_value=1, normal_value="1")


class TestTruth:
    @pytest.mark.parametrize("values", [[0, 1], [1, -1], ["normal", "ANOMALY"], [False, True], ["0", "1"], [0.0, 1.0]])
    def test_every_form_gives_true_for_anomalies(self, values):
        found = labels.truth(values)
        assert found.dtype == np.bool_
        assert found.tolist() == [False, True]

    def test_with_an_anomaly_value_all_else_is_normal(self):
        assert labels.truth(["a", "b", "c"], anomaly_value="b").tolist() == [False, True, False]

    @pytest.mark.parametrize("values", [[0, None], ["normal", ""], [np.nan, 1.0], np.ma.array([0, 1], mask=[0, 1])])
    def test_blanks_are_refused(self, values):
        with pytest.raises(LabelError, match="1 blank"):
            labels.truth(values)

    @pytest.mark.parametrize("values", [[0, 2], [-1, 0, 1], ["unlabelled", "normal"], ["x", "y"]])
    def test_other_values_are_refused(self, values):
        with pytest.raises(LabelError, match="'diagnosis' must hold 1"):
            labels.truth(values, name="diagnosis")

    def test_an_anomaly_value_that_never_occurs_is_refused(self):
        with pytest.raises(LabelError, match="never occurs"):
            labels.truth([0, 1], anomaly_value=2)


def test_counts_add_up():
    assert labels.counts([-1, 0, 0, 1]) == labels.LabelCounts(n_anomaly=1, n_unlabelled=2, n_normal=1)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["anomaly", None], dtype="category"),
        pl.Series(["anomaly", None], dtype=pl.Categorical),
        pa.array(["anomaly", None]).dictionary_encode(),
        pa.chunked_array([pa.array(["anomaly", None]).dictionary_encode()]),
    ],
    ids=["pandas", "polars", "arrow", "arrow in chunks"],
)
def test_category_columns_are_read_like_text(column):
    assert labels.from_column(column).tolist() == [-1, 0]


class TestUsualWords:
    @pytest.mark.parametrize(
        ("column", "name", "expected"),
        [
            (["Fraud", "Not Fraud", ""], "class", [-1, 1, 0]),
            (["not_fraud", "FRAUD", None], "class", [1, -1, 0]),
            (["bad", "good", "unknown"], "state", [-1, 1, 0]),
            (["yes", "No", ""], "is_fraud", [-1, 1, 0]),
        ],
    )
    def test_are_understood_where_nothing_is_said(self, column, name, expected):
        assert labels.from_column(column, name=name).tolist() == expected

    def test_yes_needs_a_question_or_a_meaning(self):
        with pytest.raises(LabelError, match=r"`anomaly_value`.*`unlabelled_value`"):
            labels.from_column(["yes", "no"], name="checked")
        found = labels.from_column(["yes", "no", "no"], anomaly_value="yes", unlabelled_value="no", name="checked")
        assert found.tolist() == [-1, 0, 0]

    def test_a_value_may_mean_that_nobody_looked(self):
        assert labels.from_column([1, 0, 9], anomaly_value=1, normal_value=0, unlabelled_value=9).tolist() == [-1, 1, 0]
        with pytest.raises(LabelError, match="`unlabelled_value`"):
            labels.from_column(["fraud", "?"], anomaly_value="fraud")
        with pytest.raises(LabelError, match="never occurs"):
            labels.from_column(["fraud", ""], unlabelled_value="later")

    def test_truth_speaks_the_same(self):
        assert labels.truth(["Fraud", "Not Fraud"]).tolist() == [True, False]
        assert labels.truth(["yes", "no"], name="fraud").tolist() == [True, False]
