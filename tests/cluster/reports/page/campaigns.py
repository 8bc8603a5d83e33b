"""Campaign directories from given verdicts, and the elements of a page."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from cluster.dispatch.job import Job
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.page.render import render_page
from cluster.reports.page.timelines import TimelinePicture
from cluster.storage.store import Store
from tests.cluster.fake_judge import FakeJudge, trace
from workers.record.verdict import Judgement, Verdict


def judged(request: str, verdict: Verdict | None = None) -> Judgement:
    """Return the fake judge's judgement, with `verdict` in place of its own if given."""
    judgement = FakeJudge().judge(trace(request), True)
    return judgement if verdict is None else judgement.model_copy(update={"verdict": verdict})


def campaign_of(folder: Path, judgements: Mapping[str, Judgement], engine: str = "") -> Path:
    """Write a campaign of scenarios by name, and return its folder."""
    with Store(folder, engine=engine) as store:
        for name, judgement in judgements.items():
            job = Job.of(judgement.trace.model_copy(update={"seed": len(name)}), sweep=True)
            store.begin_attempt(job.key, 1, 0)
            store.record(job, 1, judgement, name)
    return folder


def page_of(*folders: Path, timelines: Mapping[str, TimelinePicture] | None = None) -> str:
    """Return the parsed report page of some campaigns."""
    return render_page([campaign for folder in folders for campaign in read_campaigns(folder)], timelines or {})


@dataclass
class Element:
    """HTML element: its direct text, and its text with all inner elements."""

    tag: str
    attributes: dict[str, str | None]
    parent: "Element | None" = None
    text: str = ""
    whole: str = ""

    @property
    def classes(self) -> list[str]:
        """Return the CSS classes of the element."""
        return str(self.attributes.get("class", "")).split()

    @property
    def ancestors(self) -> "Iterator[Element]":
        """Yield the enclosing elements, the nearest first."""
        if self.parent is not None:
            yield self.parent
            yield from self.parent.ancestors


@dataclass
class Page(HTMLParser):
    """The elements of a page in order."""

    source: str
    elements: list[Element] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), self._open[-1] if self._open else None)
        self.elements.append(element)
        if tag not in ("meta", "link", "br", "input", "img", "hr", "wbr"):
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        opened = self._open.pop()
        assert opened.tag == tag, f"</{tag}> closes <{opened.tag}>"

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].text += data
            for element in self._open:
                element.whole += data

    def all(self, tag: str) -> list[Element]:
        """Return the elements with this tag."""
        return [element for element in self.elements if element.tag == tag]

    @property
    def rows(self) -> Any:
        """Return the rows of the results table, by campaign."""
        (data,) = [element for element in self.all("script") if element.attributes.get("id") == "rows"]
        return json.loads(data.text)
