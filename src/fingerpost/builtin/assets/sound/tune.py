"""Tones out of words or data: `C4 E4 G4/2`, `440 Hz for 2 s`, a chord as `C4+E4+G4`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, cast

from fingerpost.builtin.kit import ToolRefused
from fingerpost.frozen import frozen
from fingerpost.records import Json

Wave = Literal["sine", "triangle", "square", "sawtooth"]
WAVES: Final[tuple[Wave, ...]] = ("sine", "triangle", "square", "sawtooth")
LONGEST_S: Final = 120.0
MOST_NOTES: Final = 2_000
MOST_AT_ONCE: Final = 12
LOWEST_HZ: Final = 20.0
HIGHEST_HZ: Final = 16_000.0
HOW: Final = (
    "Write notes such as `C4 E4 G4+B4/2 -` (a note, its octave, `/` beats, `+` for a chord, `-` for a rest), "
    'or give data as {"notes": [{"note": "A4", "beats": 1}, {"hz": 440, "seconds": 0.5}], "bpm": 100}, '
    "or say `a tone of 440 Hz for 2 seconds`."
)
_NOTE: Final = re.compile(r"^([A-Ga-g])([#♯b♭]?)(-?\d)?$")
_TOKEN: Final = re.compile(
    r"^(?P<pitch>[A-Ga-g][#♯b♭]?-?\d?(?:\+[A-Ga-g][#♯b♭]?-?\d?)*|-|[rR])(?:/(?P<beats>\d+(?:\.\d+)?))?$"
)
_CHORD: Final = re.compile(
    r"\b([A-G][#♯b♭]?)\s*(major|minor|maj7|min7|m7|7|diminished)\s+chord\b|\b([A-G][#♯b♭]?)\s+chord\b"
)
_SCALE: Final = re.compile(r"\b([A-G][#♯b♭]?)[ -]?(major|minor)\s+scale\b")
_HZ: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?hz|hertz)\b", re.IGNORECASE)
_LASTING: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?)\b", re.IGNORECASE)
_SPEED: Final = re.compile(r"(\d{2,3})\s*bpm\b", re.IGNORECASE)
_STEPS: Final = {"C": -9, "D": -7, "E": -5, "F": -4, "G": -2, "A": 0, "B": 2}
_CHORDS: Final[Mapping[str, tuple[int, ...]]] = {
    "major": (0, 4, 7), "minor": (0, 3, 7), "maj7": (0, 4, 7, 11), "min7": (0, 3, 7, 10), "m7": (0, 3, 7, 10),
    "7": (0, 4, 7, 10), "diminished": (0, 3, 6),
}  # fmt: skip
_SCALES: Final = {"major": (0, 2, 4, 5, 7, 9, 11, 12), "minor": (0, 2, 3, 5, 7, 8, 10, 12)}


@frozen(kw_only=False)
class Tone:
    """Frequencies sounding together for a while; none is a rest."""

    hertz: tuple[float, ...]
    seconds: float


@frozen(kw_only=False)
class Tune:
    """Tones one after another."""

    tones: tuple[Tone, ...]
    wave: Wave = "sine"

    @property
    def seconds(self) -> float:
        return sum(tone.seconds for tone in self.tones)

    @property
    def about(self) -> str:
        many = "a tone" if len(self.tones) == 1 else f"a tune of {len(self.tones)} tones"
        return f"{many}, {self.seconds:.1f} s"


def read_tune(data: Json, prompt: str) -> Tune:
    """What is to sound. Raises `ToolRefused` where nothing is."""
    tones = _of_data(data) if isinstance(data, Mapping | list | tuple) and data else None
    if tones is None:
        tones = _of_text(data if isinstance(data, str) and data.strip() else prompt)
    if not tones:
        message = "There are no tones to make."
        raise ToolRefused(message, hint=HOW)
    said = data.get("wave") if isinstance(data, Mapping) else None
    tune = Tune(tuple(tones), _wave(said, prompt.lower()))
    if tune.seconds > LONGEST_S or len(tones) > MOST_NOTES:
        message = f"A sound lasts at most {LONGEST_S:g} s and has at most {MOST_NOTES:,} tones."
        raise ToolRefused(message, hint="Make it shorter, or faster (bpm).")
    return tune


def _wave(said: Json, prompt: str) -> Wave:
    for wave in WAVES:
        if said == wave or re.search(rf"\b{wave}\b", prompt):
            return wave
    return "sine"


def _of_data(data: Json) -> list[Tone] | None:
    notes, beat = data, 0.5
    if isinstance(data, Mapping):
        notes, beat = data.get("notes", data.get("tones", data.get("melody"))), _beat(data.get("bpm"))
        if notes is None and ("hz" in data or "note" in data):
            notes = [data]
    if isinstance(notes, str):
        return _melody(notes, beat)
    if not isinstance(notes, list | tuple):
        return None
    found: list[Tone] = []
    for item in cast("Sequence[Json]", notes)[: MOST_NOTES + 1]:
        found += _of_item(item, beat)
    return found


def _of_item(item: Json, beat: float) -> list[Tone]:
    if isinstance(item, str):
        return _melody(item, beat)
    if isinstance(item, int | float) and not isinstance(item, bool):
        return [Tone((_audible(float(item)),), beat)]
    if not isinstance(item, Mapping):
        return []
    seconds = _positive(item.get("seconds"), beat * _positive(item.get("beats"), 1.0))
    hertz = item.get("hz", item.get("frequency"))
    if isinstance(hertz, int | float) and not isinstance(hertz, bool):
        return [Tone((_audible(float(hertz)),), seconds)]
    pitch = item.get("note", item.get("chord"))
    made = _melody(str(pitch), beat) if isinstance(pitch, str) else []
    return [Tone(tone.hertz, seconds) for tone in made]


def _of_text(text: str) -> list[Tone]:
    text = text[:20_000]
    speed = _SPEED.search(text)
    beat = _beat(int(speed[1]) if speed else None)
    lasting = _LASTING.search(text)
    seconds = (
        None if lasting is None else float(lasting[1]) / (1000 if lasting[2].lower().startswith("m") else 1)
    )
    if hertz := _HZ.findall(text):
        tones = [
            _audible(float(number) * (1000 if unit.lower().startswith("k") else 1)) for number, unit in hertz
        ]
        return [Tone((tone,), seconds or 1.0) for tone in tones]
    if scale := _SCALE.search(text):
        root = _pitch(scale[1])
        return [Tone((root * 2 ** (step / 12),), beat) for step in _SCALES[scale[2]]]
    if chord := _CHORD.search(text):
        root, steps = _pitch(chord[1] or chord[3]), _CHORDS[chord[2] or "major"]
        return [Tone(tuple(root * 2 ** (step / 12) for step in steps), seconds or 2.0)]
    return _melody(_after_words(text), beat)


def _after_words(text: str) -> str:
    """The notes behind words such as `play the melody: C4 D4`."""
    return text.rpartition(":")[2] if ":" in text else text


def _melody(text: str, beat: float) -> list[Tone]:
    """The longest run of notes; a lone letter among words is no note."""
    best: list[Tone] = []
    run: list[Tone] = []
    for token in re.split(r"[\s,]+", text.strip()):
        match = _TOKEN.match(token)
        if match is None:
            run = []
            continue
        pitches = () if match["pitch"] in ("-", "r", "R") else match["pitch"].split("+")
        seconds = beat * (float(match["beats"]) if match["beats"] else 1.0)
        run.append(Tone(tuple(_audible(_pitch(pitch)) for pitch in pitches[:MOST_AT_ONCE]), seconds))
        best = run if len(run) >= len(best) else best
    sounding = any(tone.hertz for tone in best)
    spelled = len(best) > 1 or any(letter.isdigit() for letter in text)
    return list(best) if sounding and spelled else []


def _pitch(name: str) -> float:
    """The frequency of a note, A4 being 440 Hz; without an octave the fourth is meant."""
    match = _NOTE.match(name)
    if match is None:
        message = f"There is no note {name!r:.20}."
        raise ToolRefused(message, hint=HOW)
    shift = {"": 0, "#": 1, "♯": 1, "b": -1, "♭": -1}[match[2]]
    octave = int(match[3] or 4)
    return 440.0 * 2 ** ((_STEPS[match[1].upper()] + shift) / 12 + octave - 4)


def _audible(hertz: float) -> float:
    if not LOWEST_HZ <= hertz <= HIGHEST_HZ:
        message = f"A tone has {LOWEST_HZ:g} to {HIGHEST_HZ:,.0f} Hz, and {hertz:g} is not."
        raise ToolRefused(message, hint=HOW)
    return hertz


def _beat(bpm: Json) -> float:
    return 60.0 / max(20.0, min(400.0, _positive(bpm, 120.0)))


def _positive(value: Json, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return otherwise
    return float(value) if 0 < value < 1e6 and math.isfinite(value) else otherwise
