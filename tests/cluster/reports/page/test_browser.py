"""The report page in a real browser: no errors, usable by keyboard, fits a phone.

Does not verify: anything on a machine without a Chromium.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cli import main as cli
from scenarios import codec
from tests.cluster.reports.page.browser import Browser, browser_path
from tests.cluster.reports.page.campaigns import campaign_of, judged
from workers.record.verdict import Agreed
from workers.run.worker import Worker

REGRESSION = Path(__file__).parents[4] / "scenarios/regressions/vllm-38556-accepted-counts.yaml"
MANY = 2_154_453_000
PHONE, DESKTOP = (390, 844), (1280, 900)

pytestmark = pytest.mark.skipif(browser_path() is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report of sixty scenarios with two failures, one with a timeline."""
    folder = tmp_path_factory.mktemp("browser")
    found = Worker().judge(codec.load(REGRESSION), False)
    scenarios = {f"{'x' * at}.yaml": judged("agree") for at in range(1, 59)}
    many = judged("agree").verdict
    assert isinstance(many, Agreed)
    stats = many.stats.model_copy(update={"captures": MANY})
    scenarios["x.yaml"] = judged("agree", many.model_copy(update={"stats": stats}))
    campaign_of(folder, {**scenarios, "a failing one.yaml": found, "a crashing one": judged("crash")})
    assert cli.run(["report", str(folder)]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests here."""
    path = browser_path()
    assert path is not None
    with Browser(path) as opened:
        yield opened


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_loads_nothing_has_no_errors_and_fits_the_window(
    browser: Browser, page: Path, size: tuple[int, int], dark: bool
) -> None:
    browser.open(page, *size, dark=dark)
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert browser.evaluate("document.querySelector('h1').textContent") == "2 findings"


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_number_fits_its_card(browser: Browser, page: Path, size: tuple[int, int]) -> None:
    browser.open(page, *size)
    cards = "[...document.querySelectorAll('.card dd')]"
    shown = browser.evaluate(f"{cards}.map(dd => dd.textContent)")
    assert max(map(len, shown)) == len(f"{MANY:,}")
    wide = f"{cards}.filter(dd => dd.scrollWidth > dd.clientWidth || dd.offsetHeight > 40).map(dd => dd.textContent)"
    assert browser.evaluate(wide) == []


def test_phone_shows_both_ends_of_the_missing_order(browser: Browser, page: Path) -> None:
    browser.open(page, *PHONE)
    hidden = browser.evaluate(
        "(() => { const lanes = document.querySelector('.lanes'), frame = lanes.getBoundingClientRect();"
        " return [...lanes.querySelectorAll('.task.wrong rect, .chip rect')].map(each => each.getBoundingClientRect())"
        ".filter(box => box.left < frame.left || box.right > frame.right || box.top < frame.top"
        " || box.bottom > frame.bottom).length })()"
    )
    assert browser.evaluate("document.querySelectorAll('.task.wrong').length") == 2
    assert hidden == 0


def test_phone_shows_the_whole_replay_command(browser: Browser, page: Path) -> None:
    browser.open(page, *PHONE)
    clipped = "[...document.querySelectorAll('pre.command')].filter(pre => pre.scrollWidth > pre.clientWidth).length"
    assert browser.evaluate("document.querySelectorAll('pre.command').length") == 2
    assert browser.evaluate(clipped) == 0


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("count", range(1, 13))
def test_rows_of_cards_fill_the_width(browser: Browser, page: Path, size: tuple[int, int], count: int) -> None:
    browser.open(page, *size)
    card = '<div class="card"><dt>name</dt><dd>1</dd></div>'
    browser.evaluate(f"document.querySelector('.cards').innerHTML = {card!r}.repeat({count})")
    rows = browser.evaluate(
        "(() => { const rows = {}; for (const card of document.querySelectorAll('.cards')[0].children)"
        " (rows[card.offsetTop] ??= []).push(card.offsetWidth); return Object.values(rows) })()"
    )
    width = browser.evaluate("document.querySelector('.cards').clientWidth")
    assert all(width - 6 <= sum(row) + 12 * (len(row) - 1) <= width + 6 for row in rows)
    assert size == PHONE or len(rows) == 1 or min(map(len, rows)) >= max(map(len, rows)) - 1
    assert size == DESKTOP or max(map(len, rows)) <= 2


def test_trace_is_downloaded_from_the_page_itself(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page, *DESKTOP)
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), eventsEnabled=True)
    browser.evaluate("document.querySelector('a.download').click()")
    browser.wait_for("Browser.downloadProgress", lambda values: values["state"] == "completed")
    (file,) = tmp_path.iterdir()
    assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert browser.complaints == []


def rows(browser: Browser) -> list[str]:
    """Return the scenarios that the table displays."""
    script = "[...document.querySelectorAll('.results tbody tr')].map(row => row.cells[0].textContent)"
    shown: list[str] = browser.evaluate(script)
    return shown


def test_the_table_is_paged_filtered_and_sorted(browser: Browser, page: Path) -> None:
    browser.open(page, *DESKTOP)
    assert len(rows(browser)) == 50
    browser.evaluate("document.querySelector('.pager [data-go=\"1\"]').click()")
    assert len(rows(browser)) == 10
    browser.evaluate("document.querySelector('.filter input').focus()")
    browser.write("FAILING")
    assert rows(browser) == ["a failing one.yaml"]
    browser.evaluate("document.querySelector('.results tbody a').click()")
    assert str(browser.evaluate("location.hash")).startswith("#finding-")
    browser.open(page, *DESKTOP)
    for _ in range(2):
        browser.evaluate("document.querySelector('[data-column=\"1\"]').click()")
    assert rows(browser)[:2] == ["a failing one.yaml", "a crashing one"]


def test_the_timeline_can_be_read_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, *DESKTOP)
    detail = "document.querySelector('.timeline .detail').textContent"
    for _ in range(40):
        browser.press("Tab")
        if browser.evaluate("document.activeElement.classList.contains('lanes')"):
            break
    browser.press("ArrowDown")
    first = browser.evaluate(detail)
    assert "step" in first
    assert browser.evaluate("document.querySelector('.task.current').classList.contains('plain')") is False
    browser.press("ArrowDown")
    assert browser.evaluate(detail) != first
    browser.press("ArrowUp")
    assert browser.evaluate(detail) == first


def test_every_control_is_reachable_by_tab_and_visible(browser: Browser, page: Path) -> None:
    browser.open(page, *DESKTOP)
    usable = browser.evaluate(
        "[...document.querySelectorAll('a, button, input, select, summary, [tabindex=\"0\"]')]"
        ".filter(each => each.checkVisibility() && !each.disabled).length"
    )
    reached = 0
    for _ in range(2 * usable):
        browser.press("Tab")
        if browser.evaluate("document.activeElement === document.body"):
            break
        reached += browser.evaluate(
            "(() => { const a = document.activeElement; const is = !a.dataset.seen;"
            " a.dataset.seen = 1; return is ? 1 : 0; })()"
        )
    radios = browser.evaluate("document.querySelectorAll('input[type=radio]:not(:disabled)').length")
    # Tab reaches one radio button of a group; arrow keys reach the others.
    assert reached >= usable - max(0, radios - 1) - 1


def test_a_policy_exchanges_the_numbers_of_the_coverage(browser: Browser, page: Path) -> None:
    browser.open(page, *DESKTOP)
    cells = "[...document.querySelectorAll('.matrix td')].map(each => each.textContent)"
    before = browser.evaluate(cells)
    browser.evaluate("document.querySelector('.policies input[value=eager]').click()")
    after = browser.evaluate(cells)
    assert after != before
    browser.evaluate("document.querySelector('.policies input[value=\"\"]').click()")
    assert browser.evaluate(cells) == before


def test_a_command_is_copied(browser: Browser, page: Path) -> None:
    browser.open(page, *DESKTOP)
    browser.ask("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.evaluate(
        "(() => { const button = document.querySelector('.copy'); button.focus(); window.told = new Promise(done =>"
        " new MutationObserver(() => done(button.textContent)).observe(button, { childList: true })) })()"
    )
    browser.press("Enter")
    assert browser.evaluate("window.told") == "Copied"
    copied = browser.evaluate("navigator.clipboard.readText()")
    assert copied == browser.evaluate("document.querySelector('.copyable code').textContent")
    assert copied.startswith("specstorm replay ")
