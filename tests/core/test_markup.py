"""Text cannot become markup; figures stay within their frame."""

import re
import xml.etree.ElementTree as ET
from html import unescape

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.core.markup import break_at_underscores, new, table
from esad.report.figures import WIDTH, SvgAxes, ticks
from esad.report.findings import measure_kinds


def shown(element) -> str:
    return ET.tostring(element, encoding="unicode", method="html")


@given(text=st.text(max_size=40))
def test_any_text_is_text(text):
    def tags(text):
        made = (new("p", text), new("p", new("b", "x"), text), table(["h"], [[text]]))
        return [re.findall("<[^>]*>", shown(one)) for one in made]

    assert tags(text) == tags("plain")
    inside = re.fullmatch("<p>(.*)</p>", shown(new("p", text)), re.DOTALL)[1]
    assert "<" not in inside
    if text.isprintable():
        assert unescape(inside) == text


def test_spaces_that_keep_words_together_are_shown():
    assert shown(new("p", "1\u00a0000\u202f000\t%\x00\u202e")) == "<p>1\u00a0000\u202f000\t%\ufffd\ufffd</p>"


@given(text=st.text(max_size=40))
def test_a_name_that_may_break_is_the_same_name(text):
    assert shown(break_at_underscores(text)).replace("<wbr>", "") == shown(new("span", text))
    assert shown(break_at_underscores(text)).count("<wbr>") == text.count("_")


@given(text=st.text(max_size=40))
def test_any_attribute_stays_one(text):
    made = shown(new("p", "x", title=text))
    value = re.fullmatch('<p title="([^"]*)">x</p>', made, re.DOTALL)[1]
    if text.isprintable():
        assert unescape(value) == text


@given(low=st.floats(-1e6, 1e6), size=st.floats(1e-3, 1e6))
def test_ticks_lie_within_and_are_even(low, size):
    values = [value for value, _ in ticks(low, low + size)]
    assert 1 <= len(values) <= 12
    assert all(low - 1e-6 * size <= value <= low + size * (1 + 1e-6) for value in values)
    steps = np.diff(values)
    assert len(steps) == 0 or np.allclose(steps, steps[0], rtol=1e-3)


@pytest.mark.parametrize("y", [[1.0, 1.0], [-5.0, 900.0], [0.0, 0.0]])
def test_drawings_stay_within_their_frame(y):
    axes = SvgAxes("t", height=300)
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 2.0), xlabel="x", ylabel="y")
    axes.plot([-1.0, 2.0], y)
    axes.fill_between([0.0, 1.0], [0.0, 0.0], y)
    axes.stairs([3.0, 0.0], [0.0, 0.5, 1.0], baseline=[0.0, 0.0], fill=True)
    text = shown(axes.to_element("drawn"))
    for points in re.findall('points="([^"]*)"', text):
        pairs = np.array([pair.split(",") for pair in points.split()], dtype=float)
        assert (pairs >= 0).all()
        assert (pairs[:, 0] <= WIDTH).all()
        assert (pairs[:, 1] <= 300).all()


def test_kinds_are_held_against_normal_rows_only():
    rng = np.random.default_rng(0)
    truth = np.repeat([False, True, True], 50)
    kinds = np.repeat(np.array([None, "easy", "hard"], dtype=object), 50)
    scores = rng.normal(np.repeat([0.0, 8.0, 0.5], 50))
    easy, hard = measure_kinds(scores, truth, kinds, threshold=4.0, seen=("easy",))
    assert (easy.seen, hard.seen) == (True, False)
    assert easy.found.auc == 1.0
    assert 0.4 < hard.found.auc < 0.8
    assert (easy.n_rows, hard.n_rows) == (50, 50)
    assert easy.n_flagged > 45
