"""Speech from a synthesiser on this machine, where there is one."""

from __future__ import annotations

import re
import shutil
import struct
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.builtin.assets.sniffing import detect_format
from fingerpost.builtin.kit import ToolRefused
from fingerpost.frozen import frozen

SPEECH_TIMEOUT_S: Final = 60.0
_VOICE_PATTERN: Final = re.compile(r"^[A-Za-z0-9_+-]{1,40}$")


@frozen
class Synthesiser:
    """A program that takes text on its input and gives a WAV on its output."""

    program: str
    arguments: tuple[str, ...]
    voice: str | None = None  # the option that names one


_KNOWN_SYNTHESISERS: Final = (
    Synthesiser(program="espeak-ng", arguments=("--stdin", "--stdout"), voice="-v"),
    Synthesiser(program="espeak", arguments=("--stdin", "--stdout"), voice="-v"),
    Synthesiser(program="text2wave", arguments=()),
)


async def synthesise_speech(text: str, *, voice: str | None, seconds: float | None) -> bytes:
    """The words as WAV. Raises `ToolRefused` where nobody here can speak."""
    path, found = await anyio.to_thread.run_sync(_find_synthesiser)
    if path is None or found is None:
        names = ", ".join(known.program for known in _KNOWN_SYNTHESISERS)
        message = f"Nobody here can speak: no speech service is set, and none of {names} is installed."
        hint = "Set builtin.specialists.speech to an OpenAI-compatible service, or install espeak-ng."
        raise ToolRefused(message, hint=hint)
    command = [path, *found.arguments]
    if voice is not None and found.voice is not None:
        if not _VOICE_PATTERN.match(voice):
            message = f"{voice!r:.60} is no name of a voice."
            raise ToolRefused(message, hint="Use one such as en, de or en-us, or leave it out.")
        command += [found.voice, voice]
    allowed = SPEECH_TIMEOUT_S if seconds is None else min(seconds, SPEECH_TIMEOUT_S)
    try:
        with anyio.fail_after(allowed):
            result = await anyio.run_process(command, input=text.encode(), check=False)
    except TimeoutError as late:
        message = f"{found.program} did not finish within {allowed:g} s."
        raise ToolRefused(message, hint="Give it less to say.") from late
    if result.returncode != 0 or detect_format(result.stdout) != "wav":
        message = f"{found.program} failed (status {result.returncode})."
        raise ToolRefused(message, hint="Try it in a terminal; perhaps the voice is not installed.")
    return fix_wav_lengths(result.stdout)


def fix_wav_lengths(data: bytes) -> bytes:
    """A WAV whose header says how long it is: one written to a pipe cannot know."""
    at = data.find(b"data", 12)
    if at < 0 or len(data) < at + 8:
        return data
    head = data[:4] + struct.pack("<I", len(data) - 8) + data[8:at]
    return head + b"data" + struct.pack("<I", len(data) - at - 8) + data[at + 8 :]


def _find_synthesiser() -> tuple[str | None, Synthesiser | None]:
    for known in _KNOWN_SYNTHESISERS:
        if path := shutil.which(known.program):
            return path, known
    return None, None
