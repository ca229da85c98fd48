"""In Chromium: ten rows by keyboard, refit, compare, roll back; two reviewers; markup as text; screens."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from browsing import AFTER_DIALOG, PHONE, READY, WIDE, judge, move, press, row_of, shot
from sklearn.metrics import roc_auc_score

from esad import ESAD, registry
from esad.review.dataset import ReviewDataset
from esad.review.ranking import Ranking
from esad.review.refit import path_beside
from esad.review.session import ReviewSession
from esad.review.store import JudgementStore

pytestmark = pytest.mark.extra


def test_ten_rows_by_keyboard_refit_compare_and_roll_back(make_session, serve, kit):
    session = make_session("esad")
    first = session.model.read_bytes()
    odd = set(range(kit.n_rows - kit.n_odd, kit.n_rows))
    with serve(session) as site:
        page = site.enter()
        assert page.url == f"{site.url}/"  # the token is gone from the address
        page.wait_for_selector("#item td:text-is('x0')")
        shot(page, "first")
        said = {}
        for _ in range(10):
            row = row_of(page)
            said[press(page, "a" if row in odd else "n")] = "anomaly" if row in odd else "normal"
        assert {row: verdict["ann"] for row, verdict in session.store.judgements.verdicts().items()} == said
        n_anomalies = list(said.values()).count("anomaly")
        page.wait_for_selector(f"#progress:has-text('10 of 120 rows labelled, {n_anomalies} anomal')")
        last = press(page, "u")  # the tenth again
        page.wait_for_selector(f'#item[data-row="{list(said)[-1]}"]')
        page.wait_for_selector("#progress:has-text('9 of 120 rows')")
        assert last != list(said)[-1]
        press(page, "a" if said[list(said)[-1]] == "anomaly" else "n")
        page.keyboard.press("e")
        page.fill("#note-text", "seen twice")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#item .note:text-is('seen twice')")
        page.wait_for_timeout(AFTER_DIALOG)
        press(page, "s")

        page.keyboard.press("r")
        page.wait_for_selector("#refit-dialog[open]")
        page.click("#start")
        page.wait_for_selector("#keep")
        page.wait_for_selector("#refit-body :is(th:has-text('folds'), p:has-text('needs two'))")
        assert "from the beginning" in page.inner_text("#refit-body")
        shot(page, "compare")
        page.click("#drop")
        assert session.model.read_bytes() == first
        page.wait_for_selector("#refit-button:has-text('10 new')")
        page.click("#refit-button")
        page.click("#start")
        page.click("#keep")
        page.wait_for_selector("#refit-button:text-is('Refit')")
        assert session.model.read_bytes() != first
        assert path_beside(session.model, "previous").read_bytes() == first
        page.keyboard.press("r")
        page.click("#roll-back")
        page.wait_for_selector("#refit-button:has-text('10 new')")
        assert session.model.read_bytes() == first
        assert page.problems == []


def test_the_worked_example(serve, tmp_path):
    """Tumours without a label: ten rows by keyboard, answered from the truth, and a better ranking."""
    tumours = registry.load_data_set("breast_cancer")
    cells = pa.table(dict(zip(tumours.columns, tumours.X.T, strict=True)))
    n_rows = len(tumours.truth)
    dataset = ReviewDataset(
        title="tumours.csv", X=cells, known=np.zeros(n_rows, np.int8), names=None, id_name="row", cells=cells
    )
    detector = ESAD(n_members=2, n_epochs=60, random_state=0).fit(cells)
    detector.calibrate()
    detector.save(tmp_path / "tumours.esad")
    store = JudgementStore(tmp_path / "l.db", fingerprint="tumours", n_rows=n_rows)
    session = ReviewSession(dataset, store, Ranking.of(detector, cells), tmp_path / "tumours.esad")
    try:
        before = roc_auc_score(tumours.truth, session.ranking.scores)
        with serve(session) as site:
            page = site.enter()
            for _ in range(10):
                row = row_of(page)
                press(page, "a" if tumours.truth[row] else "n")
            page.wait_for_selector("#item .cases button")
            page.wait_for_selector("#item td.value")
            page.wait_for_selector("#progress:has-text('expected gain of the next ten: AUC')")
            shot(page, "item")
            page.emulate_media(color_scheme="dark")
            page.set_viewport_size(PHONE)
            shot(page, "phone")
            page.emulate_media(color_scheme="light")
            page.set_viewport_size(WIDE)
            page.keyboard.press("r")
            page.click("#start")
            page.wait_for_selector("#refit-body th:has-text('folds')")
            shot(page, "compare")
            page.click("#keep")
            page.wait_for_selector("#refit-button:text-is('Refit')")
            assert page.problems == []
        unlabelled = session.labels() == 0
        after = roc_auc_score(tumours.truth[unlabelled], session.ranking.scores[unlabelled])
        assert after > before + 0.02, (before, after)
    finally:
        session.close()


def test_two_reviewers_at_once(make_session, serve):
    session = make_session()
    with serve(session) as site:
        ann, bob = site.enter("ann"), site.enter("bob")
        rows = {name: [press(page, "n") for _ in range(5)] for name, page in (("ann", ann), ("bob", bob))}
        assert set(rows["ann"]).isdisjoint(rows["bob"])
        bob.select_option("#filter", "second")
        bob.wait_for_selector("#list [aria-current=true]")
        row = row_of(bob)
        assert row in rows["ann"]
        assert "ann" not in bob.inner_text("#item")  # a second opinion is one's own
        judge(bob, "a")
        bob.wait_for_selector("#progress:has-text('1 disagreement')")
        ann.select_option("#filter", "disagreements")
        ann.wait_for_selector(f'#item[data-row="{row}"] .badge:text-is("bob: anomaly")')
        assert session.store.judgements.verdicts()[row] == {"ann": "normal", "bob": "anomaly"}
        assert session.labels()[row] == 0
        assert ann.problems == bob.problems == []


def test_markup_in_the_data_is_shown_and_not_run(make_session, serve, kit):
    dataset = kit.rows()
    evil = [f"{kit.evil}{row}" for row in range(dataset.n_rows)]
    dataset = ReviewDataset(
        title=kit.evil, X=dataset.X, known=dataset.known, names=evil, id_name=kit.evil, cells=dataset.cells
    )
    with serve(make_session(dataset=dataset)) as site:
        page = site.enter(kit.evil[:60])
        page.wait_for_selector("#item td")
        assert page.inner_text("#item h2").startswith("<script>")
        assert kit.evil in page.inner_text("h1")
        page.keyboard.press("e")
        page.fill("#note-text", kit.evil)
        page.click("#note-save")
        page.wait_for_selector("#item .note:has-text('<script>')")
        page.wait_for_timeout(AFTER_DIALOG)
        press(page, "a")
        page.fill("#search", "<script>")
        page.wait_for_selector("#list button:has-text('<script>')")
        assert page.title() == f"{kit.evil} · review"
        assert page.evaluate("document.querySelectorAll('script').length") == 1
        assert page.evaluate("document.querySelectorAll('#item img, #list img, #item script').length") == 0
        assert page.problems == []


def test_touch_and_lists_and_search(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter(has_touch=True, is_mobile=True)
        first = row_of(page)
        page.tap("#anomaly")
        page.wait_for_selector(f'#item:not([data-row="{first}"])')
        page.wait_for_selector("#saved:text-is('saved')")
        assert session.store.judgements.verdicts() == {first: {"ann": "anomaly"}}
        page.fill("#search", "s11")
        page.wait_for_selector("#list button:has-text('S11')")
        assert page.locator("#list button").count() == 10 - (first >= 110)
        page.fill("#search", f"s{first:03d}")  # which is judged, and "most useful first" has those only that are not
        page.wait_for_selector("#item .empty:has-text('every row, highest first')")
        page.select_option("#filter", "all")
        page.wait_for_selector(f'#item[data-row="{first}"]')
        page.fill("#search", "no such thing")
        page.wait_for_selector("#item .empty:has-text('Try other words')")
        assert page.problems == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", ["esad", "pictures"])
def test_screens_wide_and_phone_light_and_dark(make_session, serve, kind, dark, tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    with serve(make_session(kind)) as site:
        page = site.enter(color_scheme="dark" if dark else "light")
        for key in "ann":
            press(page, key)
        for name, size in (("wide", WIDE), ("phone", PHONE)):
            page.set_viewport_size(size)
            page.wait_for_selector(READY)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            page.screenshot(path=tmp_path / "s.png")
            shot(page, f"{kind}-{name}-{'dark' if dark else 'light'}")
            with pillow.open(tmp_path / "s.png") as picture:
                corner = picture.convert("L").getpixel((4, 4))
            assert corner < 60 if dark else corner > 200
        assert page.problems == []


def test_long_cells_are_folded_what_comes_next_is_listed_and_names_stay_in_view(make_session, serve, kit):
    dataset = kit.rows()
    n_rows = dataset.n_rows
    wide = {f"column_{index}": np.arange(n_rows) for index in range(60)}
    wide["long_name_" * 40] = np.arange(n_rows)
    cells = pa.table(wide | {"text": ["x" * 20_000] * n_rows, "right to left": ["\u202eabc"] * n_rows})
    with serve(make_session(dataset=replace(dataset, cells=cells))) as site:
        page = site.enter()
        page.wait_for_selector("#item td.value")
        assert page.locator("#item dt", has_text="long_name").inner_text().endswith("340 more characters")
        name = page.locator("#item dt", has_text="long_name")
        assert name.evaluate("(dt) => dt.scrollWidth <= dt.clientWidth")  # these words too are seen
        shown = page.locator("#item dd", has_text="more characters")
        assert shown.bounding_box()["width"] > page.locator("#item").bounding_box()["width"] / 2
        assert shown.inner_text().endswith("19,840 more characters")
        assert shown.evaluate("(cell) => getComputedStyle(cell).unicodeBidi") == "plaintext"
        shown.locator("summary").click()
        assert len(shown.inner_text()) > 19_900
        following = page.locator("#next button").first.inner_text()
        for size in (WIDE, PHONE):
            page.set_viewport_size(size)
            for place in (150, 10_000):  # a name that is just below the line at the top, and one far above it
                page.evaluate(f"window.scrollTo(0, {place})")
                move(page, "n")
                top = page.evaluate("document.querySelector('#item h2').getBoundingClientRect().top")
                assert page.locator(".top").bounding_box()["height"] <= top < size["height"] / 2
                assert following is None or following.startswith(page.inner_text("#item h2"))
                following = None
        assert not re.search(r"\+0\.00\s", page.inner_text("#item"))
        assert "baseline" in page.inner_text("#item")
        assert page.problems == []


def test_text_that_turns_letters_around_turns_no_other_words(make_session, serve, kit):
    """Names and cells that say to be written from right to left, and are long; words beside them stay."""
    dataset, turned = kit.rows(), "\u202e" + "backwards_" * 30
    cells = pa.table({"text": [turned] * kit.n_rows, "word": ["wire_transfer_international"] * kit.n_rows})
    titles = [f"{row} {turned[: 8 + row]}" for row in range(kit.n_rows)]
    names = {"titles": titles, "names": None, "cells": cells}
    runs_on = """(all) => all.filter((one) => {
      const [text, range] = [one.firstChild, document.createRange()];
      const left = (at) => (range.setStart(text, at), range.setEnd(text, at + 1), range.getBoundingClientRect().left);
      return left(0) < left(1);
    }).length"""
    with serve(make_session(dataset=replace(dataset, **names))) as site:
        page = site.enter()
        press(page, "a")
        page.wait_for_selector("#item .cases")
        for size in (WIDE, PHONE):
            page.set_viewport_size(size)
            ours = page.locator("#item :is(.place, summary .soft, .mark)")
            assert ours.count() > 2
            assert ours.evaluate_all(runs_on) == ours.count()
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            fits = "(all) => all.every((one) => one.getBoundingClientRect().right <= innerWidth - 20)"
            assert page.locator("#item :is(dd, .cases button)").evaluate_all(fits)
        page.keyboard.press("r")
        page.click("#start")
        page.wait_for_selector("#keep")
        ours = page.locator("#refit-body :is(.mark, summary .soft)")
        assert ours.evaluate_all(runs_on) == ours.count() > 2
        page.keyboard.press("Escape")
        refusal = {"error": {"status": 422, "code": "x", "message": "No such row."}}
        page.route("**/api/judgements", lambda route: route.fulfill(status=422, json=refusal))
        page.wait_for_timeout(AFTER_DIALOG)
        move(page, "a")
        page.wait_for_selector("#refused li:has-text('No such row.')")
        assert page.locator("#refused li").evaluate("(one) => one.lastChild.textContent") == ": No such row."


def test_reasons_both_ways_with_digits_that_can_be_compared(opened):
    session, page = opened
    page.select_option("#filter", "all")
    page.wait_for_selector("#list [aria-current=true]")
    assert page.evaluate("scrollY") == 0  # the list is scrolled by itself
    page.locator(f'#list button[data-row="{session.ranking.order[-1]}"]').click()  # the lowest score of all
    page.wait_for_selector(f'#item[data-row="{session.ranking.order[-1]}"] td.value')
    adds = page.locator("#item tr:has(.bar) .number").all_inner_texts()
    sizes = [abs(float(text.replace("\N{MINUS SIGN}", "-"))) for text in adds]
    assert sizes == sorted(sizes, reverse=True)  # what speaks against an alarm is a reason as well
    assert adds[0].startswith("\N{MINUS SIGN}")
    assert len({len(text.partition(".")[2]) for text in adds if text != "0"}) == 1
    marks = page.locator("#list .mark").all_inner_texts()
    assert {len(re.sub(r"^\D*(0\.0*)?|\D", "", text)) for text in marks} == {4}


def test_a_judged_row_is_not_called_unjudged(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        page.wait_for_selector("#item .badge:text-is('among the highest not yet judged')")
        move(page, "a")
        page.keyboard.press("k")
        page.wait_for_selector("#item .badge:text-is('you: anomaly')")
        assert "not yet judged" not in page.inner_text("#item .badges")


def test_on_a_phone_words_are_whole_and_lines_wide(make_session, serve, kit):
    dataset = kit.rows()
    numbers = {f"measure{index} of the outer compactness": dataset.X[f"x{index}"] for index in range(3)}
    with serve(make_session(dataset=replace(dataset, X=(X := pa.table(numbers)), cells=X))) as site:
        page = site.enter()
        page.set_viewport_size(PHONE)
        page.wait_for_selector("#item td.value")
        name = page.locator("#item td.column").first
        assert name.bounding_box()["height"] < 30  # one line: no word is broken
        file = {"name": "what we said of these rows last week.csv", "mimeType": "text/csv"}
        page.set_input_files("#import-file", file | {"buffer": b"row,label\n1,anomaly\n"})
        page.wait_for_selector("#toast:visible")
        assert page.locator("#toast").bounding_box()["width"] > 0.8 * PHONE["width"]


def test_on_a_phone_nothing_leaves_the_screen_or_lies_on_another(make_session, serve):
    session = make_session()
    scores = session.ranking.scores
    session.ranking.detector.offset_ = -float(np.sort(scores)[-2:].mean())  # the threshold is near the highest score
    path_beside(session.model, "previous").write_bytes(session.model.read_bytes())  # there is a model to go back to
    with serve(session) as site:
        page = site.enter("w" * 60, has_touch=True)
        page.set_viewport_size(PHONE)
        page.wait_for_selector("#item .ends .over")
        places = page.locator("#item .ends span").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect())")
        left, mark, right = ((place["left"], place["right"]) for place in places)
        assert left[1] < mark[0] < mark[1] < right[0]
        page.click("#menu > summary")
        assert page.locator("#menu .sheet").bounding_box()["x"] >= 0
        page.click("#item h2")
        page.click("#refit-button")
        around = page.locator("#refit-dialog").bounding_box()
        for name in ("#roll-back", "#start"):
            button = page.locator(name).bounding_box()
            assert around["x"] < button["x"] < button["x"] + button["width"] < around["x"] + around["width"]
        page.keyboard.press("Escape")
        page.wait_for_timeout(AFTER_DIALOG)
        page.route("**/api/judgements", lambda route: route.abort())
        move(page, "a")
        page.wait_for_selector("#saved.lost")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_what_cannot_be_judged_cannot_be_pressed(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        page.set_viewport_size(PHONE)
        page.fill("#search", "no such thing")
        page.wait_for_selector("#item .empty")
        assert page.locator("#anomaly").evaluate("(button) => Number(getComputedStyle(button).opacity)") < 0.6
        below = page.locator("#list").bounding_box()
        assert page.locator("#item").bounding_box()["y"] - below["y"] - below["height"] < 40


def test_a_long_name_is_folded_beside_its_number(make_session, serve, kit):
    dataset = replace(kit.rows(), names=None, titles=[f"{row} {'tale' * 40}" for row in range(kit.n_rows)])
    with serve(make_session(dataset=dataset)) as site:
        page = site.enter()
        page.wait_for_selector("#item h2 .place")
        name, number = (page.locator(f"#item h2{part}").bounding_box() for part in ("", " .place"))
        assert number["y"] + number["height"] <= name["y"] + name["height"] + 1
        assert "more characters" in page.inner_text("#item h2")


def test_reasons_that_come_later_move_nothing(make_session, serve, monkeypatch):
    session = make_session()
    found, is_pending = session.explanations.get, session.explanations.is_pending
    monkeypatch.setattr(session.explanations, "get", lambda row, **waiting: None)
    monkeypatch.setattr(session.explanations, "is_pending", lambda row: True)
    with serve(session) as site:
        page = site.enter()
        page.wait_for_selector("#item:has-text('Looking for reasons')")
        before = page.locator("#item .cells").bounding_box()["y"]
        monkeypatch.setattr(session.explanations, "get", found)
        monkeypatch.setattr(session.explanations, "is_pending", is_pending)
        page.wait_for_selector("#item td.value")
        assert abs(page.locator("#item .cells").bounding_box()["y"] - before) < 60


def test_the_bar_without_alarms_counts_rows(make_session, serve):
    session = make_session()
    session.ranking.detector.offset_ = -1e9
    with serve(session) as site:
        page = site.enter()
        press(page, "n")
        page.wait_for_selector("#progress:has-text('1 of 120 rows')")
        assert page.evaluate("document.getElementById('judged-bar').value") == 1
        assert page.evaluate("document.getElementById('judged-bar').max") == session.dataset.n_rows
