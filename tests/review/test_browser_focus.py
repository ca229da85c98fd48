"""In Chromium: keys mean one thing. What is typed is never a verdict, and what could not be saved is kept and shown."""

import pytest
from browsing import AFTER_DIALOG, GLANCE, READY, Held, judge, move, press, row_of

pytestmark = pytest.mark.extra

NOTE = "seen before, is a normal tumour, see the scan"
# Keys that come so fast after the one that closes the dialog that the page has not heard of its end yet, and words that
# are typed on for longer than the moment in which no key is a verdict: a letter every 400 ms.
SAVE_AND_TYPE_ON = """() => {
  const press = (key, { later = 0, ...keys } = {}) => {
    const typed = new KeyboardEvent("keydown", { key, ...keys, bubbles: true, cancelable: true });
    Object.defineProperty(typed, "timeStamp", { value: performance.now() + later });
    document.activeElement.dispatchEvent(typed);
  };
  press("Enter", { ctrlKey: true });
  for (const key of "ann") press(key);
  Array.from("a nun as an").forEach((key, number) => press(key, { later: 400 * (number + 1) }));
  return 400 * 11;
}"""


def test_a_note_typed_by_keyboard_is_a_note(opened):
    session, page = opened
    row = row_of(page)
    page.keyboard.press("e")
    page.keyboard.type(NOTE, delay=5)
    typed_for = page.evaluate(SAVE_AND_TYPE_ON)
    page.wait_for_selector(f"#item .note:text-is('{NOTE}')")
    page.wait_for_selector("#saved:text-is('saved')")
    page.wait_for_timeout(typed_for + AFTER_DIALOG)
    assert session.store.judgements.verdicts() == {}
    assert session.store.judgements.opinions(row)["ann"].note == NOTE
    assert press(page, "n") == row  # after a moment keys are verdicts again


def test_the_main_button_of_the_refit_dialog_has_the_focus(opened):
    session, page = opened
    press(page, "a")
    page.keyboard.press("r")
    page.wait_for_selector("#start:focus")
    page.keyboard.press("Enter")
    page.wait_for_selector("#keep:focus")
    page.keyboard.press("Escape")
    page.wait_for_selector("#item:focus")
    page.click("#menu summary")
    page.click("#invite-button")
    page.wait_for_selector("#invite-name:focus")
    page.keyboard.type("ann's aunt")
    assert page.input_value("#invite-name") == "ann's aunt"
    assert len(session.store) == 1


def test_a_double_click_is_one_click(opened):
    session, page = opened
    first = row_of(page)
    page.dblclick("#anomaly")
    page.wait_for_selector("#saved:text-is('saved')")
    page.wait_for_selector(f'#item[data-row]:not([data-row="{first}"])')
    page.click("#normal")
    page.wait_for_selector("#recent li:nth-child(2)")
    assert [said["ann"] for said in session.store.judgements.verdicts().values()] == ["anomaly", "normal"]
    page.dblclick("#undo")
    page.wait_for_selector("#recent li:only-child")
    assert session.store.judgements.verdicts() == {first: {"ann": "anomaly"}}
    for button, dialog in (("#refit-button", "#refit-dialog"), ("#note", "#note-dialog")):
        page.dblclick(button)
        page.wait_for_selector(f"{dialog}[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#item:focus")


def test_what_is_said_while_a_dialog_is_open_is_above_it(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        press(page, "a")
        page.keyboard.press("r")
        page.wait_for_selector("#start:focus")
        session.start_refit()
        page.keyboard.press("Enter")
        page.wait_for_selector("#toast:has-text('A refit is under way.')")
        assert page.locator("#toast").evaluate("(toast) => toast.matches(':popover-open')")  # as dialogs are


def test_a_note_that_is_selected_out_of_its_dialog_is_not_lost(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        page.keyboard.press("e")
        page.keyboard.type(NOTE)
        box = page.locator("#note-text").bounding_box()
        page.mouse.move(box["x"] + 200, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(5, box["y"] + 20, steps=3)
        page.mouse.up()
        assert page.input_value("#note-dialog[open] textarea") == NOTE
        page.mouse.click(5, 300)
        page.wait_for_selector("#note-dialog:not([open])", state="attached")
        assert page.problems == []


def test_a_note_that_was_not_saved_is_there_again(opened):
    session, page = opened
    row = row_of(page)
    page.keyboard.press("e")
    page.keyboard.type(NOTE)
    page.keyboard.press("Escape")
    page.wait_for_selector("#toast:has-text('The note is not saved')")
    page.reload()
    page.click("#recent button, #next button")  # another row
    page.wait_for_selector(f'#item[data-row]:not([data-row="{row}"])')
    page.keyboard.press("e")
    page.wait_for_selector("#note-text:focus")
    assert page.input_value("#note-text") == ""
    page.click("#note-dialog .close")
    page.keyboard.press("k")
    page.wait_for_selector(f'#item[data-row="{row}"]')
    page.keyboard.press("e")
    page.wait_for_selector("#note-text:focus")
    assert page.input_value("#note-text") == NOTE
    assert session.store.judgements.opinions(row) == {}
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(f"#item .note:text-is('{NOTE}')")
    page.wait_for_selector("#saved:text-is('saved')")
    assert session.store.judgements.opinions(row)["ann"].note == NOTE
    assert page.evaluate("localStorage.length") == 0
    page.keyboard.press("e")
    page.keyboard.type(" and again")
    page.fill("#note-text", NOTE)
    page.keyboard.press("Escape")  # nothing was changed
    assert page.evaluate("localStorage.length") == 0


def test_nothing_but_a_verdict_is_a_verdict(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        first = row_of(page)
        page.click("#anomaly")
        page.wait_for_selector(f'#item[data-row]:not([data-row="{first}"])')
        for key in ("Space", "Enter", "Space"):
            page.keyboard.press(key)
        page.wait_for_selector("#saved:text-is('saved')")
        assert session.store.judgements.verdicts() == {first: {"ann": "anomaly"}}

        page.focus("#filter")
        page.keyboard.press("s")
        assert page.input_value("#filter") == "next"
        page.select_option("#filter", "all")
        page.wait_for_selector("#list [aria-current=true]")
        page.wait_for_selector("#item:focus")
        page.wait_for_selector("#item:not([aria-busy=true])")
        page.wait_for_timeout(AFTER_DIALOG)
        skipped = row_of(page)
        judge(page, "s")
        page.wait_for_selector(f'#item[data-row]:not([data-row="{skipped}"])')
        assert page.input_value("#filter") == "all"

        page.keyboard.press("/")
        page.keyboard.type("S00")
        page.keyboard.press("Enter")
        page.wait_for_selector("#item:focus")
        page.wait_for_selector("#list li:nth-child(2)")
        page.wait_for_selector("#item h2 :text-matches('^S00')")
        page.wait_for_timeout(AFTER_DIALOG)
        found = row_of(page)
        judge(page, "a")
        page.wait_for_selector("#saved:text-is('saved')")
        page.wait_for_selector(f'#list [data-row="{found}"] .mark.anomaly')
        assert page.input_value("#search") == "S00"
        said = {first: "anomaly", skipped: "skip", found: "anomaly"}
        assert {row: verdict["ann"] for row, verdict in session.store.judgements.verdicts().items()} == said
        assert page.problems == []


# As a keyboard types them: a key after the other in one go, or after a pause of as many milliseconds.
TYPE = """([keys, pause]) => {
  const begun = performance.now();
  Array.from(keys).forEach((key, number) => {
    const typed = new KeyboardEvent("keydown", { key: key === "\\n" ? "Enter" : key, bubbles: true, cancelable: true });
    Object.defineProperty(typed, "timeStamp", { value: begun + pause * number });
    document.activeElement.dispatchEvent(typed);
  });
}"""


def test_what_is_typed_on_after_a_search_is_no_verdict(opened):
    session, page = opened
    page.wait_for_selector(READY)
    for pause in (0, 80, 300):
        page.keyboard.press("/")
        page.fill("#search", f"S0{pause // 10}"[:3])
        page.evaluate(TYPE, ["\na nun as", pause])
        page.wait_for_selector("#item h2 :text-matches('^S0')")
        page.keyboard.press("/")
        page.keyboard.press("Escape")
        page.evaluate(TYPE, ["ann", pause])
        page.wait_for_selector("#item:not([aria-busy=true])")
    assert session.store.judgements.verdicts() == {}
    page.wait_for_timeout(AFTER_DIALOG + 9 * 300)  # the last key was "pressed" so much later
    held = Held(page, "**/api/list?name=next&q=s02")
    page.fill("#search", "s02")
    page.click("#anomaly")  # of the row of before
    held.wait()
    assert page.inner_text("#saved") == ""
    held.let_through()
    page.wait_for_selector("#item h2 :text-matches('^S02')")
    judge(page, "n")
    page.wait_for_selector("#saved:text-is('saved')")
    (row,) = session.store.judgements.verdicts()
    assert 20 <= row < 30


def test_a_key_that_is_pressed_twice_is_one_verdict(opened):
    session, page = opened
    page.wait_for_selector(READY)
    page.wait_for_timeout(GLANCE)
    first = row_of(page)
    page.evaluate(TYPE, ["aa", 30])
    second = row_of(page)
    assert second != first
    page.wait_for_selector("#saved:text-is('saved')")
    assert session.store.judgements.verdicts() == {first: {"ann": "anomaly"}}
    assert press(page, "n") == second


def test_keys_close_the_menu_and_are_no_verdicts_in_it(opened):
    session, page = opened
    page.wait_for_selector(READY)
    page.wait_for_timeout(GLANCE)
    for key in ("a", "Escape"):
        page.click("#menu > summary")
        page.wait_for_selector("#menu[open]")
        page.keyboard.press(key)
        page.wait_for_selector("#menu:not([open])")
        page.wait_for_selector("#item:focus")
    page.click("#menu > summary")
    page.click("#menu > summary")
    page.wait_for_selector("#item:focus")
    assert len(session.store) == 0


def test_a_full_disk_loses_nothing(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        said = {press(page, "a"): "anomaly"}
        session.store._database.execute("pragma query_only = on")  # as a disk that cannot be written to
        said |= {move(page, key): {"a": "anomaly", "n": "normal"}[key] for key in "nan"}
        page.wait_for_selector("#saved.lost:has-text('not saved: 3')")
        assert list(session.store.judgements.verdicts()) == [next(iter(said))]
        session.store._database.execute("pragma query_only = off")
        page.wait_for_selector("#saved:text-is('saved')")
        assert {row: one["ann"] for row, one in session.store.judgements.verdicts().items()} == said
        numbers = [one.row for one in session.store.judgements.recent("ann", 9)]
        assert numbers[::-1] == list(said)  # in order


def test_unsaved_verdicts_outlive_a_closed_tab(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        context = page.context
        session.store._database.execute("pragma query_only = on")
        said = {move(page, "a"): "anomaly", move(page, "n"): "normal"}
        page.wait_for_selector("#saved.lost")
        page.close(run_before_unload=False)
        session.store._database.execute("pragma query_only = off")
        assert session.store.judgements.verdicts() == {}
        again = context.new_page()
        again.goto(site.url)
        again.wait_for_selector("#item[data-row]")
        again.wait_for_selector("#saved:text-is('saved')")
        assert {row: one["ann"] for row, one in session.store.judgements.verdicts().items()} == said
        assert row_of(again) not in said
        assert again.evaluate("Object.keys(localStorage).length") == 0


def test_verdicts_of_a_page_are_its_reviewers(make_session, serve):
    """Whoever else logs in with the same browser, and however alike the names are."""
    session = make_session()
    with serve(session) as site:
        ann = site.enter("ann b")
        session.store._database.execute("pragma query_only = on")
        said = {move(ann, "a"), move(ann, "a")}
        ann.wait_for_selector("#saved.lost")
        other = ann.context.new_page()
        other.goto(site.link("ann"))
        other.wait_for_selector("#item[data-row]")
        ann.wait_for_selector("#toast:has-text(\"'ann' has logged in\")")
        session.store._database.execute("pragma query_only = off")
        press(other, "n")
        assert {name for one in session.store.judgements.verdicts().values() for name in one} == {"ann"}
        other.goto(site.link("ann b"))
        ann.wait_for_selector("#saved:text-is('saved')")
        verdicts = session.store.judgements.verdicts()
        assert {row for row, one in verdicts.items() if one == {"ann b": "anomaly"}} == said
        assert len(session.store) == 3


def test_what_is_refused_for_good_stays_until_it_was_seen(make_session, serve):
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        refusal = {"error": {"status": 422, "code": "x", "message": "No such row."}}
        page.route("**/api/judgements", lambda route: route.fulfill(status=422, json=refusal))
        name = page.inner_text("#item h2")
        move(page, "a")
        page.wait_for_selector(f"#refused li:has-text('anomaly of {name}: No such row.')")
        page.wait_for_timeout(6000)  # a line that comes and goes has gone
        assert page.is_visible("#refused")
        page.on("dialog", lambda question: question.accept())  # "leave the page?"
        with page.expect_event("dialog"):
            page.reload()
        page.wait_for_selector(f"#refused li:has-text('anomaly of {name}: No such row.')")
        page.wait_for_selector("#item[data-row]")
        page.click("#refused-seen")
        assert not page.is_visible("#refused")
        page.reload()
        page.wait_for_selector("#item[data-row]")
        assert not page.is_visible("#refused")
        assert page.evaluate("localStorage.length") == 0


def test_log_out(make_session, serve):
    with serve(make_session()) as site:
        page = site.enter()
        page.click("#menu summary")
        page.click("#log-out-button")
        page.wait_for_selector("h1:text-is('A link is needed')")
        assert page.goto(site.url).status == 403
