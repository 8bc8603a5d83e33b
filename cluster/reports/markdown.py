"""Markdown of texts that come from a finding: none of them becomes a link, a mention, HTML or the end of a block."""

import re

from scenarios.visible import visible_line, visible_text

# What Markdown, or a site that shows it, acts on: code, links, HTML, mentions, references, addresses, emphasis.
_ACTIVE = re.compile(
    r"`|\\|\]\s*[(\[:]|<[A-Za-z/!?]|(?<!\w)@\w|&#?\w+;|://|www\.|(?<!\w)#\d|\*\*|~~|\|\s*\||^\s*(?:[-+*>#|=~]|\d+[.)])"
)
# Whole spans of code, in which nothing is active.
_SPAN = re.compile(r"`[^`]+`")
_TICKS = re.compile("`+")


def inline(text: str) -> str:
    """Return a text for a line of Markdown: as it is, or as a code span if Markdown would act on a part of it."""
    line = visible_line(text)
    return span(line) if _ACTIVE.search(_SPAN.sub("", line)) else line


def span(text: str) -> str:
    """Return a text as a code span, which nothing in it ends."""
    line = visible_line(text)
    ticks = _fence(line, 1)
    room = " " if line.startswith(("`", " ")) or line.endswith(("`", " ")) else ""
    return f"{ticks}{room}{line}{room}{ticks}"


def block(language: str, text: str) -> str:
    """Return a text as a fenced block, which no line of it ends."""
    fence = _fence(text, 3)
    return f"{fence}{language}\n{visible_text(text)}\n{fence}"


def _fence(text: str, least: int) -> str:
    """Return more backticks than any run of them in a text has."""
    return "`" * max(least, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
