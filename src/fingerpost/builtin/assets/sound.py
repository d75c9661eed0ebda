"""Tones and tunes: parsed from notes, chords or frequencies, rendered as WAV."""

from __future__ import annotations

import io
import math
import re
import wave
from collections.abc import Mapping, Sequence
from typing import Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.frozen import frozen
from fingerpost.records import Json

WaveForm = Literal["sine", "triangle", "square", "sawtooth"]
WAVE_FORMS: Final[tuple[WaveForm, ...]] = ("sine", "triangle", "square", "sawtooth")
MAX_TUNE_S: Final = 120.0
MAX_NOTES: Final = 2_000
MAX_CHORD_NOTES: Final = 12
MIN_HZ: Final = 20.0
MAX_HZ: Final = 16_000.0
TUNE_HINT: Final = (
    "Write notes such as `C4 E4 G4+B4/2 -` (a note, its octave, `/` beats, `+` for a chord, `-` for a rest), "
    'or give data as {"notes": [{"note": "A4", "beats": 1}, {"hz": 440, "seconds": 0.5}], "bpm": 100}, '
    "or say `a tone of 440 Hz for 2 seconds`."
)
_NOTE_PATTERN: Final = re.compile(r"^([A-Ga-g])([#♯b♭]?)(-?\d)?$")
_TOKEN_PATTERN: Final = re.compile(
    r"^(?P<pitch>[A-Ga-g][#♯b♭]?-?\d?(?:\+[A-Ga-g][#♯b♭]?-?\d?)*|-|[rR])(?:/(?P<beats>\d+(?:\.\d+)?))?$"
)
_CHORD_PATTERN: Final = re.compile(
    r"\b([A-G][#♯b♭]?)\s*(major|minor|maj7|min7|m7|7|diminished)\s+chord\b|\b([A-G][#♯b♭]?)\s+chord\b"
)
_SCALE_PATTERN: Final = re.compile(r"\b([A-G][#♯b♭]?)[ -]?(major|minor)\s+scale\b")
_FREQUENCY_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?hz|hertz)\b", re.IGNORECASE)
_DURATION_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?)\b", re.IGNORECASE)
_TEMPO_PATTERN: Final = re.compile(r"(\d{2,3})\s*bpm\b", re.IGNORECASE)
_NOTE_STEPS: Final = {"C": -9, "D": -7, "E": -5, "F": -4, "G": -2, "A": 0, "B": 2}
_CHORD_STEPS: Final[Mapping[str, tuple[int, ...]]] = {
    "major": (0, 4, 7), "minor": (0, 3, 7), "maj7": (0, 4, 7, 11), "min7": (0, 3, 7, 10), "m7": (0, 3, 7, 10),
    "7": (0, 4, 7, 10), "diminished": (0, 3, 6),
}  # fmt: skip
_SCALE_STEPS: Final = {"major": (0, 2, 4, 5, 7, 9, 11, 12), "minor": (0, 2, 3, 5, 7, 8, 10, 12)}


@frozen(kw_only=False)
class Tone:
    """Frequencies that sound together for a time. Without frequencies, it is a rest."""

    hertz: tuple[float, ...]
    seconds: float


@frozen(kw_only=False)
class Tune:
    """A sequence of tones."""

    tones: tuple[Tone, ...]
    wave: WaveForm = "sine"

    @property
    def seconds(self) -> float:
        return sum(tone.seconds for tone in self.tones)

    @property
    def summary(self) -> str:
        many = "a tone" if len(self.tones) == 1 else f"a tune of {len(self.tones)} tones"
        return f"{many}, {self.seconds:.1f} s"


def parse_tune(data: Json, prompt: str) -> Tune:
    """Return the requested tune. Raises `ToolRefused` if there is none."""
    tones = _parse_data(data) if isinstance(data, Mapping | list | tuple) and data else None
    if tones is None:
        tones = _parse_text(data if isinstance(data, str) and data.strip() else prompt)
    if not tones:
        raise ToolRefused("There are no tones to make.", hint=TUNE_HINT)
    wave_name = data.get("wave") if isinstance(data, Mapping) else None
    tune = Tune(tuple(tones), _choose_wave(wave_name, prompt.lower()))
    if tune.seconds > MAX_TUNE_S or len(tones) > MAX_NOTES:
        message = f"A sound lasts at most {MAX_TUNE_S:g} s and has at most {MAX_NOTES:,} tones."
        raise ToolRefused(message, hint="Make it shorter, or faster (bpm).")
    return tune


def _choose_wave(given: Json, prompt: str) -> WaveForm:
    for form in WAVE_FORMS:
        if given == form or re.search(rf"\b{form}\b", prompt):
            return form
    return "sine"


def _parse_data(data: Json) -> list[Tone] | None:
    notes, beat = data, 0.5
    if isinstance(data, Mapping):
        notes = data.get("notes", data.get("tones", data.get("melody")))
        beat = _get_beat_seconds(data.get("bpm"))
        if notes is None and ("hz" in data or "note" in data):
            notes = [data]
    if isinstance(notes, str):
        return _parse_melody(notes, beat)
    if not isinstance(notes, list | tuple):
        return None
    found: list[Tone] = []
    for item in cast("Sequence[Json]", notes)[: MAX_NOTES + 1]:
        found += _parse_item(item, beat)
    return found


def _parse_item(item: Json, beat: float) -> list[Tone]:
    if isinstance(item, str):
        return _parse_melody(item, beat)
    if isinstance(item, int | float) and not isinstance(item, bool):
        return [Tone((_check_audible(float(item)),), beat)]
    if not isinstance(item, Mapping):
        return []
    seconds = _parse_positive(item.get("seconds"), beat * _parse_positive(item.get("beats"), 1.0))
    hertz = item.get("hz", item.get("frequency"))
    if isinstance(hertz, int | float) and not isinstance(hertz, bool):
        return [Tone((_check_audible(float(hertz)),), seconds)]
    pitch = item.get("note", item.get("chord"))
    made = _parse_melody(str(pitch), beat) if isinstance(pitch, str) else []
    return [Tone(tone.hertz, seconds) for tone in made]


def _parse_text(text: str) -> list[Tone]:
    text = text[:20_000]
    speed = _TEMPO_PATTERN.search(text)
    beat = _get_beat_seconds(int(speed[1]) if speed else None)
    seconds = None
    if lasting := _DURATION_PATTERN.search(text):
        seconds = float(lasting[1]) / (1000 if lasting[2].lower().startswith("m") else 1)
    if hertz := _FREQUENCY_PATTERN.findall(text):
        tones = (float(number) * (1000 if unit.lower().startswith("k") else 1) for number, unit in hertz)
        return [Tone((_check_audible(tone),), seconds or 1.0) for tone in tones]
    if scale := _SCALE_PATTERN.search(text):
        root = _get_frequency(scale[1])
        return [Tone((root * 2 ** (step / 12),), beat) for step in _SCALE_STEPS[scale[2]]]
    if chord := _CHORD_PATTERN.search(text):
        root, steps = _get_frequency(chord[1] or chord[3]), _CHORD_STEPS[chord[2] or "major"]
        return [Tone(tuple(root * 2 ** (step / 12) for step in steps), seconds or 2.0)]
    return _parse_melody(text.rpartition(":")[2] if ":" in text else text, beat)


def _parse_melody(text: str, beat: float) -> list[Tone]:
    """Return the longest sequence of notes. A single letter among words is no note."""
    best: list[Tone] = []
    run: list[Tone] = []
    for token in re.split(r"[\s,]+", text.strip()):
        match = _TOKEN_PATTERN.match(token)
        if match is None:
            run = []
            continue
        pitches = () if match["pitch"] in ("-", "r", "R") else match["pitch"].split("+")
        seconds = beat * (float(match["beats"]) if match["beats"] else 1.0)
        hertz = map(_get_frequency, pitches[:MAX_CHORD_NOTES])
        run.append(Tone(tuple(map(_check_audible, hertz)), seconds))
        best = run if len(run) >= len(best) else best
    sounding = any(tone.hertz for tone in best)
    spelled = len(best) > 1 or any(letter.isdigit() for letter in text)
    return list(best) if sounding and spelled else []


def _get_frequency(name: str) -> float:
    """Return the frequency of a note (A4 is 440 Hz). The default octave is 4."""
    match = _NOTE_PATTERN.match(name)
    if match is None:
        raise ToolRefused(f"There is no note {name!r:.20}.", hint=TUNE_HINT)
    shift = {"": 0, "#": 1, "♯": 1, "b": -1, "♭": -1}[match[2]]
    octave = int(match[3] or 4)
    return 440.0 * 2 ** ((_NOTE_STEPS[match[1].upper()] + shift) / 12 + octave - 4)


def _check_audible(hertz: float) -> float:
    if not MIN_HZ <= hertz <= MAX_HZ:
        raise ToolRefused(f"A tone has {MIN_HZ:g} to {MAX_HZ:,.0f} Hz, and {hertz:g} is not.", hint=TUNE_HINT)
    return hertz


def _get_beat_seconds(bpm: Json) -> float:
    return 60.0 / max(20.0, min(400.0, _parse_positive(bpm, 120.0)))


def _parse_positive(value: Json, default: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return float(value) if 0 < value < 1e6 and math.isfinite(value) else default


SAMPLE_RATE: Final = 44_100
_AMPLITUDE: Final = 0.8
_FADE_S: Final = 0.012  # avoids clicks at the start and end of a tone

SampleArray = NDArray[np.float64]


def render_wav(tune: Tune) -> bytes:
    """Return the WAV file."""
    sounds = [_render_tone(tone, tune.wave) for tone in tune.tones]
    samples = np.concatenate(sounds) if sounds else np.zeros(0)
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE)
        out.writeframes(np.round(samples * _AMPLITUDE * 32767).astype("<i2").tobytes())
    return file.getvalue()


def _render_tone(tone: Tone, wave_form: WaveForm) -> SampleArray:
    count = max(1, round(tone.seconds * SAMPLE_RATE))
    if not tone.hertz:
        return np.zeros(count)
    times = np.arange(count) / SAMPLE_RATE
    mixed = sum((_render_wave(wave_form, hertz, times) for hertz in tone.hertz), np.zeros(count))
    mixed /= len(tone.hertz)
    fade = min(count // 2, round(_FADE_S * SAMPLE_RATE))
    if fade:
        ramp = np.linspace(0, 1, fade)
        mixed[:fade] *= ramp
        mixed[-fade:] *= ramp[::-1]
    return mixed


def _render_wave(wave_form: WaveForm, hertz: float, times: SampleArray) -> SampleArray:
    if wave_form == "sine":
        return np.sin(2 * np.pi * hertz * times)
    turn = (times * hertz) % 1.0
    if wave_form == "triangle":
        return 4 * np.abs(turn - 0.5) - 1
    shape = np.where(turn < 0.5, 1.0, -1.0) if wave_form == "square" else 2 * turn - 1
    return shape * 0.5  # these waveforms sound louder
