"""New rows like the training rows raise no alarm, shifted ones do, and the counts behind it are right."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2_contingency, fisher_exact, ks_2samp
from support import methods, small_labels, tiny

import esad
from esad import IsolationForest
from esad.errors import InputError, ModelFileError
from esad.preprocess.inputs import Inputs
from esad.score.drift import Drift, DriftMonitor, _chi_square, _fisher, _holm, _kolmogorov_smirnov
from esad.table.columns import read_array
from esad.table.profile import MAX_ROWS, ColumnProfile, Profile, draw_profiled_rows
from esad.table.table import Schema, Table

WAYS: dict[tuple[str, ...], Inputs] = {}  # by column names: the schema of all rows drawn in one way is the same


def compared(old: object, new: object, **options: float) -> Drift:
    """The report on new rows, without a model."""
    table = Table.from_any(old)
    if table.names not in WAYS:
        WAYS[table.names], _ = Inputs.fit(table, np.zeros(table.n_rows, dtype=np.int8), scaling="standard")
    inputs = WAYS[table.names]
    profile = Profile.fit(inputs.describe(table))
    monitor = DriftMonitor(profile, inputs, held_out=None)
    monitor.add(new, np.zeros(0))
    return monitor.report(**options)


def mixed(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Columns as people have them: skewed, coarse, correlated, with words, gaps and dates."""
    base = rng.normal(size=n)
    return pd.DataFrame(
        {
            "size": base + rng.normal(size=n),
            "amount": np.exp(base),
            "count": rng.poisson(2, n),
            "constant": 1.0,
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "colour": rng.choice(["red", "green", "blue", None], n, p=[0.5, 0.3, 0.15, 0.05]),
            "rare": rng.choice([f"word {k}" for k in range(60)], n),
            "open": rng.random(n) < 0.3,
            "day": np.datetime64("2024-01-01") + rng.integers(0, 300, n).astype("m8[D]"),
            "last": rng.standard_t(3, n),
        }
    )


class TestPromises:
    def test_halves_of_one_table_raise_an_alarm_in_at_most_one_of_twenty(self):
        rng = np.random.default_rng(0)
        n_draws = 100
        n_alarms = 0
        for _ in range(n_draws):
            rows = mixed(rng, 300)
            n_alarms += compared(rows[:150], rows[150:]).drifted
        assert n_alarms <= 0.05 * n_draws

    def test_without_a_smallest_distance_the_level_alone_holds(self):
        rng = np.random.default_rng(1)
        n_draws = 300
        n_alarms = 0
        for _ in range(n_draws):
            rows = rng.normal(size=(600, 4))
            n_alarms += compared(rows[:300], rows[300:], min_distance=0.0).drifted
        assert n_alarms <= binom.ppf(0.999, n_draws, 0.05)

    def test_columns_of_which_the_training_has_a_single_value_raise_no_more_alarms(self):
        rng = np.random.default_rng(5)
        n_draws, n_alarms = 100, 0
        for _ in range(n_draws):
            old, new = rng.normal(size=(2, 400, 8))
            old[1:] = np.nan
            n_alarms += any(shift.drifted for shift in compared(old, new[:20]).shifts if shift.what == "values")
        assert n_alarms <= binom.ppf(0.999, n_draws, 0.05)

    @pytest.mark.parametrize("name", ["size", "last"])
    def test_a_shift_of_one_standard_deviation_in_one_of_ten_columns_is_found(self, name):
        rng = np.random.default_rng(2)
        n_draws = 25
        n_found = 0
        for _ in range(n_draws):
            rows = mixed(rng, 2000)
            new = rows[1000:].copy()
            new[name] += rows[name].std()
            report = compared(rows[:1000], new)
            n_found += report.drifted and report.found[0].column == name
        assert n_found >= 0.95 * n_draws

    def test_many_rows_with_a_difference_that_does_not_matter_are_left_alone(self):
        rng = np.random.default_rng(3)
        old, new = rng.normal(size=(40_000, 2)), rng.normal(0.05, 1, size=(40_000, 2))
        report = compared(old, new)
        assert not report.drifted
        assert max(shift.p_value for shift in report.shifts) < 0.01  # significant, and small
        assert compared(old, new, min_distance=0.005).drifted

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            (
                lambda rows: rows.assign(colour=rows["colour"].mask(rows["colour"].notna(), "green")),
                ("colour", "values", "chi-square"),
            ),
            (
                lambda rows: rows.assign(colour=rows["colour"].replace("red", "mauve")),
                ("colour", "values", "chi-square"),
            ),
            (lambda rows: rows.assign(open=True), ("open", "values", "chi-square")),
            (lambda rows: rows.assign(gaps=np.nan), ("gaps", "missing", "Fisher")),
            (lambda rows: rows.assign(size=rows["size"].mask(rows.index % 5 == 0)), ("size", "missing", "Fisher")),
            (
                lambda rows: rows.assign(day=rows["day"] + np.timedelta64(60, "D")),
                ("day", "values", "Kolmogorov-Smirnov"),
            ),
            (lambda rows: rows.assign(constant=0.0), ("constant", "values", "Kolmogorov-Smirnov")),
            (lambda rows: rows.assign(constant=2.0), ("constant", "values", "Kolmogorov-Smirnov")),
            (lambda rows: rows.assign(amount=np.inf), ("amount", "values", "Kolmogorov-Smirnov")),
        ],
    )
    def test_every_kind_of_change_is_found_and_named(self, change, what):
        rows = mixed(np.random.default_rng(4), 1000)
        report = compared(rows[:500], change(rows[500:].copy()))
        assert [(shift.column, shift.what, shift.test) for shift in report.found] == [what]
        assert str(report.found[0]).startswith(f"'{what[0]}' ({what[2]}")


def column_of(numbers):
    return read_array(np.asarray(numbers, dtype=float), "x")


class TestCounts:
    @settings(max_examples=60)
    @given(
        old=st.lists(st.integers(-4, 4) | st.floats(-5, 5), min_size=1, max_size=60),
        new=st.lists(st.integers(-6, 6) | st.floats(-7, 7), min_size=1, max_size=60),
    )
    def test_the_counted_distance_is_never_more_than_the_true_one(self, old, new):
        column = ColumnProfile.fit("x", column_of(old))
        counted = column.count(column_of(new))
        assert (column.training.n_present, counted.n_present) == (len(old), len(new))
        distance, _ = _kolmogorov_smirnov(column.training.counts, counted.counts)
        points = [*old, *new]
        true = max(abs(np.mean(np.array(old) <= point) - np.mean(np.array(new) <= point)) for point in points)
        assert distance <= true + 1e-12

    def test_distance_and_p_value_are_scipys_up_to_the_percentiles(self):
        rng = np.random.default_rng(5)
        old, new = rng.normal(size=800), rng.normal(0.15, 1, size=700)
        column = ColumnProfile.fit("x", column_of(old))
        distance, p_value = _kolmogorov_smirnov(column.training.counts, column.count(column_of(new)).counts)
        wanted = ks_2samp(old, new, method="asymp")
        assert wanted.statistic - 0.02 <= distance <= wanted.statistic
        assert p_value == pytest.approx(ks_like(distance, 800, 700))
        assert p_value >= wanted.pvalue

    def test_a_coarse_column_loses_nothing(self):
        rng = np.random.default_rng(6)
        old, new = rng.poisson(3, 500).astype(float), rng.poisson(4, 400).astype(float)
        column = ColumnProfile.fit("x", column_of(old))
        distance, _ = _kolmogorov_smirnov(column.training.counts, column.count(column_of(new)).counts)
        assert distance == pytest.approx(ks_2samp(old, new).statistic, abs=0.011)

    @pytest.mark.parametrize(("n_old", "n_new"), [(1, 1), (1, 20), (2, 20), (3, 5), (20, 1)])
    def test_few_values_are_never_surer_than_they_can_be(self, n_old, n_new):
        old, new = np.array([n_old, 0]), np.array([0, n_new])  # all new values are larger
        least = ks_2samp(np.arange(n_old), n_old + np.arange(n_new), method="exact").pvalue
        assert _kolmogorov_smirnov(old, new) == (1.0, pytest.approx(least))

    def test_chi_square_is_scipys_where_cells_are_full(self):
        old, new = np.array([50, 30, 20]), np.array([20, 30, 50])
        distance, p_value = _chi_square(old, new)
        assert p_value == pytest.approx(chi2_contingency([old, new], correction=False).pvalue)
        assert distance == pytest.approx(0.3)

    @given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))
    def test_chi_square_of_any_counts_is_a_distance_and_a_p_value(self, cells):
        old, new = np.array(cells).T
        if old.sum() and new.sum():
            distance, p_value = _chi_square(old, new)
            assert 0 <= distance <= 1
            assert 0 <= p_value <= 1

    def test_missing_shares_are_compared_by_fisher(self):
        old, new = (
            ColumnProfile.fit("x", column_of(np.r_[np.full(5, np.nan), np.zeros(95)])),
            np.r_[np.full(40, np.nan), np.zeros(60)],
        )
        distance, p_value = _fisher(old.training, old.count(column_of(new)))
        assert distance == pytest.approx(0.35)
        assert p_value == pytest.approx(fisher_exact([[5, 95], [40, 60]]).pvalue)

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
    def test_holm_is_what_it_says(self, p_values):
        ordered = np.sort(p_values)
        wanted = [min(1.0, max(ordered[i] * (len(ordered) - i) for i in range(k + 1))) for k in range(len(ordered))]
        np.testing.assert_allclose(np.sort(_holm(np.array(p_values))), wanted)

    def test_batches_add_up(self):
        rows = mixed(np.random.default_rng(7), 300)
        inputs, _ = Inputs.fit(Table.from_any(rows), np.zeros(300, dtype=np.int8), scaling="standard")
        profile = Profile.fit(inputs.describe(Table.from_any(rows)))
        monitor = DriftMonitor(profile, inputs, held_out=None)
        for first in range(0, 300, 70):
            monitor.add(rows[first : first + 70], np.zeros(0))
        whole = compared(rows, rows)
        assert monitor.report() == whole
        assert not whole.drifted
        assert max(shift.distance for shift in whole.shifts if shift.test == "Kolmogorov-Smirnov") == 0


def ks_like(distance: float, n_old: int, n_new: int) -> float:
    from scipy.stats import kstwo

    return float(kstwo.sf(distance, round(n_old * n_new / (n_old + n_new))))


class TestDetectors:
    @pytest.mark.parametrize("name", methods())
    def test_every_method_reports_drift_and_saves_what_it_needs(self, name, tmp_path):
        rows = mixed(np.random.default_rng(8), 160)
        detector = tiny(name).fit(rows[:100], small_labels(name, 100))
        detector.save(tmp_path / "model.esad")
        loaded = esad.load(tmp_path / "model.esad")
        shifted = rows[100:].assign(last=50.0)
        assert loaded.drift(shifted) == detector.drift(shifted)
        assert [shift.column for shift in loaded.drift(shifted).found] == ["last"]

    def test_scores_are_compared_where_rows_were_held_out(self):
        rng = np.random.default_rng(9)
        forest = IsolationForest(n_trees=30, random_state=0).fit(rng.normal(size=(800, 5)), calibration_ratio=0.5)
        assert [shift.column for shift in forest.drift(rng.normal(size=(300, 5))).shifts][-1] is None
        assert not forest.drift(rng.normal(size=(300, 5))).drifted
        correlated = np.repeat(rng.normal(size=(300, 1)), 5, axis=1)  # every column looks as before
        assert [(shift.column, shift.what) for shift in forest.drift(correlated).found] == [(None, "scores")]
        forest.calibrate(rng.normal(size=(300, 5)))
        assert None not in [shift.column for shift in forest.drift(correlated).shifts]

    def test_labelled_anomalies_of_the_training_are_not_compared_with(self):
        rng = np.random.default_rng(10)
        X = np.r_[rng.normal(size=(200, 2)), rng.normal(9, 1, size=(100, 2))]
        forest = IsolationForest(n_trees=10, random_state=0).fit(X, np.repeat([0, -1], [200, 100]))
        assert forest.profile_.columns[0].training.n_present == 200
        assert not forest.drift(rng.normal(size=(200, 2))).drifted

    def test_pictures_are_compared_by_brightness_and_contrast(self, tmp_path):
        rng = np.random.default_rng(11)
        pictures = rng.integers(0, 100, size=(120, 8, 8, 3), dtype=np.uint8)
        forest = tiny("iforest").fit(pictures[:80])
        forest.save(tmp_path / "model.esad")
        loaded = esad.load(tmp_path / "model.esad")
        assert not loaded.drift(pictures[80:]).drifted
        brighter = pictures[80:].copy()
        brighter[..., 1] += 100
        assert [shift.column for shift in loaded.drift(brighter).found] == ["brightness of channel 1"]

    def test_few_rows_are_not_tested(self, rows):
        report = tiny("iforest").fit(*rows).drift(np.full((19, rows[0].shape[1]), 1e6))
        assert (report.shifts, report.drifted) == ((), False)

    @pytest.mark.parametrize("options", [{"level": 0}, {"level": 1.5}, {"min_distance": -1}, {"min_distance": None}])
    def test_wrong_options_are_refused(self, options, rows):
        with pytest.raises(InputError, match="must be"):
            tiny("iforest").fit(*rows).drift(rows[0], **options)


def test_of_very_many_rows_some_are_summarised():
    rows = draw_profiled_rows(np.arange(3 * MAX_ROWS) % 2 == 0)
    assert len(rows) == len(set(rows.tolist())) == MAX_ROWS
    assert (rows % 2 == 0).all()


class TestFiles:
    @pytest.fixture
    def state(self):
        table = Table.from_any(mixed(np.random.default_rng(12), 50))
        schema = Schema.infer(table)
        arrays, plain = Profile.fit(schema.align(table)).state()
        return arrays, plain, schema.names

    def test_the_state_comes_back(self, state):
        arrays, plain, names = state
        again, plain_again = Profile.from_state(arrays, plain, names=names).state()
        assert plain_again == plain
        for name, value in arrays.items():
            np.testing.assert_array_equal(again[name], value)

    @pytest.mark.parametrize(
        "change",
        [
            {"name": "other"},
            {"kind": "text"},
            {"kind": "category"},
            {"n_edges": -1},
            {"n_edges": 10**9},
            {"n_edges": 3.0},
            {"categories": ["x"]},
            {"categories": None},
            {"n_missing": -1},
            {"n_missing": 10**12},
            {"more": 1},
        ],
    )
    def test_forged_columns_are_refused(self, state, change):
        arrays, plain, names = state
        with pytest.raises(ModelFileError, match="preprocessing is damaged"):
            Profile.from_state(arrays, [plain[0] | change, *plain[1:]], names=names)

    @pytest.mark.parametrize(
        ("name", "forge"),
        [
            ("edges", lambda value: value[::-1]),
            ("edges", lambda value: value[1:]),
            ("edges", lambda value: value * np.nan),
            ("edges", lambda value: value.astype(np.float32)),
            ("counts", lambda value: -1 - value),
            ("counts", lambda value: value + 2**62),
            ("counts", lambda value: value[:-1]),
            ("counts", lambda value: value.astype(np.float64)),
        ],
    )
    def test_forged_arrays_are_refused(self, state, name, forge):
        arrays, plain, names = state
        with pytest.raises(ModelFileError, match="preprocessing is damaged"):
            Profile.from_state(arrays | {name: forge(arrays[name])}, plain, names=names)

    def test_models_of_older_files_have_no_summary_and_still_score(self):
        from pathlib import Path

        path = Path(__file__).parent.parent / "fixtures" / "models" / "0.1.0" / "iforest.esad"
        detector = esad.load(path)
        assert detector.drift_monitor() is None
        with pytest.raises(InputError, match="older than drift"):
            detector.drift([[0.0, 0.0, "red", True]] * 30)
