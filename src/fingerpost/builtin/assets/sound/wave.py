"""A tune as sound: 16 bits, one channel, in a WAV file."""

from __future__ import annotations

import io
import wave
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.builtin.assets.sound.tune import Tone, Tune, WaveForm

SAMPLE_RATE: Final = 44_100
_AMPLITUDE: Final = 0.8
_FADE_S: Final = 0.012  # a tone that begins or ends at once clicks

SampleArray = NDArray[np.float64]


def render_wav(tune: Tune) -> bytes:
    """The whole file."""
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
    mixed = sum((_render_wave(wave_form, hertz, times) for hertz in tone.hertz), np.zeros(count)) / len(
        tone.hertz
    )
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
    return shape * 0.5  # they sound louder than they are
