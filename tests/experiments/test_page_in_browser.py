"""What a browser makes of a page: what is drawn and said, in both themes, narrow and wide."""

import itertools
import shutil

import pytest

from dclm_jax.experiments import figures
from tests.experiments import pages
from tests.experiments.pages import channels, contrast, luminance

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PHONE, DESKTOP = {"width": 375, "height": 800}, {"width": 1280, "height": 900}

# Everything that shows text of its own: its colour and the first opaque ground behind it, each as
# red, green, blue, from 0 to 255, as a canvas paints them.
COLOURS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const painted = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const shown = [...document.body.querySelectorAll("*")].filter((one) =>
    one.checkVisibility() && !one.closest("script, .told") && [...one.childNodes].some(
      (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim()));
  return shown.map((one) => {
    const style = getComputedStyle(one);
    let behind = one;
    while (painted(getComputedStyle(behind).backgroundColor)[3] < 255) {
      behind = behind.parentElement;
    }
    const text = one instanceof SVGElement ? style.fill : style.color;
    const ground = getComputedStyle(behind).backgroundColor;
    return [one.tagName + " " + one.textContent.slice(0, 30), painted(text), painted(ground)];
  });
}"""
MARKS = """() => [...document.querySelectorAll("main svg[role=img]")].map((svg) => {
  const frame = svg.getBoundingClientRect();
  const boxes = (kind) => [...svg.querySelectorAll(kind)].map((one) => {
    const box = one.getBoundingClientRect();
    return [box.left - frame.left, box.top - frame.top, frame.right - box.right,
            frame.bottom - box.bottom];
  });
  return {marks: boxes(".line use"), lines: boxes(".line > path"), texts: boxes("text"),
          width: frame.width, height: frame.height};
})"""
FOCUSED = """() => {
  const one = document.activeElement;
  return one.tagName + ": " + (one.getAttribute("aria-label") || one.textContent).trim();
}"""


@pytest.fixture(scope="module")
def browser():
    """Skips the tests where there is no Chromium: pip has what drives a browser, not the browser.
    What a page holds is tested without one, in test_html.py."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium on PATH ({', '.join(NAMES)})")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=path)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(pages.text(), "utf-8")
    return path.as_uri()


@pytest.fixture
def visit(browser, address):
    """Opens the page; in the end it has asked for nothing else and complained of nothing."""
    opened, messages = [], []

    def open_page(**options):
        # Without motion a page is at once where it is scrolled to.
        page = browser.new_page(reduced_motion="reduce", **options)
        page.on("request", lambda request: messages.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(address)
        opened.append(page)
        return page

    yield open_page
    assert messages == [address] * len(opened)
    for page in opened:
        page.close()


def test_both_themes_can_be_read(visit):
    grounds = []
    for scheme in ("light", "dark"):
        page = visit(color_scheme=scheme, viewport=DESKTOP)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        colours = page.evaluate(COLOURS)
        grounds.append(luminance(colours[0][2]))
        assert len(colours) > 300
        poor = [
            (what, text, ground) for what, text, ground in colours if contrast(text, ground) < 4.5
        ]
        assert poor == []
        for index in range(len(figures.COLOURS)):
            name = f"getComputedStyle(document.body).getPropertyValue('--c{index}')"
            assert contrast(channels(page.evaluate(name)), colours[0][2]) >= 3
    assert grounds[0] > 0.9 and grounds[1] < 0.05


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_charts_are_drawn_within_a_page_that_fits(visit, viewport):
    page = visit(viewport=viewport)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    wide, room = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= room == viewport["width"]
    charts = page.evaluate(MARKS)
    # Learning curves of three rows; two rows in six ranges, of which three have values.
    assert [len(chart["marks"]) for chart in charts] == [3 * 10, 2 * 3, 2 * 3]
    for chart in charts:
        assert chart["width"] > 300 and chart["lines"]
        boxes = [*chart["marks"], *chart["lines"], *chart["texts"]]
        assert min(side for box in boxes for side in box) >= 0
        # left, top, right, bottom: two texts do not lie upon one another.
        for text, other in itertools.combinations(chart["texts"], 2):
            apart = [text[side] + other[(side + 2) % 4] for side in range(4)]
            sizes = [chart["width"], chart["height"]] * 2
            assert any(a >= size for a, size in zip(apart, sizes, strict=True)), (text, other)
        assert len({tuple(box) for box in chart["marks"]}) == len(chart["marks"])


def test_arrow_keys_and_the_pointer_show_the_numbers_of_a_word(visit):
    page = visit(viewport=PHONE)
    words = page.locator("ruby")
    names = [text.split("\n")[0] for text in words.all_inner_texts()]

    def shown():
        text = page.locator("#shown").inner_text()
        assert text.endswith(page.evaluate("document.activeElement.title"))
        return text.split(":")[0]

    words.first.focus()
    assert shown() == names[0]
    for key, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("ArrowUp", 1)):
        page.keyboard.press(key)
        assert shown() == names[at]
    # Before the first word nothing moves, and Tab goes to the first word of the next sentence.
    words.first.focus()
    page.keyboard.press("ArrowLeft")
    assert shown() == names[0]
    page.keyboard.press("Tab")
    assert shown() == names[len(pages.SENTENCES[0].split()) + 1]
    words.nth(3).hover()
    assert page.locator("#shown").inner_text().startswith(f"{names[3]}: ")


def test_the_keyboard_reaches_everything(visit):
    page = visit(viewport=DESKTOP)
    reached = []
    # After the last one the page itself has the focus.
    while not reached or not reached[-1].startswith("BODY"):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
        outlined = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outlined != "none" or reached[-1].startswith("BODY")
    wanted = [
        "A: Skip to the results",
        "A: Configurations",
        "A: Provenance of the numbers",
        "DIV: Options that differ",
        "SUMMARY: The numbers of this figure",
    ]
    assert [name for name in dict.fromkeys(reached) if name in wanted] == wanted
    # The first word of each sentence of two documents as read by three models.
    assert sum(name.startswith("RUBY") for name in reached) == 2 * 3 * len(pages.SENTENCES)


def test_a_screen_reader_finds_its_way(visit):
    page = visit()
    for role, name in (("main", None), ("banner", None), ("navigation", "Contents")):
        assert page.get_by_role(role, name=name).count() == 1
    titles = page.locator("main > section > h2").all_inner_texts()
    regions = [page.get_by_role("region", name=title, exact=True).count() for title in titles]
    assert len(titles) == 7 and all(regions)
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(set(ids)) == len(ids)
    for image in page.get_by_role("img").all():
        names = image.get_attribute("aria-labelledby").split()
        title, described = (page.locator(f"[id='{name}']").text_content() for name in names)
        assert title and "ccdclm" in described and "adclm" in described
    assert page.locator("table:not(:has(caption)), th:not([scope])").count() == 0
    figure = page.locator("figure").nth(1)
    figure.get_by_text("The numbers of this figure").click()
    assert figure.get_by_role("table").get_by_role("columnheader").all_inner_texts() == [
        "position, from 1",
        "adclm",
        "ccdclm",
    ]


def test_text_stays_text_and_without_scripts_all_is_shown(visit):
    page = visit(java_script_enabled=False)
    for view in (page, visit()):
        assert view.title() == view.locator("h1").inner_text()
        assert view.locator("script").count() == 1
        words = view.locator("ruby:visible").all_inner_texts()
        tokens = sum(len(sentence.split()) + 1 for sentence in pages.SENTENCES)
        assert len(words) == 2 * 3 * tokens
        assert pages.HOSTILE in " ".join(words)
