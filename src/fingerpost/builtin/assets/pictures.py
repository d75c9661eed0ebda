"""Pictures drawn with matplotlib, as SVG or PNG. Text in SVG is escaped: it cannot run or load anything."""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate
from typing import Any, Final, TypeAlias

from fingerpost.builtin.toolkit import ToolRefused

# Those of matplotlib, whose keyword arguments have no types.
Figure: TypeAlias = Any
Axes: TypeAlias = Any
Point: TypeAlias = tuple[float, float]

INK_COLOUR: Final = "#1f2933"
SOFT_COLOUR: Final = "#52606d"
FAINT_COLOUR: Final = "#e4e7eb"
AXIS_COLOUR: Final = "#9aa5b1"
PAPER_COLOUR: Final = "#ffffff"
TITLE_SIZE: Final = 18.0
PNG_SCALE: Final = 2.0  # pixels per picture unit, for high-density screens
MAX_PIXELS: Final = 24_000_000
_DPI: Final = 72  # so that points, pixels and units of SVG are the same
_NOT_XML_PATTERN: Final = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE: Final[Mapping[str, Any]] = {
    "axes.unicode_minus": False,
    "font.sans-serif": ("DejaVu Sans", "Helvetica Neue", "Helvetica", "Arial", "Noto Sans"),
    "svg.fonttype": "none",
    "svg.hashsalt": "fingerpost",
    "text.color": INK_COLOUR,
    "text.parse_math": False,
}
_drawing: Final = threading.Lock()  # matplotlib's settings belong to the process


def load_library(name: str) -> Any:
    """Import a library of the extra `assets`. Raises `ToolRefused` if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        message = f"This needs {name.partition('.')[0]}, which is not installed."
        raise ToolRefused(message, hint="pip install 'fingerpost[assets]'") from None


def clean_text(text: str, limit: int) -> str:
    """Return the first `limit` characters of the text on one line, without those that XML cannot hold."""
    return " ".join(_NOT_XML_PATTERN.sub("", text).split())[:limit]


@contextmanager
def open_figure(width: float, height: float) -> Generator[Figure]:
    """Return an empty figure with our style, whatever a `matplotlibrc` says. Render it inside."""
    matplotlib, figures = load_library("matplotlib"), load_library("matplotlib.figure")
    with _drawing, matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters without a glyph; `render_figure` refuses them as PNG
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield figures.Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor=PAPER_COLOUR)


def open_canvas(figure: Figure) -> Axes:
    """Return axes that cover the figure, with units of pixels and y downwards."""
    width, height = figure.get_size_inches() * _DPI
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(height, 0))
    return axes


def render_figure(figure: Figure, file_format: str, title: str) -> bytes:
    """Return the file. Raises `ToolRefused` if PNG cannot hold it."""
    file = io.BytesIO()
    figure.draw_without_rendering()  # sets the texts and improves the layout
    if file_format == "svg":
        about = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata={**about, "Title": title})
        document = file.getvalue()
        document = document[document.index(b"<svg ") :]  # without declarations, to stand in a page
        return re.sub(rb'(width|height)="([\d.]+)pt"', rb'\1="\2"', document, count=2)
    texts = figure.findobj(load_library("matplotlib.text").Text)
    _check_png(figure, "".join(text.get_text() for text in texts))
    figure.savefig(file, format="png", dpi=_DPI * PNG_SCALE)
    return file.getvalue()


def _check_png(figure: Figure, text: str) -> None:
    width, height = figure.get_size_inches() * _DPI * PNG_SCALE
    if width * height > MAX_PIXELS:
        message = f"As png this would have more than {MAX_PIXELS:,} pixels."
        raise ToolRefused(message, hint="Use format svg, or draw a part of it.")
    fonts = load_library("matplotlib.font_manager")
    font = fonts.get_font(fonts.findfont("DejaVu Sans"))
    if not all(letter.isspace() or font.get_char_index(ord(letter)) for letter in text):
        raise ToolRefused("Its words have letters that can be written as svg only.", hint="Use format svg.")


_NARROW_LETTERS: Final = frozenset("iljtfrI.,:;|!'`()[]{} -/\\")
_WIDE_LETTERS: Final = frozenset("mwMW@%—…")


def estimate_width(text: str, size: float) -> float:
    """Estimate the width of a line in a sans-serif font, rather too wide than too narrow."""
    return size * sum(_get_advance(letter) for letter in text)


def _get_advance(letter: str) -> float:
    if letter in _NARROW_LETTERS:
        return 0.4
    if letter in _WIDE_LETTERS:
        return 1.0
    if ord(letter) >= 0x1100:  # scripts with full-width letters
        return 1.05
    return 0.75 if letter.isupper() else 0.63


def shorten_text(text: str, size: float, width: float) -> str:
    """Return the part of the text that fits into `width`."""
    if estimate_width(text, size) <= width:
        return text
    ends = accumulate(_get_advance(letter) * size for letter in f"…{text}")
    return f"{text[: sum(end <= width for end in ends) - 1].rstrip()}…"


def wrap_text(text: str, size: float, width: float, limit: int) -> Sequence[str]:
    """Wrap the text at words into at most `limit` lines. The last line is shortened if text remains."""
    lines: list[str] = []
    for word in text.split():
        if lines and (len(lines) == limit or estimate_width(f"{lines[-1]} {word}", size) <= width):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [shorten_text(line, size, width) for line in lines]
