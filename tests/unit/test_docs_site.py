"""The pages as one site: it is built without a warning, has every page, and every link of a page leads somewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ELSEWHERE = ("http://", "https://", "mailto:")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(built)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's makers advertise otherwise
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return built


def test_every_page_is_built(site: Path) -> None:
    """A page that the navigation lacks is a warning, and warnings fail the build."""
    pages = [page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")]
    places = [page.parent if page.name == "README" else page for page in pages]
    assert [str(place) for place in places if not (site / place / "index.html").is_file()] == []


class _Loaded(HTMLParser):
    """What a browser fetches by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        url = given.get("href") if tag == "link" else given.get("src")
        if url and (tag != "link" or given.get("rel") in ("stylesheet", "preconnect", "preload", "icon")):
            self.urls.append(url)


def test_a_page_asks_no_other_host(site: Path) -> None:
    found = set()
    for page in site.rglob("*.html"):
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.urls
        found |= {url for url in loaded.urls if re.match(r"(\w+:)?//", url)}
    assert found == set()


def _prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as both GitHub and the site name them."""
    titles = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def _links() -> list[tuple[str, str]]:
    return [
        (page.relative_to(ROOT).as_posix(), link)
        for page in PAGES
        for link in sorted(set(LINK.findall(_prose(page))))
        if not link.startswith(ELSEWHERE)
    ]


@pytest.mark.parametrize("page", sorted({page for page, _ in _links()}))
def test_links_lead_somewhere(page: str) -> None:
    for link in [link for each, link in _links() if each == page]:
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in _anchors(target), f"{page} links to {link}, which has {sorted(_anchors(target))}"


def test_pages_of_the_site_link_only_within_it() -> None:
    """A link out of docs/ would work where the repository is browsed, and not on the site."""
    outside = [
        (page, link)
        for page, link in _links()
        if page.startswith("docs/")
        and link.partition("#")[0]
        and not ((ROOT / page).parent / link.partition("#")[0]).resolve().is_relative_to(DOCS)
    ]
    assert outside == []


def test_the_index_and_the_list_of_decisions_have_every_page() -> None:
    for folder in (DOCS, DOCS / "decisions"):
        pages = {page.name for page in folder.glob("*.md")} - {"README.md"}
        assert pages <= {link.partition("#")[0] for link in LINK.findall((folder / "README.md").read_text())}
