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
class NeedCue:
    """`side`: +1 may only speak for a tool, -1 only against one, 0 either way."""

    name: str
    side: int
    reason: str


WORD_CUES: Final = (
    NeedCue("file", +1, "speaks of a file or document"),
    NeedCue("command", +1, "asks to run something"),
    NeedCue("act", +1, "asks for something to be done"),
    NeedCue("seek", +1, "asks to find or look something up"),
    NeedCue("where", +1, "asks for a place"),
    NeedCue("available", 0, "asks what there is"),
    NeedCue("current", +1, "asks for something current"),
    NeedCue("live", +1, "asks for facts that change, such as prices or weather"),
    NeedCue("offer", +1, "is about offers, products or places"),
    NeedCue("reference", +1, "asks for records, data or papers"),
    NeedCue("service", +1, "names a service or source"),
    NeedCue("artefact", +1, "is about a picture, chart or other artefact"),
    NeedCue("make", +1, "asks for something to be made"),
    NeedCue("convert", +1, "asks for a conversion or exact calculation"),
    NeedCue("monitor", +1, "asks to be reminded or told"),
    NeedCue("point", +1, "points to something that is not in the text"),
    NeedCue("serve", +1, "asks for a service"),
    NeedCue("want", +1, "says what the person needs"),
    NeedCue("play", +1, "asks for a game or reading with rules"),
    NeedCue("what", 0, "asks what something is"),
    NeedCue("explain", -1, "asks for an explanation"),
    NeedCue("write", -1, "asks for a text to be written"),
    NeedCue("rework", -1, "works on text it gives itself"),
    NeedCue("role", -1, "asks to imagine or play a role"),
    NeedCue("opinion", -1, "asks for an opinion"),
    NeedCue("advice", -1, "asks for advice"),
    NeedCue("code", -1, "is a programming question"),
    NeedCue("people", -1, "is about people in general"),
    NeedCue("life", -1, "is about the person's life"),
    NeedCue("chat", -1, "is small talk"),
    NeedCue("fact", -1, "is a general knowledge question"),
    NeedCue("sum", -1, "is a sum or puzzle a model can do"),
)
FORM_CUES: Final = (
    NeedCue("own", +1, "is about the person's own data"),
    NeedCue("made", +1, "asks for a picture, chart or other artefact to be made"),
    NeedCue("asks live", +1, "asks for a fact that changes"),
    NeedCue("help with a thing", +1, "asks how to do something with a service or with one's own things"),
    NeedCue("opens with act", +1, "opens with an instruction to act"),
    NeedCue("opens with seek", +1, "opens with an instruction to search"),
    NeedCue("opens with make", 0, "opens with an instruction to make something"),
    NeedCue("opens with write", -1, "opens with an instruction to write"),
    NeedCue("opens with explain", -1, "opens like a question for an explanation"),
    NeedCue("opens with opinion", -1, "opens like a question for an opinion"),
    NeedCue("opens with advice", -1, "opens like a question for advice"),
    NeedCue("named", +1, "names something in particular"),
    NeedCue("odd name", +1, "names a product or code"),
    NeedCue("question", 0, "is a question"),
    NeedCue("asks the reader", 0, "asks politely"),
    NeedCue("first person", 0, "speaks of the person"),
    NeedCue("given text", -1, "brings the text to work on"),
    NeedCue("quoted", 0, "quotes something"),
    NeedCue("blank", -1, "leaves a blank to fill"),
    NeedCue("ends in what", -1, "is a question for common sense"),
    NeedCue("short", 0, "is very short"),
    NeedCue("long", 0, "is long"),
    NeedCue("several sentences", 0, "has several sentences"),
    NeedCue("numbers", 0, "has numbers"),
    NeedCue("arithmetic", -1, "is plain arithmetic"),
    NeedCue("condition", -1, "supposes something"),
)
SIGNAL_CUES: Final = (
    NeedCue("path", +1, "names a file"),
    NeedCue("url", +1, "names a web address"),
    NeedCue("email", +1, "names an e-mail address"),
    NeedCue("id", +1, "names an id"),
    NeedCue("date", +1, "names a date"),
    NeedCue("time", +1, "names a time"),
)
CUES: Final = WORD_CUES + FORM_CUES + SIGNAL_CUES
CUE_POSITION: Final = {cue.name: place for place, cue in enumerate(CUES)}

MAX_PHRASE_WORDS: Final = 4
_WORD_LISTS_FOLDER: Final = Path(__file__).parent / "words"


@cache
def read_phrases(language: str) -> dict[str, tuple[str, ...]]:
    """Each phrase of the language's word list, and the lists it stands in. Read once."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in (_WORD_LISTS_FOLDER / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            name = line.strip("[]")
            continue
        for phrase in (part.strip() for part in line.split(",")):
            found[phrase] = (*found.get(phrase, ()), name)
    return found
