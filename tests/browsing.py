"""Chromium, and what a reviewer does in the page that it shows.

Screenshots go to the folder that ESAD_SCREENSHOTS names, where it is set: `docs/images/review` has some of them.
"""

import os
import shutil
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
READY = "#item:has(td.value, .pictures:not(:has(.blank)) img)"  # the item with its reasons
AFTER_DIALOG = 600  # milliseconds: before that a key may still be meant for the dialog, and is no verdict
GLANCE = 200  # milliseconds: an item that was shown for less is not judged
PATIENCE = 120_000  # milliseconds: nothing here takes long, but others may use the machine


def shot(page, name):
    if folder := os.environ.get("ESAD_SCREENSHOTS"):
        page.wait_for_selector(READY)
        page.screenshot(path=Path(folder) / f"{name}.png")


def row_of(page):
    return int(page.get_attribute("#item[data-row]", "data-row"))


def judge(page, key):
    """Press a key when the item has been seen, and what was searched for is there."""
    page.wait_for_selector("#item:not([aria-busy=true])")
    page.wait_for_timeout(GLANCE)
    page.keyboard.press(key)


def move(page, key):
    """Press a key and wait until another item is there; the row that was there before."""
    before = row_of(page)
    judge(page, key)
    page.wait_for_selector(f'#item[data-row]:not([data-row="{before}"])')
    return before


def press(page, key):
    """Move by a verdict and wait until it is saved."""
    before = move(page, key)
    page.wait_for_selector("#saved:text-is('saved')")
    return before


def settle(page):
    """Wait for an answer of the server: what was asked for before has been given by then."""
    page.evaluate("() => fetch('/api/state').then((answer) => answer.json())")


class Held:
    """Answers that the server has given already, and that stay on their way until they are let through."""

    def __init__(self, page, pattern, n=None):
        self._page, self._n, self._answers, self._is_over = page, n, [], False
        page.route(pattern, self._hold)

    def _hold(self, route):
        if self._is_over or self._n == 0:
            return route.continue_()
        if self._n is not None:
            self._n -= 1
        answer = route.fetch()  # other requests come in meanwhile, and this may be over
        if self._is_over:
            return route.fulfill(response=answer)
        self._answers.append((route, answer))

    def wait(self):
        end = time.monotonic() + PATIENCE / 1000
        while not self._answers:
            assert time.monotonic() < end, "nothing was asked for"
            self._page.wait_for_timeout(10)

    def let_through(self):
        self.wait()
        self._is_over = True
        for route, answer in self._answers:
            with self._page.expect_response(route.request.url):
                route.fulfill(response=answer)
        settle(self._page)  # behind them in the line
