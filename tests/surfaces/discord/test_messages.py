"""Progress edits one message; long answers are split; files come in and go out."""

from __future__ import annotations

import base64
from typing import Any

import anyio
import mcp_types as types
import pytest

from fingerpost.call.digest import ResultStore
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.testing import ScriptedModel, calls
from tests.kit.discord_api import ANN, CHANNEL, PNG
from tests.kit.discord_bot import BotFactory
from tests.requirements import proves

READ = "Read the note about roses in the garden book"


@proves("A18", "T3")
async def test_progress_edits_one_message_which_becomes_the_answer(bots: BotFactory) -> None:
    discord = bots.discord
    go_on = anyio.Event()

    async def script(request: object) -> object:
        if len(model.asked) == 1:
            return calls(("notes__read_note", {"text": "roses"}))
        await go_on.wait()
        return "They are red."

    model = ScriptedModel(script)  # pyright: ignore[reportArgumentType] - a line is one of several kinds
    async with bots.open_bot(model):
        await discord.says(ANN, READ)
        thread = await discord.thread()
        await discord.wait_for_message(thread, "Reading the result")
        go_on.set()
        message = await discord.wait_for_message(thread, "They are red.")
        assert len(discord.own(thread)) == 1
        assert message.before[0] == "Reading your request…"
        assert discord.mentions_parsed and all(each == {"parse": []} for each in discord.mentions_parsed)


@proves("T3")
async def test_edits_of_progress_keep_a_distance(bots: BotFactory) -> None:
    discord = bots.discord
    model = ScriptedModel([calls(("notes__read_note", {"text": "roses"})), "They are red."])
    async with bots.open_bot(model, every=600):
        await discord.says(ANN, READ)
        message = await discord.wait_for_message(await discord.thread(), "They are red.")
        assert message.before == ["Reading your request…"]


@proves("T3")
async def test_a_long_answer_is_several_messages_and_a_very_long_one_a_file(bots: BotFactory) -> None:
    discord = bots.discord
    code = "Look:\n\n```python\n" + "print('hello')\n" * 300 + "```\n\nThat was it. @everyone"
    whole = ("A paragraph of words. " * 2000).strip()
    async with bots.open_bot(ScriptedModel([code, whole])):
        await discord.writes(ANN, "hello, show me code")
        room = discord.private(ANN)
        await discord.wait_for_message(room, "That was it.")
        found = discord.own(room)
        assert len(found) == 3
        assert all(message.text.count("```") == 2 for message in found)
        assert all(message.raw["flags"] & 4 for message in found[1:])  # no previews
        assert all(each == {"parse": []} for each in discord.mentions_parsed)
        await discord.writes(ANN, "hello, tell me everything")
        last = await discord.wait_for_message(room, "the full text is attached")
        assert last.files["answer.md"].decode() == whole
        assert len(discord.own(room)) == 5


@proves("A18", "T4")
async def test_files_come_in_through_the_store(bots: BotFactory) -> None:
    discord = bots.discord
    model = ScriptedModel(["I have read it."])
    async with bots.open_bot(model, max_file_bytes=2_000) as bot:
        files = {
            "plan.md": ("text/markdown; charset=utf-8", b"# Water the roses\n\nOn Mondays."),
            "rose.png": ("image/png", PNG),
            "big.txt": ("text/plain", b"x" * 3_000),
            "virus.exe": ("application/x-msdownload", b"MZ"),
        }
        await discord.says(ANN, "hello, here is a plan", files=files)
        message = await discord.wait_for_message(await discord.thread(), "I have read it.")
        prompt = model.asked[0].messages[-1].text
        assert "On Mondays." in prompt and "plan.md (text/markdown, 30 bytes, kept as res_" in prompt
        assert "big.txt" in message.text and "larger than 2,000 bytes" in message.text
        assert "virus.exe" not in prompt and "Not used" in message.text
        results: ResultStore = bot.router.calls.results
        handles = [word.rstrip("):") for word in prompt.split() if word.startswith("res_")]
        page = await results.read_page(handles[0], caller="discord:1")
        assert page is not None and page.text == "# Water the roses\n\nOn Mondays."
        assert await results.read_page(handles[0], caller="discord:2") is None
        picture = next(handle for handle in handles if handle != handles[0])
        assert await results.read_part(picture, 1) == ("image/png", PNG)


@proves("T4")
async def test_a_file_that_is_larger_than_it_says_is_not_taken(bots: BotFactory) -> None:
    discord = bots.discord
    async with bots.open_bot(ScriptedModel(["Hello."]), max_file_bytes=2_000):
        lying = discord.create_attachment("small.txt", "text/plain", b"y" * 50_000, size=10)
        elsewhere = {
            **discord.create_attachment("far.txt", "text/plain", b"y"),
            "url": "http://127.0.0.2:9/far.txt",
        }
        await discord.says(ANN, "hello there", attachments=[lying, elsewhere])
        message = await discord.wait_for_message(await discord.thread(), "Hello.")
        assert "larger than 2,000 bytes" in message.text and "is not stored at Discord" in message.text


@proves("T4")
async def test_pictures_and_files_of_results_go_out_with_the_answer(bots: BotFactory) -> None:
    discord = bots.discord
    model = ScriptedModel([calls(("notes__read_note", {"text": "roses"})), "Here is the picture."])
    async with bots.open_bot(model) as bot:

        async def picture(*_: object) -> types.CallToolResult:
            image = types.ImageContent(
                type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png"
            )
            text = types.TextContent(type="text", text="a rose")
            return types.CallToolResult(content=[text, image])

        bot.notes.server.add_request_handler("tools/call", types.CallToolRequestParams, picture)
        await discord.says(ANN, READ)
        message = await discord.wait_for_message(await discord.thread(), "Here is the picture.")
        assert list(message.files.values()) == [PNG]
        assert next(iter(message.files)).endswith(".png")


@proves("T4")
async def test_assets_that_results_link_to_go_out_to_whom_they_belong(bots: BotFactory) -> None:
    discord = bots.discord

    def asset(name: str) -> dict[str, Any]:
        uri, blob = f"fingerpost://results/asset/{name}", base64.b64encode(PNG).decode()
        resource = {"uri": uri, "mimeType": "image/png", "blob": blob}
        return {"content": [{"type": "resource", "resource": resource}]}

    links: list[str] = []

    def script(request: ModelRequest) -> ModelReply | str:
        first = len(model.asked) == 1
        return calls(("notes__read_note", {"text": " ".join(links)})) if first else "Here it is."

    model = ScriptedModel(script)
    async with bots.open_bot(model) as bot:
        results = bot.router.calls.results
        hers = await results.keep("hers", asset("../my chart.png"), caller="discord:1")
        his = await results.keep("his", asset("secret.png"), caller="discord:2")
        links += [f"<fingerpost://results/{hers}/chart.png>", f"<fingerpost://results/{his}/secret.png>"]
        await discord.says(ANN, READ)
        message = await discord.wait_for_message(await discord.thread(), "Here it is.")
        assert message.files == {"my_chart.png": PNG}


@proves("T3")
async def test_an_answer_to_a_message_that_is_gone_is_a_new_message(bots: BotFactory) -> None:
    discord = bots.discord
    go_on = anyio.Event()

    async def script(request: object) -> str:
        await go_on.wait()
        return "Here I am."

    async with bots.open_bot(ScriptedModel(script)):
        await discord.says(ANN, "hello there")
        thread = await discord.thread()
        note = await discord.wait_for_message(thread, "Reading your request")
        del discord.messages[thread][note.id]
        go_on.set()
        await discord.wait_for_message(thread, "Here I am.")


@pytest.mark.parametrize("nothing", ["", "   "])
async def test_an_empty_answer_is_told(bots: BotFactory, nothing: str) -> None:
    discord = bots.discord
    async with bots.open_bot(ScriptedModel(lambda _: nothing)):
        await discord.says(ANN, "hello there")
        thread = await discord.thread()
        await discord.until(lambda: discord.own(thread) and "…" not in discord.own(thread)[0].text)
        assert discord.own(CHANNEL) == []
