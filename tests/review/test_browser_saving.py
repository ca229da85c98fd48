"""In Chromium: what is not saved yet is said, sent again and never lost or taken back."""

import pytest
from browsing import PHONE, READY, Held, judge, move, press, row_of, settle

pytestmark = pytest.mark.extra


def test_what_is_not_saved_is_said_and_sent_again(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        first = row_of(page)
        page.route("**/api/judgements", lambda route: route.abort())
        judge(page, "a")
        page.wait_for_selector("#saved.lost:has-text('not saved: 1')")
        page.wait_for_selector(f'#item:not([data-row="{first}"])')
        page.keyboard.press("k")
        page.wait_for_selector(f'#item[data-row="{first}"] .badge:text-is("you: anomaly, not saved yet")')
        judge(page, "n")  # a second thought, before the first is saved
        page.wait_for_selector("#saved.lost:has-text('not saved: 2')")
        assert session.store.judgements.verdicts() == {}
        page.unroute("**/api/judgements")
        page.wait_for_selector("#saved:text-is('saved')")
        assert session.store.judgements.verdicts() == {first: {"ann": "normal"}}
        assert len(session.store) == 2
        page.keyboard.press("k")
        page.wait_for_selector(f'#item[data-row="{first}"] .badge:text-is("you: normal")')


def test_a_late_answer_does_not_take_a_verdict_back(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        first = row_of(page)
        page.route("**/api/judgements", lambda route: route.abort())
        judge(page, "a")
        page.wait_for_selector(f'#item:not([data-row="{first}"])')
        late = []
        page.route(f"**/api/items?rows={first}", lambda route: late.append(route))
        with page.expect_request(f"**/api/items?rows={first}"):
            page.keyboard.press("k")
        page.wait_for_selector(f'#item[data-row="{first}"]')
        judge(page, "n")
        with page.expect_response(f"**/api/items?rows={first}"):
            late.pop().continue_()  # it knows of no verdict
        page.unroute(f"**/api/items?rows={first}")
        page.keyboard.press("k")
        page.wait_for_selector(f'#item[data-row="{first}"] .badge:text-is("you: normal, not saved yet")')
        page.unroute("**/api/judgements")
        page.wait_for_selector(f'#item[data-row="{first}"] .badge:text-is("you: normal")')


def test_a_late_answer_does_not_take_a_saved_verdict_back(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        page.wait_for_selector(READY)
        first = row_of(page)
        move(page, "j")
        late = Held(page, f"**/api/items?rows={first}")
        page.keyboard.press("k")
        late.wait()  # it knows of no verdict
        press(page, "n")
        late.let_through()
        later = Held(page, f"**/api/items?rows={first}")
        page.keyboard.press("k")
        page.wait_for_selector(f'#item[data-row="{first}"]')
        assert "you: normal" in page.inner_text("#item .badges")
        later.let_through()
        assert "you: normal" in page.inner_text("#item .badges")


def test_the_page_goes_on_by_itself_when_the_server_is_back(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        page.route("**/api/**", lambda route: route.abort())
        while page.locator("#item[data-row]").count():  # what was held ready
            page.keyboard.press("n")
        page.wait_for_selector("#saved.lost")
        page.unroute("**/api/**")
        page.wait_for_selector("#saved:text-is('saved')")
        page.wait_for_selector("#item[data-row]")
        assert row_of(page) not in session.store.judgements.verdicts()


def test_undo_before_anything_is_saved(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        first = row_of(page)
        page.route("**/api/judgements", lambda route: route.abort())
        judge(page, "a")
        page.keyboard.press("u")
        page.wait_for_selector("#saved.lost:has-text('not saved: 2')")
        page.keyboard.press("k")
        page.wait_for_selector(f'#item[data-row="{first}"]')
        judge(page, "n")  # a second thought, which the undo is not about
        second = row_of(page)
        page.unroute("**/api/judgements")
        page.wait_for_selector("#saved:text-is('saved')")
        assert session.store.judgements.verdicts() == {first: {"ann": "normal"}}
        settle(page)
        assert row_of(page) == second != first
        page.keyboard.press("u")
        page.wait_for_selector(f'#item[data-row="{first}"]')
        assert session.store.judgements.verdicts() == {}


def test_two_pages_of_one_reviewer_know_of_each_other(make_session, serve):
    session = make_session()
    with serve(session) as site:
        here = site.enter()
        here.wait_for_selector(READY)
        row = row_of(here)
        there = here.context.new_page()
        there.goto(site.url)
        there.wait_for_selector(f'#item[data-row="{row}"]')
        press(there, "n")
        here.route("**/api/items*", lambda route: route.abort())  # it has not seen that
        press(here, "a")
        here.wait_for_selector("#toast:has-text('was normal, said elsewhere; it is anomaly now')")
        here.unroute("**/api/items*")
        there.keyboard.press("u")  # its own verdict, not the later one
        there.wait_for_selector("#toast:has-text('Taken back: normal')")
        assert session.store.judgements.verdicts() == {row: {"ann": "anomaly"}}
        there.keyboard.press("u")
        there.wait_for_selector("#toast:has-text('takes back your last one: anomaly, of')")
        assert session.store.judgements.verdicts() == {row: {"ann": "anomaly"}}
        there.keyboard.press("u")
        there.wait_for_selector("#toast:has-text('Taken back: anomaly')")
        assert session.store.judgements.verdicts() == {}
        here.keyboard.press("u")
        here.wait_for_selector("#toast:has-text('That verdict has been taken back already')")


def test_a_verdict_that_is_refused_is_not_shown_as_one(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        first = row_of(page)
        refusal = '{"error": {"status": 422, "code": "no", "message": "There is no such row."}}'
        page.route("**/api/judgements", lambda route: route.fulfill(status=422, body=refusal))
        judge(page, "a")
        page.wait_for_selector("#refused li:has-text('There is no such row.')")
        page.keyboard.press("k")
        page.wait_for_selector(f'#item[data-row="{first}"]')
        assert "you:" not in page.inner_text("#item")
        assert session.store.judgements.verdicts() == {}


def test_a_page_saves_nothing_in_the_review_of_other_data(make_session, serve, kit, tmp_path):
    """That has begun at the same address; and what it has not saved is saved when its own data is back."""
    (tmp_path / "other").mkdir()
    session, other = make_session(), make_session(dataset=kit.rows(60), folder=tmp_path / "other")
    with serve(session) as site:
        page = site.enter()
        page.wait_for_selector(READY)
    port = int(site.url.rpartition(":")[2])
    first = move(page, "a")
    page.wait_for_selector("#saved.lost:has-text('not saved: 1')")
    with serve(other, port) as site:
        second = page.context.new_page()
        second.goto(site.link("ann"))
        judged = press(second, "n")
        page.wait_for_selector("#toast:has-text('of other data')")
        page.wait_for_selector("#progress:has-text('of other data')")
        assert other.store.judgements.verdicts() == {judged: {"ann": "normal"}}
    with serve(session, port) as site:
        second.goto(site.link("ann"))
        page.wait_for_selector("#saved:text-is('saved')")
        assert session.store.judgements.verdicts() == {first: {"ann": "anomaly"}}
    assert len(other.store) == 1


def test_what_older_pages_have_not_saved_goes_into_older_journals_only(make_session, serve, tmp_path):
    (tmp_path / "new").mkdir()
    session, new = make_session(), make_session(folder=tmp_path / "new")
    session.store._database.execute("drop table identity")
    session.close()
    session = make_session()  # as from before journals had names
    name = f"esad outbox {session.store.fingerprint[:16]} ann abc"
    left = [{"path": "/api/judgements", "body": {"request": "r", "row": 3, "verdict": "anomaly"}}]
    with serve(new) as site:
        page = site.enter()
        page.evaluate("([name, left]) => localStorage.setItem(name, JSON.stringify(left))", [name, left])
        page.reload()
        page.wait_for_selector(READY)
        assert len(new.store) == 0
    with serve(session, int(site.url.rpartition(":")[2])) as site:
        page.goto(site.link("ann"))
        page.wait_for_selector("#saved:text-is('saved')")
        assert session.store.judgements.verdicts() == {3: {"ann": "anomaly"}}
        assert page.evaluate("Object.keys(localStorage).length") == 0
    assert len(new.store) == 0


def test_a_session_that_has_ended_keeps_what_is_not_saved(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        first = row_of(page)
        cookies = page.context.cookies()
        page.context.clear_cookies()
        judge(page, "a")
        page.wait_for_selector("#toast:has-text('A new link from the terminal')")
        page.wait_for_selector("#saved.lost:has-text('not saved: 1')")
        page.context.add_cookies(cookies)  # as a new link in another tab does
        page.wait_for_selector("#saved:text-is('saved')")
        assert session.store.judgements.verdicts() == {first: {"ann": "anomaly"}}


def test_labels_that_are_not_imported_are_told_of_until_seen(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        page.set_input_files("#import-file", {"name": "bad.csv", "mimeType": "text/csv", "buffer": b"row,label,row\n"})
        page.wait_for_selector("#refused-list li:has-text('labels of bad.csv')")
        page.wait_for_timeout(5500)  # a toast would be gone
        good = b"row,label\n3,normal\n"
        page.set_viewport_size(PHONE)
        page.set_input_files("#import-file", {"name": "good.csv", "mimeType": "text/csv", "buffer": good})
        page.wait_for_selector("#toast:visible")
        box, toast = (page.locator(name).bounding_box() for name in ("#refused", "#toast"))
        assert toast["y"] + toast["height"] < box["y"]  # it hides nothing that has to be seen
        page.click("#refused-seen")
        page.wait_for_selector("#refused", state="hidden")
        assert len(session.store) == 1
