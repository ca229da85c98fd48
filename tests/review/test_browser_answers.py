"""In Chromium: answers that come late or in another order, and models that change in between."""

import re
from types import SimpleNamespace

import pytest
from browsing import READY, Held, judge, move, press, row_of, settle

pytestmark = pytest.mark.extra


def test_the_last_search_is_shown_whichever_answer_comes_last(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        slow = Held(page, "**/api/list?name=next&q=s10")
        page.fill("#search", "s10")
        slow.wait()
        page.fill("#search", "s02")
        page.wait_for_selector("#list button:has-text('S020')")
        slow.let_through()
        assert page.inner_text("#list button").startswith("S02")
        slow = Held(page, "**/api/list?name=next&q=s03")
        page.fill("#search", "s03")
        slow.wait()
        page.fill("#search", "")
        page.wait_for_selector("#list", state="hidden")
        slow.let_through()
        assert page.locator("#list").is_hidden()
        assert page.problems == []


def test_the_next_item_is_near_what_was_just_judged(make_session, serve):
    """However long the verdict takes to the server."""
    with serve(make_session()) as site:
        page, slow = site.enter(), []
        page.route("**/api/judgements", lambda route: slow.append(route))
        judged = page.inner_text("#item h2")
        with page.expect_response("**/api/items*"):
            move(page, "a")
        settle(page)
        slow[0].continue_()
        page.wait_for_selector(f"#item .cases button:has-text('{judged}')", timeout=10_000)
        assert page.problems == []


def test_back_to_the_queue_while_the_items_of_a_list_load(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        page.wait_for_selector(READY)
        slow = Held(page, "**/api/items*")
        page.select_option("#filter", "all")
        page.wait_for_selector("#list button")
        slow.wait()
        page.select_option("#filter", "next")
        page.wait_for_selector("#list", state="hidden")
        assert len({press(page, "n") for _ in range(3)}) == 3
        slow.let_through()
        press(page, "n")
        assert page.problems == []


def test_an_answer_about_the_old_model_is_not_shown_for_the_new_one(opened, kit):
    session, page = opened
    page.wait_for_selector(READY)
    first = row_of(page)
    move(page, "j")
    late = Held(page, f"**/api/items?rows={first}")
    page.keyboard.press("k")
    late.wait()
    press(page, "a")
    old = session.ranking.scores[first]
    session.start_refit()
    kit.wait_for(lambda: session.refit_state()["status"] == "ready")
    with page.expect_response("**/api/next*"):  # the page has noticed
        session.keep()
    new = session.ranking.scores[first]
    assert f"{old:.4g}" != f"{new:.4g}"
    late.let_through()
    later = Held(page, f"**/api/items?rows={first}")
    page.keyboard.press("k")
    later.wait()
    assert f"{old:.4g}" not in page.inner_text("#item")
    later.let_through()
    page.wait_for_selector(f'#item[data-row="{first}"] .facts b:text-is("{new:.4g}")')


def test_an_older_state_does_not_replace_a_newer_one(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        page.wait_for_selector("#progress:has-text('0 of 120 rows')")
        slow = Held(page, "**/api/state", n=1)
        press(page, "n")
        slow.wait()
        press(page, "n")
        page.wait_for_selector("#progress:has-text('2 of 120 rows')")
        slow.let_through()
        assert page.inner_text("#progress").startswith("2 of 120 rows")


def test_only_what_is_seen_is_judged(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        page.select_option("#filter", "all")
        page.wait_for_selector("#list [aria-current=true]")
        slow = Held(page, "**/api/items*")
        chosen = page.locator("#list [data-row]").last
        row = int(chosen.get_attribute("data-row"))
        chosen.click()
        slow.wait()
        page.keyboard.press("a")
        assert session.store.judgements.verdicts() == {}
        assert page.inner_text("#saved") != "saving …"
        slow.let_through()
        page.wait_for_selector(f'#item[data-row="{row}"]')
        judge(page, "a")
        page.wait_for_selector("#saved:text-is('saved')")
        assert session.store.judgements.verdicts() == {row: {"ann": "anomaly"}}


def test_reasons_are_asked_for_when_the_row_comes_late(make_session, serve):
    session = make_session()
    lowest = session.ranking.order[-1]
    with serve(session) as site:
        page = site.enter()
        held = Held(page, re.compile(rf"/api/items\?rows={lowest}$"), 1)
        page.select_option("#filter", "all")
        page.click(f'#list button[data-row="{lowest}"]')
        held.wait()
        page.wait_for_timeout(400)  # nobody waits for reasons of a row that is not there
        held.let_through()
        page.wait_for_selector(f'#item[data-row="{lowest}"] td.value')
        assert page.problems == []


def test_what_is_never_answered_is_asked_for_again(make_session, serve):
    session = make_session()
    lowest = session.ranking.order[-1]
    with serve(session) as site:
        page = site.enter()
        page.evaluate("() => { const timeout = AbortSignal.timeout; AbortSignal.timeout = (ms) => timeout(ms / 60); }")
        lost = []  # the row is asked for, the list is filled, and its reasons are asked for
        page.route(
            re.compile(rf"/api/items\?rows={lowest}$"),
            lambda route: route.continue_() if len(lost) == 3 else lost.append(route),
        )
        page.select_option("#filter", "all")
        page.click(f'#list button[data-row="{lowest}"]')
        page.wait_for_selector(f'#item[data-row="{lowest}"] td.value')
        assert len(lost) == 3


def test_a_row_from_elsewhere_takes_no_place_in_a_list(opened):
    session, page = opened
    judged = press(page, "n")
    page.wait_for_selector("#recent button")
    page.select_option("#filter", "alarms")
    page.wait_for_selector("#list [aria-current=true]")
    first = row_of(page)
    assert first != judged
    page.click("#recent button")
    page.wait_for_selector(f'#item[data-row="{judged}"]')
    press(page, "a")
    assert row_of(page) == first
    assert "anomaly" not in page.inner_text("#list")
    press(page, "n")
    page.wait_for_selector(f'#list [data-row="{first}"] .mark:text-is("normal")')
    page.keyboard.press("u")
    page.wait_for_selector(f'#list [data-row="{first}"] .mark:not(.normal)')
    page.wait_for_selector(f'#item[data-row="{first}"]')
    assert session.store.judgements.verdicts() == {judged: {"ann": "anomaly"}}


def test_going_back_shows_no_row_twice(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        first = press(page, "n")
        second = row_of(page)
        page.click("#recent button")
        page.wait_for_selector(f'#item[data-row="{first}"]')
        page.keyboard.press("k")
        page.wait_for_selector(f'#item[data-row="{second}"]')
        assert [press(page, key) for key in "nnn"][:2] == [second, first]
        assert row_of(page) not in (first, second)
        page.keyboard.press("k")
        page.wait_for_selector("#item .badge:text-is('you: normal')")
        assert row_of(page) not in (first, second)


@pytest.fixture
def refit_detector(make_session, kit):
    """A session with a refit that is ready, and a way to have another one."""
    session = make_session()
    session.judge("r", kit.n_rows - 1, "ann", "anomaly")

    def refit():
        session.start_refit()
        kit.wait_for(lambda: session.refit_state()["status"] == "ready")

    refit()
    return SimpleNamespace(session=session, again=refit)


def test_a_comparison_that_comes_after_the_refit_was_dropped(refit_detector, serve):
    with serve(refit_detector.session) as site:
        page = site.enter()
        page.wait_for_selector("#refit-button.ready")
        late = Held(page, "**/api/comparison")
        page.keyboard.press("r")
        late.wait()
        refit_detector.session.stop_refit()  # by another reviewer
        page.wait_for_selector("#refit-button:has-text('1 new')")
        late.let_through()
        page.wait_for_selector("#refit-dialog[open] #start")
        assert page.locator("#keep").count() == 0
        assert page.problems == []


def test_a_model_that_was_not_looked_at_is_not_kept(refit_detector, serve):
    session, first = refit_detector.session, refit_detector.session.model.read_bytes()
    with serve(session) as site:
        page = site.enter()
        page.wait_for_selector("#refit-button.ready")
        page.keyboard.press("r")
        page.wait_for_selector("#keep")
        states = Held(page, "**/api/state")  # the page does not notice
        refit_detector.again()
        page.click("#keep")
        page.wait_for_selector("#toast:has-text('no longer')")
        assert session.model.read_bytes() == first
        states.let_through()
        page.click("#keep:enabled")
        page.wait_for_selector("#refit-dialog", state="hidden")
        assert session.model.read_bytes() != first
