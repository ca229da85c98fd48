"""The displays: drawn from a detector or from what is known, on given axes, refused clearly; the report has them."""

import subprocess
import sys

import numpy as np
import pytest

from esad import plot
from esad.advice.compare import Comparison, MethodResult
from esad.advice.curve import CurvePoint, Gain, LearningCurve
from esad.errors import InputError
from esad.methods.autoencoder import Autoencoder
from esad.methods.esad import ESAD
from esad.methods.iforest import IsolationForest
from esad.report.figures import SvgAxes

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return np.r_[rng.normal(size=(190, 3)), rng.normal(6, 1, size=(10, 3))], np.repeat([0, 1], [190, 10])


@pytest.fixture(scope="module")
def forest(rows):
    return IsolationForest(n_trees=20, random_state=0).fit(rows[0]).calibrate(rows[0])


BY_ROWS = [
    plot.ScoreDistributionDisplay,
    plot.PrecisionRecallDisplay,
    plot.RocCurveDisplay,
    plot.CalibrationDisplay,
]


@pytest.mark.parametrize("display", BY_ROWS)
def test_a_detector_and_its_predictions_draw_the_same_on_the_axes_given(display, forest, rows):
    X, y = rows
    _, ax = pyplot.subplots()
    drawn = display.from_estimator(forest, X, y, ax=ax)
    assert drawn.ax_ is ax
    assert drawn.figure_ is ax.figure
    scores = forest.p_value(X) if display is plot.CalibrationDisplay else forest.anomaly_score(X)
    again = display.from_predictions(scores, np.where(y == 1, "anomaly", "normal"))
    assert again.figure_ is not drawn.figure_
    for one, other in zip(drawn.ax_.get_lines(), again.ax_.get_lines(), strict=False):
        np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())
    with pytest.raises(InputError, match=r"Got 3 for 200|one number per truth"):
        display.from_predictions(scores, [0, 1, 0])


@pytest.mark.parametrize("display", BY_ROWS)
def test_the_report_draws_the_same_displays_without_matplotlib(display, forest, rows):
    axes = SvgAxes("what it shows")
    display.from_estimator(forest, *rows, ax=axes)
    figure = axes.to_element("a caption")
    shapes = [element.tag for element in figure.iter()]
    assert ("rect" if display is plot.ScoreDistributionDisplay else "polygon") in shapes
    assert "a caption" in "".join(figure.itertext())


def test_bars_hold_every_row_and_the_threshold_is_marked(forest, rows):
    X, y = rows
    drawn = plot.ScoreDistributionDisplay.from_estimator(forest, X, y)
    normal, anomaly = (patch.get_data() for patch in drawn.ax_.patches)
    assert normal.values.sum() == 190
    assert (anomaly.values - anomaly.baseline).sum() == 10
    assert drawn.ax_.get_lines()[0].get_xdata()[0] == forest.threshold_


def test_shares_of_a_row_are_the_lengths_of_its_bars(forest, rows):
    reasons = forest.explain(rows[0][-2:])
    drawn = reasons.plot(1, n_columns=2)
    lengths = [bar.get_width() for bar in drawn.ax_.patches]
    np.testing.assert_allclose(lengths[:2], sorted(reasons.total[1])[::-1][:2])
    np.testing.assert_allclose(sum(lengths), reasons.total[1].sum())
    assert drawn.ax_.get_yticklabels()[0].get_text() == "(1 other column)"


def test_drift_shows_what_differs(forest, rows):
    drawn = forest.drift(rows[0] + [0, 3, 0]).plot()
    assert drawn.ax_.get_yticklabels()[-1].get_text() == "x1"
    assert "drifted" in [text.get_text() for text in drawn.ax_.get_legend().get_texts()]


def test_pictures_are_drawn_with_heat_and_what_was_expected():
    pictures = np.random.default_rng(0).integers(0, 60, size=(20, 8, 8), dtype=np.uint8)
    rebuilder = Autoencoder(hidden=(4, 4), n_epochs=1, random_state=0).fit(pictures)
    assert len(rebuilder.explain(pictures[:2]).plot(1).ax_.images) == 1
    assert len(plot.ReconstructionDisplay.from_estimator(rebuilder, pictures[:1]).ax_.images) == 3
    y = np.r_[-1, -1, np.zeros(18)]
    labelled = ESAD(n_members=1, n_epochs=1, hidden=(4, 4), random_state=0).fit(pictures, y)
    with pytest.raises(InputError, match="HeatMapDisplay"):
        plot.ReconstructionDisplay.from_estimator(labelled, pictures[:1])


def test_a_table_has_no_heat_map_and_a_forest_no_losses(forest, rows):
    with pytest.raises(InputError, match="ReasonsDisplay"):
        plot.HeatMapDisplay.from_estimator(forest, rows[0][:1])
    with pytest.raises(InputError, match="no curves"):
        plot.LossDisplay.from_estimator(forest)


def test_advice_draws_itself():
    points = CurvePoint(5, 0, 0.8, 0.1), CurvePoint(15, 0, 0.9, 0.05)
    curve = LearningCurve(points, Gain(10, 0.03, 0.0, 0.5), 6).plot()
    assert curve.ax_.get_ylim()[1] < 1.1  # an AUC is at most 1, whatever the interval says
    assert all(tick == round(tick) for tick in curve.ax_.get_xticks())  # nobody has half a label
    found = Comparison((MethodResult("esad", (0.9,), (0.5,), (1.0,)), MethodResult("geom", reason="no")), 1, 2, 30)
    assert [label.get_text() for label in found.plot().ax_.get_yticklabels()] == ["esad"]


def test_without_matplotlib_the_extra_is_named():
    script = (
        "import sys; sys.modules['matplotlib.pyplot'] = None\n"
        "from esad.errors import MissingExtraError\n"
        "from esad import plot\n"
        "try: plot.ScoreDistributionDisplay.from_predictions([1.0, 2.0])\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install '.[plot]'" in done.stdout


@pytest.mark.parametrize("losses", [[0.41, 0.4, 0.4], [0.4, 0.4], [20.0, 0.1], [1.0, -1.0]])
def test_losses_of_any_range_are_drawn_on_both_kinds_of_axes(losses):
    display = plot.LossDisplay({"reconstruction": np.array(losses)})
    display.plot()
    axes = SvgAxes("losses")
    display.plot(axes)
    assert len(list(axes.to_element("").iter("polyline"))) == 2
