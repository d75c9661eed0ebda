"""Terms of a text for the lexical scorer: stems, tokens and synonyms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

_CONSONANTS: Final = "[^aeiou][^aeiouy]*"
_VOWELS: Final = "[aeiouy][aeiou]*"
_MEASURE_1 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}")  # at least one vowel-consonant pair
_MEASURE_ONLY_1 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}(?:{_VOWELS})?$")
_MEASURE_2 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}{_VOWELS}{_CONSONANTS}")
_HAS_VOWEL = re.compile(f"^(?:{_CONSONANTS})?[aeiouy]")
_DOUBLED = re.compile(r"([^aeiouylsz])\1$")
_SHORT_END = re.compile(f"^{_CONSONANTS}[aeiouy][^aeiouwxy]$")

MIN_STEMMED_LENGTH: Final = 3  # shorter words have no ending
MAX_STEMMED_LENGTH: Final = 40  # longer ones are not words


def _parse_endings(table: str) -> tuple[tuple[str, str], ...]:
    """Parse a table of endings: `ational-ate` replaces -ational by -ate. The longest ending is tried
    first.
    """
    pairs = (entry.partition("-") for entry in table.split())
    return tuple(sorted(((old, new) for old, _, new in pairs), key=lambda pair: -len(pair[0])))


_STEP_2_ENDINGS: Final = _parse_endings(
    "ational-ate tional-tion enci-ence anci-ance izer-ize bli-ble alli-al entli-ent eli-e ousli-ous "
    "ization-ize ation-ate ator-ate alism-al iveness-ive fulness-ful ousness-ous aliti-al iviti-ive "
    "biliti-ble logi-log"
)
_STEP_3_ENDINGS: Final = _parse_endings("icate-ic ative- alize-al iciti-ic ical-ic ful- ness-")
_STEP_4_ENDINGS: Final = _parse_endings(
    "al- ance- ence- er- ic- able- ible- ant- ement- ment- ent- ou- ism- ate- iti- ous- ive- ize- ion-"
)


@lru_cache(maxsize=65_536)
def stem_word(word: str) -> str:
    """Return the stem of a lower-case word."""
    if not MIN_STEMMED_LENGTH <= len(word) <= MAX_STEMMED_LENGTH or not (word.isascii() and word.isalpha()):
        return word
    initial_y = word.startswith("y")  # an initial y is a consonant
    if initial_y:
        word = "Y" + word[1:]
    word = _replace_final_y(_remove_past(_remove_plural(word)))
    word = _replace(word, _STEP_2_ENDINGS, _MEASURE_1)
    word = _replace(word, _STEP_3_ENDINGS, _MEASURE_1)
    word = _remove_final_e(_remove_derivation(word))
    return word.lower() if initial_y else word


def _remove_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _remove_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _MEASURE_1.match(word[:-3]) else word
    for ending in ("ed", "ing"):
        base = word.removesuffix(ending)
        if base != word and _HAS_VOWEL.match(base):
            return _restore_ending(base)
    return word


def _restore_ending(base: str) -> str:
    """Restore the base after -ed or -ing was removed: `creat` becomes `create`, `plann` becomes `plan`."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _DOUBLED.search(base):
        return base[:-1]
    return base + "e" if _SHORT_END.match(base) else base


def _replace_final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _HAS_VOWEL.match(word[:-1]) else word


def _replace(word: str, endings: tuple[tuple[str, str], ...], long_enough: re.Pattern[str]) -> str:
    for old, new in endings:
        if word.endswith(old):
            base = word[: -len(old)]
            return base + new if long_enough.match(base) else word
    return word


def _remove_derivation(word: str) -> str:
    for ending, _ in _STEP_4_ENDINGS:
        if word.endswith(ending):
            base = word[: -len(ending)]
            keeps = ending == "ion" and not base.endswith(("s", "t"))
            return word if keeps or not _MEASURE_2.match(base) else base
    return word


def _remove_final_e(word: str) -> str:
    if word.endswith("e"):
        base = word[:-1]
        one = _MEASURE_ONLY_1.match(base) is not None and _SHORT_END.match(base) is None
        if one or _MEASURE_2.match(base):
            word = base
    return word[:-1] if word.endswith("ll") and _MEASURE_2.match(word) else word


# Chinese, Japanese, Korean, Thai, Lao, Burmese, Khmer.
UNSPACED_CHARACTERS: Final = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\u1100-\u11ff\uac00-\ud7af"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3"
)
_WORD_RUN = re.compile(f"(?P<unspaced>[{UNSPACED_CHARACTERS}]+)|(?P<word>[^\\W_{UNSPACED_CHARACTERS}]+)")
_CAMEL_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+[a-z]*|[^\W\d_A-Za-z]+")
_CAMEL_CASE = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_MAX_NUMBER_DIGITS: Final = 2  # `2` may mean 2D; dates, amounts and ids say nothing about a tool

# Combining accents, Hebrew points, Arabic vowel marks.
_ACCENT_MARKS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0670]")

# Words without content: English function words and polite phrases.
_EMPTY_WORDS: Final = """
a an the and or but of to in on at by for from with as is are was were be been being am it its this that
these those there here i me my we our us you your he she his her they them their who whom which what when
where why how do does did doing have has had having will would shall should can could may might must not
no nor so if then than too very just also only into about over under again once up down out off such own
same each any all both few more most other some s t d ll re ve m
please help need want like let know give tell hey hi hello thanks thank looking look using use used im
interested considering planning plan trying wonder
"""
EMPTY_TERMS: Final = frozenset(map(stem_word, _EMPTY_WORDS.split()))


def remove_accents(text: str) -> str:
    """Remove accents and vowel points, and unify full-width and half-width forms."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENT_MARKS.sub("", unicodedata.normalize("NFKD", text)))


def iterate_terms(text: str) -> Iterator[str]:
    """Yield the terms of a text in order, with repetitions, without stop words."""
    return (term for term in _iterate_all_terms(text) if term not in EMPTY_TERMS)


def _iterate_all_terms(text: str) -> Iterator[str]:
    for run in _WORD_RUN.finditer(remove_accents(text)):
        found = run.group()
        if run.lastgroup == "unspaced":
            yield from found
            yield from map("".join, pairwise(found))
        elif _CAMEL_CASE.search(found):
            yield from _split_camel_case(found[:MAX_STEMMED_LENGTH])
        elif len(found) <= _MAX_NUMBER_DIGITS or not found.isdecimal():
            yield stem_word(found[:MAX_STEMMED_LENGTH].lower())


def _split_camel_case(word: str) -> Iterator[str]:
    parts = _CAMEL_PART.findall(word)
    for part in parts:
        yield stem_word(part.lower())
    if len(parts) == 2:  # brands have both spellings (GitHub, github); tool names do not
        yield stem_word("".join(parts).lower())


MUTUAL_SYNONYMS: Final = """
search find lookup locate seek query discover explore
get fetch retrieve obtain read load pull
list show display view browse enumerate
create add new make insert generate produce
delete remove erase clear drop discard purge
update edit modify change alter adjust revise amend
write save store record
send deliver dispatch transmit
book reserve reservation booking schedule
cancel abort revoke void undo
buy purchase order
pay payment checkout charge
check verify validate confirm inspect
compute calculate determine evaluate solve calculator
convert transform translate conversion change
translate translation interpret
compare comparison difference diff versus contrast
start begin launch run execute trigger
stop end terminate halt kill shutdown
open launch visit navigate
download fetch save export
upload import attach
copy duplicate clone replicate
move transfer relocate drag
rename retitle
merge combine join concatenate
split divide separate
share publish post
subscribe subscription follow
notify notification alert remind reminder
recommend suggest recommendation suggestion propose
summarize summary overview digest abstract
analyze analysis examine assess analytics
predict prediction forecast estimate
rate rating review score
rank ranking standing leaderboard top
filter sort
count number total amount quantity
register registration enroll signup
login signin authenticate authentication
assign allocate delegate
approve accept authorize
reject decline deny refuse
submit file apply application
track trace follow monitor watch status
message text chat sms
email mail inbox
call phone telephone dial
contact person people address
meeting appointment event calendar agenda
task todo item
note memo
document doc file
folder directory
picture photo image photograph
video clip movie film
song track music audio
singer artist musician band
book novel title
author writer
article post story news
news headline article latest
website site webpage page url link web
web internet online
link url
picture screenshot capture
code source script program
repository repo git project
issue bug ticket problem
commit change revision
database table sql
row record entry
column field
customer client user account
user member profile account
employee staff worker personnel
company business firm organization corporation
store shop retailer
product item goods merchandise
price cost fee pricing quote
cheap affordable low budget discount
discount coupon deal offer promotion
invoice bill receipt
money cash currency funds
currency exchange forex
stock share equity ticker
crypto cryptocurrency bitcoin coin token
bank account balance
loan mortgage credit
tax vat
weather forecast temperature climate
place location venue spot
location address position coordinates
near nearby around close surrounding
city town
country nation
route direction path way navigation
distance far
trip travel journey vacation holiday tour itinerary
flight plane airline air
airport flight
hotel accommodation lodging stay room
restaurant dining eatery cafe
food meal dish cuisine
recipe cook cooking meal
drink beverage cocktail
car vehicle automobile auto
taxi cab ride
train railway rail
doctor physician medical health
medicine drug medication
illness disease condition symptom
job career position vacancy employment
resume cv
school university college education course
game match fixture
team club squad
player athlete
sport league
house home property apartment real estate
word term vocabulary
meaning definition define dictionary
language linguistic
date day time
timezone zone
birthday birth
area surface region
size dimension
speed velocity
weight mass
picture draw paint
chart graph plot diagram visualize
average mean
quote quotation saying
joke humor funny
fact trivia
random arbitrary
history past historical previous
current now present live real-time latest today
latest recent newest new
list all every
detail information info about data
similar related like alternative
popular trending trend hot top
error failure fault problem
log record history
permission access role right
setting configuration preference option config
password credential secret
server host machine
network connection ip
branch version
deploy release publish
container docker image
cluster kubernetes pod
click press tap
type enter fill input
form fill field
shell terminal command bash
"""

ONE_WAY_SYNONYMS: Final = """
umbrella rain sunny snow cold -> weather forecast
translate -> language
spend spent -> expense cost budget
eat hungry dinner lunch breakfast -> restaurant food meal recipe
ingredient -> recipe food
fly flying -> flight
drive driving -> route direction car
walk -> route direction
listen -> music song
watch -> video movie
wake -> alarm
ill sick -> health medical
euro dollar usd eur gbp yen -> currency exchange
kilometer mile meter feet celsius fahrenheit pound kilogram -> convert unit
nasdaq dow -> stock market
commit push pull merge -> git repository
slack discord telegram whatsapp -> message channel
jira -> issue ticket
png jpg jpeg gif -> image
mp3 wav -> audio
mp4 youtube -> video
pdf docx txt csv xlsx json -> file document
csv xlsx excel spreadsheet -> sheet table
"""

MAX_SYNONYMS: Final = 24  # per term


@cache
def build_synonym_map() -> dict[str, tuple[str, ...]]:
    """Return the synonyms of each stem, as stems."""
    found: dict[str, dict[str, None]] = {}
    for line in MUTUAL_SYNONYMS.strip().splitlines():
        group = tuple(dict.fromkeys(map(stem_word, line.split())))
        for word in group:
            found.setdefault(word, {}).update((other, None) for other in group if other != word)
    for line in ONE_WAY_SYNONYMS.strip().splitlines():
        words, _, synonyms = line.partition("->")
        others = dict.fromkeys(map(stem_word, synonyms.split()))
        for word in map(stem_word, words.split()):
            found.setdefault(word, {}).update(others)
    return {word: tuple(others)[:MAX_SYNONYMS] for word, others in found.items()}
