"""The web application: who gets in, what is refused, what is answered, and two reviewers at once."""

import io
import re
import time
from concurrent.futures import ThreadPoolExecutor
from graphlib import TopologicalSorter
from importlib import resources

import httpx
import pytest

from esad.review.access import LOGIN_SECONDS, LONGEST_SECONDS, Access
from esad.review.app import guard_app, review_app
from esad.web.server import in_background

REQUESTS = [
    ("GET", "/api/state"),
    ("GET", "/api/next"),
    ("GET", "/api/items?rows=1"),
    ("GET", "/api/list"),
    ("GET", "/labels.csv"),
    ("GET", "/api/comparison"),
    ("GET", "/pictures/1/1/given.png"),
    ("POST", "/api/judgements"),
    ("POST", "/api/undo"),
    ("POST", "/api/notes"),
    ("GET", "/api/labels"),
    ("POST", "/api/labels"),
    ("POST", "/api/log-out"),
    ("POST", "/api/invitations"),
    ("POST", "/api/refit"),
    ("POST", "/api/refit/keep"),
]


@pytest.fixture
def page(make_session, open_page):
    return open_page(make_session())


@pytest.fixture
def ann(page):
    return page.enter("ann")


def judge(client, row, verdict="anomaly", request=None):
    return client.post(
        "/api/judgements", json={"request": request or f"{row}{verdict}", "row": row, "verdict": verdict}
    )


# ---------------------------------------------------------------------- access


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_nothing_is_told_or_done_without_a_session(page, method, path):
    answer = page.stranger.request(method, path)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthorized"


def test_a_link_works_once_and_leaves_a_cookie_that_scripts_cannot_read(page):
    token = page.access.new_link("ann")
    first = page.stranger.get("/", params={"token": token})
    assert first.status_code == 200
    flags = {part.strip().lower() for part in first.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert page.entered == ["ann"]
    assert page.stranger.get("/api/state").json()["reviewer"] == "ann"
    assert page.stranger.get("/").status_code == 200
    page.stranger.cookies.clear()
    again = page.stranger.get("/", params={"token": token})
    assert again.status_code == 403
    assert "used before" in again.text
    assert "A link is needed" in page.stranger.get("/").text
    assert page.stranger.head("/", params={"token": page.access.new_link("ann")}).status_code == 405


def test_every_answer_carries_a_strict_policy(page, ann):
    for path in ("/", "/api/state", "/static/review.css", "/nowhere"):
        headers = ann.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    text = ann.get("/").text
    assert "<script>" not in text
    assert "style=" not in text
    assert " onclick" not in text


def test_other_names_and_other_sites_are_refused(ann):
    assert ann.get("/api/state", headers={"host": "evil.example"}).status_code == 421
    said = {"request": "r", "row": 1, "verdict": "anomaly"}
    assert ann.post("/api/judgements", json=said, headers={"origin": "http://evil.example"}).status_code == 403
    assert ann.get("/api/state", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert ann.get("/api/state").json()["n_labelled"] == 0
    assert ann.post("/api/judgements", json=said, headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


def test_an_invitation_is_a_link_for_somebody_else(page, ann):
    path = ann.post("/api/invitations", json={"name": "bob"}).json()["path"]
    assert page.stranger.get(path).status_code == 200
    assert page.stranger.get("/api/state").json()["reviewer"] == "bob"
    assert ann.post("/api/invitations", json={"name": "a\nb"}).status_code == 422
    assert ann.post("/api/invitations", json={"name": "ann\u3164"}).status_code == 422  # which is not seen


def test_a_link_for_a_name_that_exists_needs_their_word_or_the_owners(page, ann):
    page.access.owner = "ann"
    bob, eve = page.enter("bob"), page.enter("eve")
    judge(bob, 3)
    for name in ("bob", "Bob", "ann", "\uff42ob"):
        answer = eve.post("/api/invitations", json={"name": name})
        assert answer.status_code == 403, name
        assert "who started the review" in answer.json()["error"]["message"] or name == "ann"
    for client in (bob, ann):
        path = client.post("/api/invitations", json={"name": "BOB"}).json()["path"]
        assert page.access.reviewer_of(page.access.use_link(path.partition("=")[2])) == "bob"


def test_a_name_of_an_older_journal_keeps_its_links_and_its_undo(make_session, open_page):
    session, name = make_session(), "Ann \u2764\ufe0f"
    page = open_page(session)
    ann, page.access.owner = page.enter("ann"), "ann"
    session.store.judge("r", 1, name, "anomaly")
    assert ann.post("/api/invitations", json={"name": "Bob \u2764\ufe0f"}).status_code == 422
    assert page.stranger.get(ann.post("/api/invitations", json={"name": name}).json()["path"]).status_code == 200
    assert page.stranger.get("/api/state").json()["reviewer"] == name
    text = page.stranger.get("/labels.csv").content
    assert page.stranger.post("/api/undo", json={"request": "u"}).json()["row"] == 1
    headers = {"content-type": "text/csv"}
    assert page.stranger.post("/api/labels", content=text, headers=headers).json()["n_new"] == 1


def test_logins_end_when_asked_to_and_by_themselves():
    now = [0.0]
    access = Access(clock=lambda: now[0])
    first, second, late = (access.use_link(access.new_link("ann")) for _ in range(3))
    link = access.new_link("bob")
    access.log_out(first)
    assert (access.reviewer_of(first), access.reviewer_of(second)) == (None, "ann")
    now[0] += LOGIN_SECONDS - 1
    assert access.reviewer_of(second) == "ann"
    now[0] += 2
    assert (access.reviewer_of(second), access.reviewer_of(late)) == ("ann", None)  # only one was used
    now[0] += 24 * 3600
    assert access.use_link(link) is None


def test_a_page_that_nobody_uses_keeps_no_login(make_session, open_page):
    now = [0.0]
    page = open_page(make_session())
    page.access._clock = lambda: now[0]
    ann = page.enter("ann")
    used, left = page.access.new_link("ann"), page.access.new_link("ann")
    ann.cookies.clear()
    cookie = ann.get("/", params={"token": used}).headers["set-cookie"]
    assert f"max-age={LONGEST_SECONDS:.0f};" in cookie.casefold()  # the server ends it, not the browser
    for _ in range(3):
        now[0] += LOGIN_SECONDS / 2 - 1
        expected = 200 if now[0] < LOGIN_SECONDS else 401
        assert [ann.get(path).status_code for path in ("/api/state", "/api/labels")] == [expected] * 2
    assert ann.get("/api/state").status_code == 401
    assert page.access.use_link(left) is not None
    ann.get("/", params={"token": page.access.new_link("ann")})
    began = now[0]
    while now[0] - began < LONGEST_SECONDS - LOGIN_SECONDS:
        now[0] += LOGIN_SECONDS - 1
        assert judge(ann, 3, request=f"{now[0]}").status_code == 200
    now[0] = began + LONGEST_SECONDS + 1
    assert judge(ann, 3, request="too late").status_code == 401


def test_after_logging_out_nothing_is_told(page, ann):
    page.stranger.cookies.update(ann.cookies)
    assert ann.post("/api/log-out").status_code == 200
    assert not ann.cookies
    assert page.stranger.get("/api/state").status_code == 401


def test_a_page_is_its_reviewers_though_another_has_logged_in_with_the_browser(page, ann):
    entry = {"request": "r", "row": 3, "verdict": "anomaly"}
    assert ann.get("/", params={"token": page.access.new_link("Björn 1 %")}).status_code == 200
    refused = ann.post("/api/judgements", json=entry, headers={"x-reviewer": "ann"})
    assert refused.status_code == 401  # the page keeps it, and sends it again
    assert "the page of 'ann', and 'Björn 1 %' has logged in" in refused.json()["error"]["message"]
    ours = {"x-reviewer": "Bj%C3%B6rn%201%20%25"}
    assert ann.post("/api/judgements", json=entry, headers=ours).status_code == 200


def read_name(client):
    """What the page calls the review."""
    return re.search('data-review="([^"]+)"', client.get("/").text)[1]


def test_a_page_of_another_journal_of_the_same_data_enters_nothing_here(make_session, open_page, tmp_path):
    (tmp_path / "other").mkdir()
    session, other = make_session(), make_session(folder=tmp_path / "other")
    assert session.store.fingerprint == other.store.fingerprint
    ours, theirs = (read_name(open_page(one).enter("ann")) for one in (session, other))
    assert ours != theirs
    entry = {"request": "r", "row": 3, "verdict": "anomaly"}
    ann = open_page(other).enter("ann")
    for name in (ours, session.store.fingerprint[:16]):  # the latter by a page of a version without names
        refused = ann.post("/api/judgements", json=entry, headers={"x-review": name})
        assert refused.status_code == 409
        assert "of other labels" in refused.json()["error"]["message"]
    assert len(other.store) == 0
    session.close()
    again = make_session()  # the name is kept
    saved = open_page(again).enter("ann").post("/api/judgements", json=entry, headers={"x-review": ours})
    assert saved.status_code == 200


def test_pages_of_a_journal_from_before_there_were_names_go_on(make_session, open_page):
    session = make_session()
    session.store._database.execute("drop table identity")
    session.close()
    session = make_session()
    ann, entry = open_page(session).enter("ann"), {"row": 3, "verdict": "anomaly"}
    before, ours = session.store.fingerprint[:16], read_name(ann)
    assert ours.startswith(f"{before}-")
    for number, name in enumerate((before, ours)):
        headers = {"x-review": name}
        assert ann.post("/api/judgements", json=entry | {"request": f"r{number}"}, headers=headers).status_code == 200
    other = f"{before}-{'0' * 32}"
    assert ann.get("/api/state", headers={"x-review": other}).status_code == 409


def test_a_page_of_other_data_enters_nothing_here(page, ann):
    ours = read_name(ann)
    entry = {"request": "r", "row": 3, "verdict": "anomaly"}
    csv = {"content-type": "text/csv", "x-review": "0" * 16}
    refused = [
        ann.post("/api/judgements", json=entry, headers={"x-review": "0" * 16}),
        ann.post("/api/labels", content="serial,label\nS003,anomaly\n", headers=csv),
        ann.get("/api/state", headers={"x-review": "0" * 16}),
    ]
    assert [answer.status_code for answer in refused] == [409] * 3  # the page keeps it, and sends it again
    assert "of other data" in refused[0].json()["error"]["message"]
    assert ann.get("/api/state").json()["recent"] == []
    assert ann.post("/api/judgements", json=entry, headers={"x-review": ours}).status_code == 200


def test_a_full_disk_is_no_mistake_of_the_reviewer(make_session, open_page):
    """The page sends again what is answered with 5xx, and gives up on 4xx."""
    session = make_session()
    ann = open_page(session).enter("ann")
    session.store._database.execute("pragma max_page_count = 1")
    notes = [{"request": f"n{row}", "row": row, "note": "x" * 2000} for row in range(40)]
    answers = [ann.post("/api/notes", json=note) for note in notes]
    assert {answer.status_code for answer in answers} <= {200, 507}
    full = answers[-1]
    assert (full.status_code, full.json()["error"]["code"]) == (507, "insufficient_storage")
    session.store._database.execute("pragma max_page_count = 100000")
    assert judge(ann, 39).status_code == 200
    assert len(session.store) == sum(answer.status_code == 200 for answer in answers) + 1


def test_other_requests_are_answered_during_a_large_import(make_session, kit):
    n_rows = 20_000
    session = make_session(dataset=kit.rows(n_rows))
    access = Access()
    text = "serial,label\n" + "".join(f"{name},normal\n" for name in session.dataset.names)
    with in_background(guard_app(review_app(session, access))) as url, ThreadPoolExecutor(1) as pool:
        ann = httpx.Client(base_url=url)
        ann.get("/", params={"token": access.new_link("ann")})
        sent = pool.submit(ann.post, "/api/labels", content=text, headers={"content-type": "text/csv"}, timeout=60)
        answered = []
        while not sent.done():
            began = time.monotonic()
            assert httpx.get(f"{url}/static/review.css", timeout=60).status_code == 200
            answered.append(time.monotonic() - began)
        assert sent.result().json() == {"n_new": n_rows, "n_left": 0}
        assert max(answered) < 5  # 68 s before, in one thread with the import
        assert ann.get("/api/labels").json() == {"n_done": 0, "n_lines": 0}
        ann.close()


# ---------------------------------------------------------------------- judging


def test_a_verdict_counts_once_and_can_be_undone(ann):
    for before in (None, "anomaly"):
        said = {"saved": "same", "before": {"verdict": before, "by": ""}}
        assert judge(ann, 5, request="same").json() == said
    judge(ann, 6, "normal")
    state = ann.get("/api/state").json()
    assert (state["n_labelled"], state["n_anomaly"], state["n_new"]) == (2, 1, 2)
    assert [one["row"] for one in state["recent"]] == [6, 5]
    assert ann.post("/api/undo", json={"request": "u"}).json()["row"] == 6
    assert ann.post("/api/undo", json={"request": "u"}).json()["row"] == 6
    assert ann.get("/api/state").json()["n_labelled"] == 1


def test_an_undo_is_of_one_request_and_says_what_it_took_back(ann, page):
    judge(ann, 5, request="here")
    judge(ann, 5, "normal", request="in another tab")
    csv = {"content-type": "text/csv"}
    page.enter("bob").post("/api/labels", content="serial,label,reviewer\nS006,skip,ann\n", headers=csv)
    for _ in range(2):
        found = ann.post("/api/undo", json={"request": "u", "of": "here"}).json()
        assert found == {"saved": "u", "row": 5, "verdict": "anomaly", "by": ""}
    assert ann.post("/api/undo", json={"request": "v", "of": "here"}).json() == {"saved": "v", "row": None}
    assert ann.post("/api/undo", json={"request": "w", "of": "never sent"}).json()["row"] is None
    bob = page.enter("bob")
    assert bob.post("/api/undo", json={"request": "x", "of": "in another tab"}).json()["row"] is None
    found = ann.post("/api/undo", json={"request": "y"}).json()
    assert (found["row"], found["verdict"], found["by"]) == (6, "skip", "bob")
    assert [one["verdict"] for one in ann.get("/api/state").json()["recent"]] == ["normal"]


def test_an_item_has_all_there_is_to_know(ann, kit):
    judge(ann, 3, "normal")
    ann.post("/api/notes", json={"request": "n", "row": 119, "note": "  odd  "})
    item = kit.wait_for(lambda: (i := ann.get("/api/items?rows=119").json()["items"][0])["reasons"] and i)
    assert item["name"] == "S119"
    assert item["is_alarm"]
    assert item["rank"] <= kit.n_odd
    assert 0 < item["p_value"] <= 0.2
    assert {one["column"] for one in item["reasons"]["columns"]} >= {"x0", "x1", "x2"}
    total = (
        sum(one["share"] for one in item["reasons"]["columns"]) + item["reasons"]["others"] + item["reasons"]["base"]
    )
    assert total == pytest.approx(item["score"])
    assert [case["row"] for case in item["cases"]] == [3]
    assert item["mine"]["note"] == "odd"
    assert item["cells"][3][0] == f"<b>{kit.evil}"


def test_the_queue_brings_no_row_twice_and_none_that_was_judged(ann):
    seen = []
    for _ in range(30):
        (item,) = ann.get("/api/next?n=1").json()["items"]
        seen.append(item["row"])
        judge(ann, item["row"], "normal" if len(seen) % 3 else "skip")
    assert len(set(seen)) == 30


def test_what_cannot_be_is_refused_in_one_shape(ann, kit):
    wrong = [
        judge(ann, kit.n_rows),
        judge(ann, -1),
        judge(ann, 10**30),
        judge(ann, 1, "maybe"),
        judge(ann, 1, request="x" * 100),
        ann.post("/api/judgements", json={"row": 1}),
        ann.post("/api/judgements", content=b"{", headers={"content-type": "application/json"}),
        ann.post("/api/notes", json={"request": "n", "row": 1, "note": "x" * 3000}),
        ann.get("/api/next?n=0"),
        ann.get("/api/next?n=100000"),
        ann.get("/api/next?have=1,x"),
        ann.get("/api/items?rows=-1"),
        ann.get("/api/items?rows=999999"),
        ann.get("/api/list?name=nope"),
        ann.get("/api/list?q=" + "x" * 300),
        ann.get("/api/comparison"),
        ann.post("/api/refit/keep"),
        ann.post("/api/refit/roll-back"),
        ann.post("/api/refit/explode"),
    ]
    for answer in wrong:
        assert answer.status_code == 422, answer.text
        assert answer.json()["error"]["message"]
    assert ann.get("/api/state").json()["n_labelled"] == 0


def test_lists_and_search(ann, kit):
    judge(ann, 119)
    judge(ann, 2, "skip")
    rows = {
        name: [one["row"] for one in ann.get("/api/list", params={"name": name}).json()["entries"]]
        for name in ("all", "judged", "skipped", "alarms", "disagreements", "second")
    }
    assert sorted(rows["all"]) == list(range(kit.n_rows))
    assert (rows["judged"], rows["skipped"], rows["disagreements"], rows["second"]) == ([119], [2], [], [])
    assert 119 not in rows["alarms"]
    found = ann.get("/api/list", params={"name": "all", "q": "s01"}).json()
    assert sorted(one["name"] for one in found["entries"]) == [f"S01{last}" for last in range(10)]
    assert ann.get("/api/list", params={"name": "all", "q": "<SCRIPT>"}).json()["total"] > 10
    assert ann.get("/api/list", params={"name": "all", "q": "%"}).json()["total"] == 0


def test_two_reviewers_get_different_rows_and_do_not_overwrite_each_other(page, ann):
    bob = page.enter("bob")
    mine, his = ({item["row"] for item in client.get("/api/next?n=6").json()["items"]} for client in (ann, bob))
    assert len(mine) == len(his) == 6
    assert mine.isdisjoint(his)
    judge(ann, 7, "anomaly")
    seen = bob.get("/api/items?rows=7").json()["items"][0]
    assert (seen["others"], seen["n_others"]) == ({}, 1)  # a second opinion is one's own
    judge(bob, 7, "normal", request="bob's")
    assert ann.get("/api/items?rows=7").json()["items"][0]["others"]["bob"]["verdict"] == "normal"
    state = ann.get("/api/state").json()
    assert (state["n_labelled"], state["n_disagreements"]) == (0, 1)
    assert bob.post("/api/undo", json={"request": "u"}).json()["row"] == 7
    assert ann.get("/api/state").json()["n_anomaly"] == 1


def test_labels_go_out_and_come_in(page, ann):
    judge(ann, 7)
    text = ann.get("/labels.csv")
    assert text.headers["content-type"].startswith("text/csv")
    assert text.text.splitlines()[1].startswith("S007,anomaly,ann,,")
    judge(page.enter("bob"), 9, request="bob's")
    more = text.text + "S008,normal,bob,,,\nS009,normal,bob,,,\n"
    csv = {"content-type": "text/csv"}
    assert ann.post("/api/labels", content=more, headers=csv).json() == {"n_new": 1, "n_left": 1}
    assert ann.get("/api/state").json()["reviewers"] == ["ann", "bob"]
    assert ann.post("/api/labels", content="a,b\n", headers=csv).status_code == 422
    assert ann.post("/api/labels", content=b"\xff\xfe", headers=csv).status_code == 422
    assert ann.post("/api/labels", content=more).status_code == 415
    assert ann.post("/api/labels", content=b"x" * (17 << 20), headers=csv).status_code == 413


# ---------------------------------------------------------------------- scripts

SCRIPTS = {
    file.name: file.read_text(encoding="utf-8")
    for room in ("review", "web")
    for file in (resources.files(f"esad.{room}") / "static").iterdir()
    if file.name.endswith(".js")
}


def imported(script):
    """Names of the scripts that a script imports."""
    return set(re.findall(r'^import [^;]* from "\./([a-z]+\.js)";$', script, flags=re.MULTILINE))


def test_the_page_brings_all_scripts_and_nothing_keeps_old_ones(ann):
    page = ann.get("/").text
    assert page.count("<script") == 1
    for name, script in SCRIPTS.items():
        answer = ann.get(f"/static/{name}")
        assert answer.text == script
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["cache-control"] == "no-store"
        assert f'"/static/{name}"' in page
        assert len(re.findall(r"^import ", script, flags=re.MULTILINE)) == len(imported(script))
    assert ann.get("/static/other.js").status_code == 404


def test_scripts_need_each_other_in_one_direction():
    order = list(TopologicalSorter({name: imported(script) for name, script in SCRIPTS.items()}).static_order())
    assert (set(order), order[-1]) == (set(SCRIPTS), "review.js")


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_markup_or_code_of_text(name):
    found = re.findall(
        r"\.(?:inner|outer)HTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|Function\(",
        SCRIPTS[name],
    )
    assert found == []


# ---------------------------------------------------------------------- pictures


def test_pictures_come_by_number_and_nothing_else_comes(make_session, open_page):
    pillow = pytest.importorskip("PIL.Image")
    ann = open_page(make_session("pictures")).enter("ann")
    for kind in ("given", "expected", "heat"):
        answer = ann.get(f"/pictures/1/0/{kind}.png")
        assert answer.headers["content-type"] == "image/png"
        with pillow.open(io.BytesIO(answer.content)) as image:
            assert image.size == (112, 112)
    for path in (
        "/pictures/1/..%2f..%2f..%2fetc%2fpasswd/given.png",
        "/pictures/1/0/..%2f..%2fsecret.png",
        "/pictures/../../etc/passwd",
        "/pictures/1/0/other.png",
        "/pictures/1/24/given.png",
        "/pictures/1/-1/given.png",
        "/pictures/1/99999999999999999999/given.png",
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/review.js/../../app.py",
        "/static/page.html",
    ):
        answer = ann.get(path)
        assert answer.status_code in (404, 422), path
        assert answer.headers["content-type"] == "application/json"
    item = ann.get("/api/items?rows=0").json()["items"][0]
    assert (item["name"], item["cells"], item["reasons"]) == ("a/0.png", [], None)


def test_a_browser_keeps_pictures_of_one_run_under_addresses_of_their_own(make_session, open_page, tmp_path):
    (tmp_path / "other").mkdir()
    sessions = [make_session("pictures"), make_session("pictures", folder=tmp_path / "other")]
    items = [open_page(session).enter("ann").get("/api/items?rows=0").json()["items"][0] for session in sessions]
    assert items[0]["generation"] != items[1]["generation"]
    answer = open_page(sessions[0]).enter("ann").get(f"/pictures/{items[0]['generation']}/0/given.png")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "private, max-age=3600")


def test_a_table_has_no_pictures(ann):
    assert ann.get("/pictures/1/0/given.png").status_code == 422


def test_a_page_opens_when_every_row_is_labelled(make_session, open_page, kit):
    dataset = kit.rows()
    dataset.known[:] = 1
    dataset.known[-kit.n_odd :] = -1
    ann = open_page(make_session(dataset=dataset)).enter("ann")
    assert ann.get("/api/next").json() == {"items": []}
    assert ann.get("/api/state").json()["n_labelled"] == kit.n_rows
    assert "nothing left to find" in ann.post("/api/refit").json()["error"]["message"]
