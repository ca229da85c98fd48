"""`esad report`: one file with everything in it, nothing of the data as markup, refusals as everywhere."""

import re
import subprocess
from html.parser import HTMLParser

import pytest
from browsing import CHROMIUM

from esad.cli.app import run

EVIL = '<script>document.title="run"</script>'
VOID = {"meta", "img", "wbr"}
LINES_OF_DATES = r"""
() => [...document.querySelectorAll(".alarm td")]
  .filter((cell) => /^\d{4}-\d\d-\d\d$/.test(cell.textContent))
  .map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return new Set([...range.getClientRects()].map((box) => box.top)).size;
  })
"""


class Page(HTMLParser):
    """Tags in order, text outside of style, and a check that elements close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.texts, self.open, self.links = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "xlink:href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, kit):
    """A file whose every cell and name is markup, with truth and kinds, and a model of it."""
    folder = tmp_path_factory.mktemp("report")
    header = ["<b>id</b>", "size&amp;", "<em>colour", "verdict", "kind"]
    table = [
        [
            f"{EVIL}{number}",
            row[1],
            row[2] and f"<img src=x onerror=alert(1)>{row[2]}",
            row[5] or "normal",
            "<u>dent" if row[5] else "",
        ]
        for number, row in enumerate(kit.rows())
    ]
    data = kit.csv(folder / "<evil>.csv", header, table)
    labels = kit.csv(folder / "labels.csv", header, [[*row[:3], row[3].replace("normal", ""), row[4]] for row in table])
    roles = ("-l", "verdict", "-i", "<b>id</b>", "--ignore", "kind", "--keep-cases", "--quiet")
    assert run(["fit", str(labels), *roles, "--out", str(folder / "m.esad"), *kit.tiny]) == 0
    return folder / "m.esad", data


def test_a_table_full_of_markup_shows_as_text(esad, trained, tmp_path):
    model, data = trained
    out = tmp_path / "r.html"
    options = ("--truth-column", "verdict", "--kind-column", "kind", "--seen-kind", "<u>dent", "--top", 4)
    done = esad("report", model, data, *options, "--out", out)
    assert (done.code, done.err) == (0, "")
    assert str(out) in done.out
    page = Page(out.read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert {"u", "em"}.isdisjoint(page.tags)
    assert "img" not in page.tags
    for words in (EVIL, "<evil>.csv", "size&amp;", "<em>colour", "<u>dent", "<img src=x onerror=alert(1)>"):
        assert words in page.text, words
    for heading in (
        "Scores",
        "Against the truth",
        "Kinds of anomalies",
        "The worst, with reasons",
        "Calibration",
        "Like the training data?",
        "Training",
        "Data",
        "What the model is, and is not",
    ):
        assert heading in page.texts
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert page.tags.count("article") == 4
    assert "Nearest labelled: row " in page.text


def test_nothing_is_fetched(esad, trained, tmp_path):
    esad("report", *trained, "--out", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import|<link|<script", text.replace(EVIL.replace("<", "&lt;"), ""))
    assert "default-src 'none'" in text


def test_without_truth_it_says_how_to_get_more(esad, trained, tmp_path):
    found = esad("report", *trained, "--out", tmp_path / "r.html", "--json").json
    assert (found["n_rows"], found["evaluation"], found["kinds"]) == (60, None, [])
    text = Page((tmp_path / "r.html").read_text(encoding="utf-8")).text
    assert "--truth-column NAME" in text
    assert "esad calibrate MODEL" in text


def test_figures_are_those_of_evaluate(esad, trained, tmp_path):
    model, data = trained
    found = esad("report", model, data, "-t", "verdict", "--out", tmp_path / "r.html", "--json").json
    wanted = esad("evaluate", model, data, "-t", "verdict", "--json").json
    assert found["evaluation"]["auc"] == wanted["auc"]
    assert found["evaluation"]["intervals"] == wanted["intervals"]
    text = Page((tmp_path / "r.html").read_text(encoding="utf-8")).text
    assert f"AUC {wanted['auc']:.3f}" in text


def test_a_calibrated_model_shows_its_p_values(esad, trained, kit, tmp_path):
    model, data = trained
    normal = ("calibrate", model, data, "-l", "verdict", "--out", tmp_path / "c.esad")
    assert esad(*normal).code == 0
    found = esad("report", tmp_path / "c.esad", data, "-t", "verdict", "--out", tmp_path / "r.html", "--json").json
    assert found["calibrated"]
    text = Page((tmp_path / "r.html").read_text(encoding="utf-8")).text
    assert "p-value at most" in text
    assert "Calibrated on" in text


@pytest.mark.parametrize("method", ["iforest", "deep_svdd"])
def test_other_methods_have_reports_too(esad, method, parts, tmp_path, kit):
    fit = ("fit", parts, "-l", "verdict", "-i", "serial", "-m", method, "--quiet", "-o", tmp_path / "m.esad")
    small = () if method == "iforest" else ("--set", "n_epochs=1", "--set", "pretrain_epochs=1")
    assert esad(*fit, *small).code == 0
    assert esad("report", tmp_path / "m.esad", parts, "--out", tmp_path / "r.html", "--top", 2).code == 0
    assert Page((tmp_path / "r.html").read_text(encoding="utf-8")).tags.count("article") == 2


def test_pictures_come_with_heat_maps_and_kinds_by_folder(esad, kit, tmp_path):
    pytest.importorskip("PIL.Image")
    train = kit.pictures(tmp_path / "train", {"unlabelled": 12})
    test = kit.pictures(tmp_path / "test", {"anomaly/scratch": 3, "anomaly/dent": 2, "normal": 6})
    fit = ("fit", train, "--out", tmp_path / "m.esad", "--quiet", "--method", "autoencoder", "--set", "n_epochs=1")
    assert esad(*fit).code == 0
    found = esad("report", tmp_path / "m.esad", test, "--out", tmp_path / "r.html", "--top", 2, "--json").json
    assert [(kind["kind"], kind["n_rows"]) for kind in found["kinds"]] == [("scratch", 3), ("dent", 2)]
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert page.tags.count("img") == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "r.txt"), "'r.txt'"),
        (("--out", "no/r.html"), "does not exist"),
        (("--out", "."), "'.'"),
        (
            ("--out", "r.html", "--kind-column", "colour"),
            "--kind-column is about the truth of the rows",
        ),
        (("--out", "r.html", "--anomaly-value", "1"), "give --truth-column too"),
        (("--out", "r.html", "-t", "verdict", "--seen-kind", "dent"), "give --kind-column too"),
        (("--out", "r.html", "-t", "verdikt"), "Did you mean 'verdict'?"),
        (("--out", "r.html", "-t", "made"), "--anomaly-value"),
        (("--out", "r.html", "--top", "0"), "--top"),
        (("--out", "r.html", "--cases", "none.csv"), "none.csv"),
        ((), "--out"),
    ],
)
def test_what_cannot_be_is_refused_with_one_line(esad, model, parts, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = esad("report", model, "parts.csv", *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert words in done.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture(scope="module")
def page(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("browser") / "r.html"
    model, data = trained
    assert run(["report", str(model), str(data), "-t", "verdict", "--kind-column", "kind", "--out", str(out)]) == 0
    return out


@pytest.mark.extra
class TestBrowser:
    """In Chromium: scripts in the data do not run, and the page is no wider than the window."""

    def chromium(self, page, *options):
        if CHROMIUM is None:
            pytest.skip("needs Chromium")
        profile = page.parent / "profile"
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", *options]
        done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, check=True, timeout=120)
        return done.stdout

    def test_data_is_shown_and_not_run(self, page):
        shown = self.chromium(page, "--dump-dom")
        title = re.search("<title>(.*?)</title>", shown)[1]
        assert title == "&lt;evil&gt;.csv, scored by m.esad"
        assert "&lt;script&gt;document.title=" in shown

    @pytest.mark.parametrize("width", [390, 1200])
    def test_the_page_fits_the_window(self, page, width):
        measured = page.with_name(f"measured-{width}.html")
        text = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
        script = "<script>document.title = document.documentElement.scrollWidth</script></body>"
        inner = text.replace("</body>", script)
        inner = inner.replace("<body>", f'<body style="width: {width}px">')
        measured.write_text(inner, encoding="utf-8")
        shown = self.chromium(measured, f"--window-size={max(width, 500)},900", "--dump-dom")
        assert int(re.search("<title>(.*?)</title>", shown)[1]) <= max(width, 500)

    @pytest.mark.parametrize("dark", [False, True])
    def test_screens_light_and_dark_have_the_colours_asked_for(self, page, dark):
        pillow = pytest.importorskip("PIL.Image")
        picture = page.with_name(f"dark-{dark}.png")
        asked = ("--blink-settings=preferredColorScheme=0",) if dark else ("--blink-settings=preferredColorScheme=1",)
        self.chromium(page, *asked, "--window-size=800,600", f"--screenshot={picture}")
        with pillow.open(picture) as shot:
            corner = shot.convert("L").getpixel((3, 3))
        assert corner < 60 if dark else corner > 200

    def test_a_phone_breaks_no_date(self, kit, tmp_path):
        if CHROMIUM is None:
            pytest.skip("needs Chromium")
        playwright = pytest.importorskip("playwright.sync_api")
        header = ["serial", "size_in_millimetres", "colour_of_the_part", "made", "checked", "verdict"]
        table = [[*row[:2], row[2] and f"a long word for {row[2]}", *row[3:]] for row in kit.rows()]
        data, model = kit.csv(tmp_path / "parts.csv", header, table), tmp_path / "m.esad"
        fit = ("fit", str(data), "-l", "verdict", "-i", "serial", "-m", "iforest", "--quiet", "-o", str(model))
        assert run(list(fit)) == 0
        assert run(["report", str(model), str(data), "--out", str(tmp_path / "r.html"), "--top", "5"]) == 0
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            shown = browser.new_page(viewport={"width": 390, "height": 844})
            shown.goto((tmp_path / "r.html").as_uri())
            dates = shown.evaluate(LINES_OF_DATES)
            width = shown.evaluate("document.documentElement.scrollWidth")
            browser.close()
        assert (set(dates), width) == ({1}, 390)

    def test_it_prints(self, page):
        out = page.with_suffix(".pdf")
        self.chromium(page, f"--print-to-pdf={out}")
        assert out.read_bytes().startswith(b"%PDF")
