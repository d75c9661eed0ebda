"""Lookup tables: cities, countries, time zones, languages, currencies and common option values."""

from __future__ import annotations

from functools import cache
from typing import Final

from fingerpost.catalog.words import STOP_WORDS, parse_word_set
from fingerpost.data_files import read_data_table, read_sections

_PACKAGE: Final = "fingerpost.choose.keyless"
_SECTIONS: Final = read_sections(_PACKAGE, "words.txt")
MAX_PLACE_WORDS: Final = 3


def get_words(title: str) -> frozenset[str]:
    """Return the words of a list in `words.txt`."""
    return parse_word_set(_SECTIONS[title])


@cache
def _read_phrases() -> dict[str, dict[str, str]]:
    return read_data_table(_PACKAGE, "phrases.toml")


def get_example(kind: str) -> str:
    """Return an example of a value of this kind, or an empty string."""
    return _read_phrases()["examples"].get(kind, "")


def get_noun(word: str) -> str:
    """Return a word of a parameter's name, written out."""
    return _read_phrases()["nouns"].get(word, word)


def get_phrases(language: str) -> dict[str, str]:
    """Return what is said to a person in this language: Hebrew, or else English."""
    return _read_phrases()["he" if language == "he" else "en"]


def get_lines(title: str) -> dict[str, list[str]]:
    """Return the lines of a list in `words.txt`, by their first words."""
    return {line.split()[0]: line.split()[1:] for line in _SECTIONS[title].splitlines() if line}


def get_pairs(title: str) -> list[tuple[str, str]]:
    """Return the lines of a list in `words.txt`, each as its first word and the rest."""
    lines = (line.partition(" ") for line in _SECTIONS[title].splitlines() if line)
    return [(first, rest) for first, _, rest in lines]


def _parse_places(text: str, zone: str) -> dict[str, str]:
    return {name.strip(): zone for name in text.split(",") if name.strip()}


_AREAS: Final = {area: text.split() for area, text in read_sections(_PACKAGE, "zones.txt").items()}
ZONES: Final = frozenset(
    ("UTC", "GMT", "Etc/UTC", "Etc/GMT", *(f"{area}/{place}" for area in _AREAS for place in _AREAS[area]))
)
ZONE_BY_LOWER_NAME: Final = {name.lower(): name for name in ZONES}
# `Africa/Nairobi` names its city. In the Americas and on islands, too many names are shared or are words.
CITIES: Final = {
    name: f"{area}/{place}"
    for area in ("Africa", "Asia", "Europe")
    for place in _AREAS[area]
    if (name := place.replace("_", " ").lower()) not in get_words("ambiguous_places")
}
COUNTRIES: Final[dict[str, str]] = {}
for _zone, _text in read_sections(_PACKAGE, "places.txt").items():
    _cities, _, _countries = _text.partition("=")
    CITIES.update(_parse_places(_cities, _zone))
    COUNTRIES.update(_parse_places(_countries, _zone))
PLACE_QUALIFIERS: Final = get_words("place_qualifiers")

_NAMES_BY_LANGUAGE: Final = get_lines("languages")
LANGUAGES: Final = {name: code for code, names in _NAMES_BY_LANGUAGE.items() for name in names}
ENGLISH_LANGUAGE_NAMES: Final = {code: names[0] for code, names in _NAMES_BY_LANGUAGE.items()}
CURRENCIES: Final = get_words("currencies")
CURRENCY_WORDS: Final = {word: code for code, words in get_lines("currency_words").items() for word in words}
HEBREW_OPTION_WORDS: Final = get_lines("hebrew_options")
ORDINARY_WORDS: Final = STOP_WORDS | get_words("ordinary_words")
