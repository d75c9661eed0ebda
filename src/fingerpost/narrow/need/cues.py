"""The cues: what in a request speaks for or against a tool, said so that a person understands it.

A cue is found by its word list (`words/`), by the request's form, or by its
signals. Its weight is fitted, but only to the side it may speak for: a path in
a request never counts against a tool, however the training data fell.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from fingerpost.frozen import frozen


@frozen(kw_only=False)
class Cue:
    """`side`: +1 may only speak for a tool, -1 only against one, 0 either way."""

    name: str
    side: int
    reason: str


WORD_CUES: Final = (
    Cue("file", +1, "speaks of a file or document"),
    Cue("command", +1, "asks to run something"),
    Cue("act", +1, "asks for something to be done"),
    Cue("seek", +1, "asks to find or look something up"),
    Cue("where", +1, "asks for a place"),
    Cue("available", 0, "asks what there is"),
    Cue("current", +1, "asks for something current"),
    Cue("live", +1, "asks for facts that change, such as prices or weather"),
    Cue("offer", +1, "is about offers, products or places"),
    Cue("reference", +1, "asks for records, data or papers"),
    Cue("service", +1, "names a service or source"),
    Cue("artefact", +1, "is about a picture, chart or other artefact"),
    Cue("make", +1, "asks for something to be made"),
    Cue("convert", +1, "asks for a conversion or exact calculation"),
    Cue("monitor", +1, "asks to be reminded or told"),
    Cue("point", +1, "points to something that is not in the text"),
    Cue("serve", +1, "asks for a service"),
    Cue("want", +1, "says what the person needs"),
    Cue("play", +1, "asks for a game or reading with rules"),
    Cue("what", 0, "asks what something is"),
    Cue("explain", -1, "asks for an explanation"),
    Cue("write", -1, "asks for a text to be written"),
    Cue("rework", -1, "works on text it gives itself"),
    Cue("role", -1, "asks to imagine or play a role"),
    Cue("opinion", -1, "asks for an opinion"),
    Cue("advice", -1, "asks for advice"),
    Cue("code", -1, "is a programming question"),
    Cue("people", -1, "is about people in general"),
    Cue("life", -1, "is about the person's life"),
    Cue("chat", -1, "is small talk"),
    Cue("fact", -1, "is a general knowledge question"),
    Cue("sum", -1, "is a sum or puzzle a model can do"),
)
FORM_CUES: Final = (
    Cue("own", +1, "is about the person's own data"),
    Cue("made", +1, "asks for a picture, chart or other artefact to be made"),
    Cue("asks live", +1, "asks for a fact that changes"),
    Cue("help with a thing", +1, "asks how to do something with a service or with one's own things"),
    Cue("opens with act", +1, "opens with an instruction to act"),
    Cue("opens with seek", +1, "opens with an instruction to search"),
    Cue("opens with make", 0, "opens with an instruction to make something"),
    Cue("opens with write", -1, "opens with an instruction to write"),
    Cue("opens with explain", -1, "opens like a question for an explanation"),
    Cue("opens with opinion", -1, "opens like a question for an opinion"),
    Cue("opens with advice", -1, "opens like a question for advice"),
    Cue("named", +1, "names something in particular"),
    Cue("odd name", +1, "names a product or code"),
    Cue("question", 0, "is a question"),
    Cue("asks the reader", 0, "asks politely"),
    Cue("first person", 0, "speaks of the person"),
    Cue("given text", -1, "brings the text to work on"),
    Cue("quoted", 0, "quotes something"),
    Cue("blank", -1, "leaves a blank to fill"),
    Cue("ends in what", -1, "is a question for common sense"),
    Cue("short", 0, "is very short"),
    Cue("long", 0, "is long"),
    Cue("several sentences", 0, "has several sentences"),
    Cue("numbers", 0, "has numbers"),
    Cue("arithmetic", -1, "is plain arithmetic"),
    Cue("condition", -1, "supposes something"),
)
SIGNAL_CUES: Final = (
    Cue("path", +1, "names a file"),
    Cue("url", +1, "names a web address"),
    Cue("email", +1, "names an e-mail address"),
    Cue("id", +1, "names an id"),
    Cue("date", +1, "names a date"),
    Cue("time", +1, "names a time"),
)
CUES: Final = WORD_CUES + FORM_CUES + SIGNAL_CUES
PLACE_OF: Final = {cue.name: place for place, cue in enumerate(CUES)}

LONGEST_PHRASE: Final = 4
_WORDS: Final = Path(__file__).parent / "words"


@cache
def phrases(language: str) -> dict[str, tuple[str, ...]]:
    """Each phrase of the language's word list, and the lists it stands in. Read once."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in (_WORDS / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            name = line.strip("[]")
            continue
        for phrase in (part.strip() for part in line.split(",")):
            found[phrase] = (*found.get(phrase, ()), name)
    return found
