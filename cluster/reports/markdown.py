"""Markdown of a finding's texts, in which nothing of a text acts as markup.

None of them becomes a link, a mention, HTML or the end of a block.
"""

import re

from scenarios.visible import visible_line, visible_text

# Characters that Markdown, or a site that displays it, interprets: code, links, HTML, mentions, references, emphasis.
_ACTIVE = re.compile(
    r"`|\\|\]\s*[(\[:]|<[A-Za-z/!?]|(?<!\w)@\w|&#?\w+;|://|www\.|(?<!\w)#\d|\*\*|~~|\|\s*\||^\s*(?:[-+*>#|=~]|\d+[.)])"
)
# Complete code spans; Markdown does not interpret their content.
_SPAN = re.compile(r"`[^`]+`")
_TICKS = re.compile("`+")
# A line that begins a list item, a table row or a quotation is not joined to the line before.
_OWN_LINE = re.compile(r"\s*(- |\||>|\d+\. )")


def inline(text: str) -> str:
    """Return a text as one line of Markdown, with markup characters made harmless.

    It is a code span if Markdown would interpret a part of it.
    """
    line = visible_line(text)
    return span(line) if _ACTIVE.search(_SPAN.sub("", line)) else line


def span(text: str) -> str:
    """Return a text as a code span, delimited by more backticks than the text contains."""
    line = visible_line(text)
    ticks = _fence(line, 1)
    room = " " if line.startswith(("`", " ")) or line.endswith(("`", " ")) else ""
    return f"{ticks}{room}{line}{room}{ticks}"


def block(language: str, text: str) -> str:
    """Return a text as a fenced block, delimited by more backticks than the text contains."""
    fence = _fence(text, 3)
    return f"{fence}{language}\n{visible_text(text)}\n{fence}"


def join_paragraph_lines(text: str) -> str:
    """Join the lines of each paragraph and list item, as GitHub would keep line breaks."""
    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        starts = is_code or is_fence or not line.strip() or _OWN_LINE.match(line)
        if starts or not lines or not lines[-1].strip() or lines[-1].lstrip().startswith("```"):
            lines.append(line)
        else:
            lines[-1] = f"{lines[-1]} {line.strip()}"
        is_code ^= is_fence
    return "\n".join(lines)


def _fence(text: str, least: int) -> str:
    """Return more backticks in a row than a text contains."""
    return "`" * max(least, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
