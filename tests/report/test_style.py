"""The colours of all pages: words can be read on every ground, by day and by night."""

import re

import pytest

from esad.report.style import COLOURS


def brightness(colour):
    """Relative luminance, as the Web Content Accessibility Guidelines 2.2 have it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("ground", ["paper", "tint"])
@pytest.mark.parametrize("word", ["ink", "soft", "one", "two", "good"])
def test_words_can_be_read_on_every_ground(word, ground):
    day, night = (dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in COLOURS.split("@media"))
    for colours in (day, night):
        dark, light = sorted(brightness(colours[name]) for name in (word, ground))
        assert (light + 0.05) / (dark + 0.05) >= 4.5
