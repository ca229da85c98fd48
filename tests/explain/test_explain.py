"""`detector.explain` over the registry: shares add up, expected values are the user's, cases are the nearest."""

import numpy as np
import pandas as pd
import pytest
import torch
from support import methods, small_labels, tiny

import esad
from esad import registry
from esad.errors import InputError, LabelError, ModelFileError, SchemaError
from esad.explain import network
from esad.explain.cases import MAX_CASES, Cases
from esad.explain.displays import draw, draw_parts, to_png
from esad.explain.network import NetworkExplainer
from esad.explain.reasons import HeatMaps, Reasons
from esad.persist import bundle


def mixed(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    size = rng.gamma(20, 5, n)
    return pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "weight": 2 * size + rng.normal(0, 1, n),
            "colour": rng.choice(["red", "green", None], n, p=[0.7, 0.2, 0.1]),
            "vip": rng.random(n) < 0.3,
            "day": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
            "constant": 7,
        }
    )


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 90, size=(16, 12, 12), dtype=np.uint8)


@pytest.mark.parametrize("name", methods())
def test_every_method_explains_tables_and_shares_add_up_to_its_terms(name):
    frame = mixed()
    y = np.zeros(len(frame), dtype=int)
    y[-4:], y[:3] = -1, 1
    detector = tiny(name).fit(frame, y)
    reasons = detector.explain(frame[:6])
    terms = detector.score_terms(frame[:6])
    assert isinstance(reasons, Reasons)
    assert reasons.columns == tuple(frame.columns)
    np.testing.assert_allclose(reasons.score, detector.anomaly_score(frame[:6]), rtol=1e-12)
    assert reasons.shares.keys() == terms.keys() == reasons.base.keys()
    for term, share in reasons.shares.items():
        assert share.shape == (6, 6)
        scale = np.abs(terms[term]).max()
        near = 1e-4 * scale + 1e-12  # all scores may be exactly 0
        np.testing.assert_allclose(reasons.base[term] + share.sum(1), terms[term], rtol=1e-4, atol=near)
    assert any(np.abs(share).max() > 0 for share in reasons.shares.values())
    kinds = {"size": (float,), "colour": (str, type(None)), "vip": (bool,), "day": (np.datetime64,)}
    for column, allowed in kinds.items():
        assert isinstance(reasons.expected[0, frame.columns.get_loc(column)], (*allowed, type(None)))
    assert (reasons.expected[:, -1] == 7.0).all()
    assert reasons.cases[0][0].row == 0  # labelled itself
    assert len(reasons.cases[0]) == 3


@pytest.mark.parametrize("name", methods("images"))
def test_every_method_explains_pictures_and_shares_add_up_to_its_terms(name, pictures):
    detector = tiny(name, hidden=(4, 4), n_epochs=1, n_members=1).fit(pictures, small_labels(name, 16))
    maps = detector.explain(pictures[:2])
    assert isinstance(maps, HeatMaps)
    terms = detector.score_terms(pictures[:2])
    for term, share in maps.shares.items():
        assert share.shape == (2, 12, 12)
        added = maps.base[term] + share.sum((1, 2))
        np.testing.assert_allclose(added, terms[term], rtol=1e-4, atol=1e-6 + 1e-4 * np.abs(terms[term]).max())
    assert maps.heat.shape == (2, 12, 12)
    assert maps.heat.min() >= 0
    assert maps.expected.shape == maps.pictures.shape == (2, 1, 12, 12)


def test_shares_add_up_to_terms_of_few_digits():
    frame = mixed()
    detector = tiny("esad", n_epochs=1, precision="bfloat16").fit(frame, np.r_[np.zeros(76), -np.ones(4)])
    reasons, terms = detector.explain(frame[:3]), detector.score_terms(frame[:3])
    for term, share in reasons.shares.items():
        np.testing.assert_allclose(reasons.base[term] + share.sum(1), terms[term], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "n_anomaly", "is_rebuilt"),
    [("esad", 0, True), ("esad", 2, False), ("autoencoder", 2, True), ("deep_sad", 2, False), ("iforest", 0, False)],
)
def test_an_expected_picture_is_drawn_only_where_it_says_what_is_normal(name, n_anomaly, is_rebuilt, pictures):
    """A decoder that was taught to turn anomalies into something else makes the same blur of every picture."""
    y = np.zeros(len(pictures), dtype=int)
    y[:n_anomaly] = -1
    detector = tiny(name, hidden=(4, 4), n_epochs=1, n_members=1).fit(pictures, y)
    maps = detector.explain(pictures[:2])
    assert maps.is_rebuilt == is_rebuilt
    parts = draw_parts(maps, 0)
    assert list(parts) == (["given", "expected", "heat"] if is_rebuilt else ["given", "heat"])
    assert draw(maps, 0).shape[1] == len(parts) * 124 - 4
    assert is_rebuilt or (maps.expected == detector.inputs_.typical).all()


def test_a_term_of_several_raw_ones_adds_up_too(pictures):
    colour = np.repeat(pictures[..., None], 3, axis=3)
    detector = tiny("esad", hidden=(4, 4), n_epochs=1, decoys=0.5).fit(colour)
    assert "turned" in detector.objective_.scorer()(torch.zeros(1, 3, 12, 12))
    maps, terms = detector.explain(colour[:2]), detector.score_terms(colour[:2])
    np.testing.assert_allclose(maps.base["norm"] + maps.shares["norm"].sum((1, 2)), terms["norm"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", methods())
def test_the_odd_column_comes_first(name):
    """Columns that go together: one that does not is named, whatever the method."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=(300, 1))
    X = 10 + level @ np.ones((1, 4)) + rng.normal(0, 0.3, size=(300, 4))
    y = np.zeros(300, dtype=int)
    if registry.method(name).labels_needed:
        X[:10, 2] += 9
        y[:10] = -1
    detector = tiny(name, n_epochs=30, pretrain_epochs=30, hidden=(16,), n_trees=100).fit(X, y)
    odd = X[100:120].copy()
    odd[:, 2] += 9
    reasons = detector.explain(odd)
    assert np.mean([reasons.top(row)[0] == "x2" for row in range(20)]) >= 0.9


def test_the_expected_value_comes_from_the_other_columns():
    rng = np.random.default_rng(0)
    size = rng.normal(50, 10, 600)
    X = pd.DataFrame({"size": size, "weight": 3 * size + rng.normal(0, 1, 600), "height": size / 2})
    detector = esad.ESAD(n_members=2, random_state=0).fit(X)
    odd = pd.DataFrame({"size": [60.0], "weight": [90.0], "height": [30.0]})
    reasons = detector.explain(odd)
    assert reasons.top(0, 1) == ("weight",)
    assert reasons.observed[0].tolist() == [60.0, 90.0, 30.0]
    assert abs(reasons.expected[0, 1] - 180) < 25  # the mean is 150, the reconstruction of the odd row below that


@pytest.mark.parametrize("name", ["esad", "iforest"])
def test_in_place_of_a_gap_a_value_is_expected(name):
    """Missing where missing is expected is no reason; what the value would be is one."""
    rng = np.random.default_rng(0)
    size = rng.normal(50, 10, 400)
    X = pd.DataFrame({"size": size, "time": 3 * size, "word": rng.choice(["a", "b"], 400), "never": np.nan})
    X.loc[X["size"] > 55, ["time", "word"]] = None  # most of these rows have no value
    reasons = tiny(name, n_epochs=30).fit(X).explain(X[X["time"].isna()][:20])
    assert all(cell is None for cell in reasons.observed[:, 1:3].ravel())
    assert all(isinstance(cell, float) for cell in reasons.expected[:, 1])
    assert set(reasons.expected[:, 2]) <= {"a", "b"}
    assert set(reasons.expected[:, 3]) == {None}  # of which nothing is known


def test_of_many_columns_several_are_hidden_at_once(monkeypatch):
    """Pairs of columns that say the same, far apart: with few passes they are hidden together with others."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(300, 6))
    X = np.c_[half, half]
    detector = esad.ESAD(n_members=1, n_epochs=30, random_state=0).fit(X)
    calls = []
    rebuilt = NetworkExplainer._rebuild
    monkeypatch.setattr(NetworkExplainer, "_rebuild", lambda self, x: calls.append(len(x)) or rebuilt(self, x))
    odd = X[:1].copy()
    odd[0, 2] += 6
    expected = {}
    for most in (12, 4):
        calls.clear()
        monkeypatch.setattr(network, "MAX_PASSES", most)
        expected[most] = detector.explain(odd).expected.astype(float)
        assert len(calls) <= most + 1  # and one for where the path starts
    np.testing.assert_allclose(expected[4][0, 2], odd[0, 8], atol=1.5)  # column 8 repeats column 2 and is seen
    assert np.abs(expected[4] - expected[12]).mean() < 0.5


def test_replacing_the_first_columns_lowers_the_score_more_than_random_ones(rows):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 8)) @ rng.normal(size=(8, 8))
    detector = tiny("esad", n_epochs=30, hidden=(32,), n_members=2).fit(X)
    odd = X[:60].copy()
    for row in odd:
        row[rng.permutation(8)[:2]] += rng.choice([-1, 1], 2) * 5 * X.std(0).mean()
    reasons = detector.explain(odd)
    expected = reasons.expected.astype(float)

    def fall(columns):
        changed = odd.copy()
        np.put_along_axis(changed, columns, np.take_along_axis(expected, columns, 1), 1)
        return (detector.anomaly_score(odd) - detector.anomaly_score(changed)).mean()

    ranked = np.argsort(-reasons.total, axis=1)[:, :2]
    at_random = np.stack([rng.permutation(8)[:2] for _ in odd])
    assert fall(ranked) > 2 * fall(at_random)


def test_cells_are_the_users_own(tmp_path):
    frame = mixed()
    detector = tiny("autoencoder", scaling="minmax").fit(frame)
    given = frame.head(3).assign(size=[np.nan, 1e9, 5.0], colour=["mauve", None, "red"], vip=[True, False, True])
    observed = detector.explain(given).observed
    assert observed[:, 0].tolist() == [None, 1e9, 5.0]
    assert observed[:, 2].tolist() == ["mauve", None, "red"]
    assert observed[:, 3].tolist() == [True, False, True]
    np.testing.assert_array_equal(observed[:, 4].astype("M8[D]"), given["day"].to_numpy().astype("M8[D]"))


def test_the_frame_has_a_line_per_row_and_column_and_plain_values_are_json(rows):
    X, y = rows
    reasons = tiny("esad").fit(X, y).explain(X[-2:])
    frame = reasons.to_frame(["a", "b"], id_name="serial").to_pandas()
    assert frame.columns[:5].tolist() == ["serial", "score", "rank", "column", "share"]
    assert len(frame) == 8
    assert frame["serial"].tolist() == ["a"] * 4 + ["b"] * 4
    np.testing.assert_allclose(frame["share"], frame["share of reconstruction"] + frame["share of norm"])
    assert (frame.groupby("serial")["share"].diff().dropna() <= 0).all()
    assert reasons.to_frame(top=1).num_rows == 2
    plain = reasons.to_json(0)
    assert [one["column"] for one in plain["columns"]] == list(reasons.top(0, 4))
    assert plain["cases"][0]["label"] == -1


class TestCases:
    def test_the_nearest_are_those_of_numpy(self):
        rng = np.random.default_rng(0)
        known, asked = (rng.normal(size=(n, 3)).astype(np.float32) for n in (30, 5))
        y = rng.choice([-1, 0, 1], 30).astype(np.int8)
        found = Cases.of(known, y).nearest(asked, 4)
        for row, cases in zip(asked, found, strict=True):
            distances = np.sqrt(((known - row) ** 2).mean(1))
            wanted = [number for number in np.argsort(distances) if y[number]][:4]
            assert [case.row for case in cases] == wanted
            assert [case.label for case in cases] == y[wanted].tolist()
            np.testing.assert_allclose([case.distance for case in cases], distances[wanted], rtol=1e-5)

    def test_of_very_many_some_of_each_kind_are_kept(self):
        y = np.where(np.arange(3000) % 2, 1, -1).astype(np.int8)
        kept = Cases.of(np.zeros((3000, 2), np.float32), y)
        assert np.unique(kept.labels, return_counts=True)[1].tolist() == [MAX_CASES, MAX_CASES]
        assert kept.numbers.max() > 2900

    def test_a_file_has_them_only_when_asked(self, rows, tmp_path):
        X, y = rows
        detector = tiny("esad").fit(X, y)
        detector.save(tmp_path / "plain.esad")
        detector.save(tmp_path / "cases.esad", with_cases=True)
        assert not any(name.startswith("cases") for name in bundle.read(tmp_path / "plain.esad")[1])
        with_cases = esad.load(tmp_path / "cases.esad").explain(X[:2])
        assert with_cases.cases == detector.explain(X[:2]).cases
        plain = esad.load(tmp_path / "plain.esad")
        assert plain.explain(X[:2]).cases == ()
        assert plain.explain(X[:2], cases=(X, y)).cases == with_cases.cases

    def test_pictures_are_kept_small(self, pictures, tmp_path):
        y = np.zeros(16, dtype=int)
        y[3] = -1
        tiny("iforest").fit(pictures, y).save(tmp_path / "m.esad", with_cases=True)
        kept = bundle.read(tmp_path / "m.esad")[1]["cases.rows"]
        assert kept.dtype == np.uint8
        np.testing.assert_array_equal(kept[0, 0], pictures[3])
        (case,) = esad.load(tmp_path / "m.esad").explain(pictures[3:4]).cases[0]
        assert (case.row, case.label) == (3, -1)
        assert case.distance < 1e-3

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("rows", np.zeros((10, 9), np.float32)),
            ("rows", np.full((10, 4), np.nan, np.float32)),
            ("rows", np.zeros((10, 4))),
            ("labels", np.zeros(10, np.int8)),
            ("labels", np.ones(9, np.int8)),
            ("numbers", np.full(10, -1)),
            ("other", np.zeros(1)),
        ],
    )
    def test_forged_cases_are_refused(self, name, value, rows, tmp_path):
        tiny("iforest").fit(*rows).save(tmp_path / "m.esad", with_cases=True)
        manifest, arrays = bundle.read(tmp_path / "m.esad")
        for stated in ("format", "format_version", "esad_version"):
            del manifest[stated]
        bundle.write(tmp_path / "m.esad", manifest, arrays | {f"cases.{name}": value})
        with pytest.raises(ModelFileError, match="cases"):
            esad.load(tmp_path / "m.esad")


def test_a_forged_mean_picture_is_refused(pictures, tmp_path):
    tiny("iforest").fit(pictures).save(tmp_path / "m.esad")
    manifest, arrays = bundle.read(tmp_path / "m.esad")
    for stated in ("format", "format_version", "esad_version"):
        del manifest[stated]
    for forged in (np.zeros((1, 3, 3), np.float32), np.full((1, 12, 12), np.nan, np.float32), np.zeros((1, 12, 12))):
        bundle.write(tmp_path / "m.esad", manifest, arrays | {"inputs.mean_picture": forged})
        with pytest.raises(ModelFileError, match="mean picture"):
            esad.load(tmp_path / "m.esad")


def test_bad_input_is_refused_as_in_scoring(rows):
    detector = tiny("iforest").fit(*rows)
    with pytest.raises(SchemaError):
        detector.explain(np.zeros((2, 3)))
    with pytest.raises(LabelError):
        detector.explain(rows[0][:2], cases=(rows[0], np.full(100, 3)))
    with pytest.raises(InputError):
        detector.explain(rows[0][:0])


def test_heat_maps_are_drawn_side_by_side(pictures):
    pillow = pytest.importorskip("PIL.Image")
    odd = pictures[:1].copy()
    odd[0, 3:6, 7:10] = 255
    maps = tiny("autoencoder", hidden=(4, 4), n_epochs=5).fit(pictures).explain(odd)
    drawn = draw(maps, 0)
    assert drawn.shape == (120, 3 * 120 + 2 * 4, 3)
    given, covered = drawn[:, :120], drawn[:, -120:]
    assert (given[30:60, 70:100] == 255).all()
    y, x = np.unravel_index(maps.heat[0].argmax(), (12, 12))
    assert 3 <= y < 6
    assert 7 <= x < 10
    assert (covered[30:60, 70:100].std(2) > 0).any()  # coloured
    import io

    assert pillow.open(io.BytesIO(to_png(drawn))).size == (368, 120)


def test_reasons_show_themselves_as_a_table_whatever_the_cells_hold():
    frame = mixed().rename(columns={"size": "<b>size</b>"})
    reasons = tiny("iforest").fit(frame).explain(frame[:7])
    page = reasons._repr_html_()
    assert page.count("<table>") == 5
    assert "&lt;b&gt;size" in page
    assert "<b>size" not in page
    assert "... and 2 more" in page
    assert "(1 other column)" in page
    shown = repr(reasons)
    assert shown.startswith("Reasons of 7 rows\n  row 0, score ")
    assert len(shown) < 1000


def test_heat_maps_show_themselves_as_pictures(pictures):
    maps = tiny("autoencoder").fit(pictures).explain(pictures[:2])
    assert maps._repr_html_().count('<img src="data:image/png;base64,') == 2
    assert repr(maps).startswith("HeatMaps of 2 pictures of 12 x 12 pixels\n  picture 0, score ")
