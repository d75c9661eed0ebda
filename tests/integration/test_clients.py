"""Programs written for OpenAI: with nothing changed but where they ask."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import metadata
from typing import Any

import pytest

from tests.integration.program import PATIENCE_S, ProgramWithModel
from tests.integration.talking import read_stream, user, whole
from tests.kit import warm
from tests.requirements import proves

TOKYO = "What time is it in Tokyo right now?"
MAP: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "show_map",
        "description": "Show a place on the caller's own screen",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}


def examples() -> list[str]:
    """The openai package's own: a chat, a stream, an async stream, as its description shows them."""
    described: Any = metadata("openai")
    text = str(described.get_payload())
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = [next(one for one in blocks if "print(completion.choices[0].message.content)" in one)]
    return [*found, *(one for one in blocks if "for event in stream:\n" in one and "realtime" not in one)]


@pytest.mark.process
@proves("O1")
def test_the_examples_of_the_openai_package_run_as_they_are(system: ProgramWithModel):
    code = examples()
    assert len(code) == 3
    done = subprocess.run(
        [*warm.python(), "-c", "\n".join(code)],
        env={
            **system.program.environment,
            "OPENAI_BASE_URL": f"{system.program.address}/v1",
            "OPENAI_API_KEY": "sk-any",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    chat, *events = done.stdout.splitlines()
    assert chat == "Hello. What can be done for you?"
    kinds = [event.partition("(")[0] for event in events]
    assert kinds.count("ResponseTextDeltaEvent") > 2 * 2
    assert [kind for kind in kinds if kind == "ResponseCompletedEvent"] == 2 * ["ResponseCompletedEvent"]
    assert {body["model"] for body in system.upstream.asked[-3:]} == {"gpt-5.5"}


@pytest.mark.process
@proves("O1", "O2")
def test_streams_with_a_model_and_without_use_the_real_clock(system: ProgramWithModel):
    with system.program.openai() as client:
        assert read_stream(client, [user(TOKYO)]).startswith("It is late in Tokyo.")
        asked = len(system.upstream.asked)
        keyless = read_stream(client, [user(TOKYO)], model="fingerpost:keyless")
        assert '"timezone": "Asia/Tokyo"' in keyless
        assert len(system.upstream.asked) == asked  # no other server was needed


@pytest.mark.process
@proves("O2", "O3")
def test_the_callers_own_tool_is_called_by_the_caller_while_another_ran_here(system: ProgramWithModel):
    with system.program.openai() as client:
        talk = [user(f"{TOKYO} Show it on the map, too.")]
        first = whole(client, talk, tools=[MAP])
        assert first["choices"][0]["finish_reason"] == "tool_calls"
        message = first["choices"][0]["message"]
        [call] = message["tool_calls"]
        assert (call["id"], call["function"]["name"]) == ("call_map", "show_map")
        assert first["fingerpost"]["tools_used"] == ["time/get_current_time"]
        assert system.upstream.asked[-1]["tools"][0] == MAP

        answer = {"role": "tool", "tool_call_id": "call_map", "content": "shown"}
        talk += [{"role": "assistant", "tool_calls": message["tool_calls"]}, answer]
        with client.chat.completions.stream(model="fingerpost", messages=talk, tools=[MAP]) as stream:  # pyright: ignore[reportArgumentType]
            second = stream.until_done().get_final_completion()
        assert (second.choices[0].message.content or "").startswith("It is late in Tokyo.")
    messages = [one for one in system.upstream.asked[-1]["messages"] if one["role"] in ("assistant", "tool")]
    names = [one["tool_calls"][0]["function"]["name"] for one in messages if one["role"] == "assistant"]
    assert names == ["time__get_current_time", "show_map"]
    assert (
        "Asia/Tokyo" in messages[1]["content"]
    )  # what the clock said here, put back before the caller's own
    assert messages[3]["content"] == "shown"
