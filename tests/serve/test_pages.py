"""The pages of the service: what the model is, a row to try, the interface; nothing of the model without a key."""

import re

import pytest
from browsing import CHROMIUM, PATIENCE, PHONE, WIDE
from serving import KEY

from esad.serve.app import Service, ServiceSettings
from esad.serve.keys import Keys
from esad.web.guard import PAGE_POLICY
from esad.web.server import in_background


def test_pages_and_what_they_need_are_there_and_say_nothing_of_the_model(asking, forest):
    ask = asking(forest, keys=Keys([KEY]))
    for page in ("/", "/docs"):
        answer = ask("GET", page)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        assert answer.headers["content-security-policy"] == PAGE_POLICY
        for needed in re.findall(r'(?:href|src)="(/pages/[^"]+)"', answer.text):
            found = ask("GET", needed)
            assert found.status_code == 200
            for word in ("parts.esad", "iforest", "size"):
                assert word not in answer.text
    assert ask("GET", "/pages/basics.js").headers["content-type"].startswith("text/javascript")


def test_the_model_is_described_with_an_ordinary_row_that_can_be_sent_back(asking, parts):
    ask = asking(parts)
    model = ask("GET", "/model").json()
    assert model["model"]["method"] == "committee"
    assert model["labels"]["unlabelled"] == 140
    assert "held out of the training" in model["calibration"]
    row = {column["name"]: column["typical"] for column in model["columns"]}
    (scored,) = ask("POST", "/score", json={"rows": [row]}).json()["rows"]
    assert scored["anomaly"] is False


def test_pictures_are_described_by_their_shape(asking, pictures):
    model = asking(pictures)("GET", "/model").json()
    assert (model["columns"], model["shape"]) == (None, [1, 10, 12])


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


def _lean_against(route):
    """Answer with shares that fall from 1 to far below 0."""
    answer = route.fetch().json()
    for number, column in enumerate(answer["rows"][0]["columns"]):
        column["share"] = 1.0 - number
    route.fulfill(json=answer)


def _give_a_negative_cell(route):
    answer = route.fetch().json()
    next(column for column in answer["columns"] if column["kind"] == "number")["typical"] = -0.25
    route.fulfill(json=answer)


@pytest.mark.extra
def test_a_row_is_tried_in_a_browser_with_the_key_and_not_without(chromium, parts):
    with in_background(Service(parts, ServiceSettings(keys=Keys([KEY]))).guard) as url:
        page = chromium.new_page(viewport=PHONE, color_scheme="dark")
        page.set_default_timeout(PATIENCE)
        complaints = []
        page.on(
            "console", lambda line: complaints.append(line.text) if "Content Security Policy" in line.text else None
        )
        page.goto(url)
        page.wait_for_selector("#key-form:visible")
        assert not page.is_visible("#model")
        page.fill("#key", "wrong")
        page.click("#key-form button")
        page.wait_for_selector("#problem:has-text('There is no such API key here.')")
        page.fill("#key", KEY)
        page.click("#key-form button")
        page.wait_for_selector("#model:visible")
        assert not page.is_visible("#key-form")
        page.route("**/model", _give_a_negative_cell)
        page.reload()
        page.wait_for_selector("#model:visible")
        assert page.locator("#fields input[inputmode=decimal]").first.input_value() == "-0.25"  # as people type it
        assert page.locator(".field label bdi").count() == page.locator(".field").count()  # a name turns no word around
        shown = "import('/pages/basics.js').then((basics) => basics.digits(-1.5e-9) + basics.signedBeside(1e-9)(1e-9))"
        assert page.evaluate(shown) == "\N{MINUS SIGN}1.5e\N{MINUS SIGN}9+1.0e\N{MINUS SIGN}9"
        page.click("#row-form button")
        page.wait_for_selector(".verdict.pass")
        page.route("**/explain*", _lean_against)
        page.locator("#fields input[inputmode=decimal]").first.fill("99999")
        page.click("#row-form button")
        page.wait_for_selector(".verdict.hit")
        page.wait_for_selector("#result td.value:text-is('99999')")  # as it was given
        bars = page.locator("#result .bar").evaluate_all("(bars) => bars.map((bar) => parseFloat(bar.style.width))")
        assert bars == sorted(bars, reverse=True)  # the largest first, for an alarm or against it
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.locator("#fields input[inputmode=decimal]").first.fill("many")
        page.click("#row-form button")
        page.wait_for_selector("#result .problem:has-text('many')")
        problem = page.locator("#result .problem").bounding_box()
        assert problem["y"] + problem["height"] <= PHONE["height"]  # beside the button, in view
        page.click("text=The interface")
        page.wait_for_selector(".operation")
        page.click(".operation[open] button:has-text('Send')")
        page.wait_for_selector(".answer:has-text('200')")
        assert page.locator(".operation[open] tr th").first.bounding_box()["height"] < 40  # a number is in one line
        assert complaints == []


@pytest.mark.extra
def test_a_picture_is_tried_in_a_browser(chromium, pictures, tmp_path):
    import numpy as np
    from PIL import Image

    Image.fromarray(np.full((10, 12), 250, dtype=np.uint8)).save(tmp_path / "odd.png")
    with in_background(Service(pictures).guard) as url:
        page = chromium.new_page(viewport=WIDE)
        page.set_default_timeout(PATIENCE)
        page.goto(url)
        page.set_input_files("#picture", tmp_path / "odd.png")
        page.click("#row-form button")
        page.wait_for_selector("#result :text('Look at x')")
        assert "% of the picture" in page.inner_text("#result")
