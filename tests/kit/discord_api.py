"""A stand-in for Discord: its gateway and its REST API, as far as the connector uses them.

It keeps Discord's rules as far as we know them: who may edit what, how long a message may be, that a
message needs content, that a button's press wants an answer. A test plays the people.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anyio
from aiohttp import web

TOKEN = "stand-in.token.of-a-bot-that-is-none"
BOT, GUILD, CHANNEL, ROLE = 900, 100, 200, 300
PATIENCE_S = 45.0
WHEN = "2026-01-01T00:00:00+00:00"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DiscordUser:
    """A person (or a bot) on Discord."""

    id: int
    name: str
    roles: tuple[int, ...] = ()
    bot: bool = False

    def user(self) -> Body:
        return {
            "id": str(self.id), "username": self.name, "discriminator": "0", "avatar": None,
            "global_name": self.name, "bot": self.bot,
        }  # fmt: skip

    def member(self) -> Body:
        return {
            "roles": [str(role) for role in self.roles], "joined_at": WHEN, "deaf": False, "mute": False,
            "nick": None, "avatar": None, "flags": 0,
        }  # fmt: skip


ANN, BEN, CLEO = DiscordUser(1, "ann"), DiscordUser(2, "ben", (ROLE,)), DiscordUser(3, "cleo")
SELF = DiscordUser(BOT, "fingerpost", bot=True)


@dataclass(slots=True)
class Trouble:
    """What the next request of a kind gets instead of an answer."""

    method: str
    path: str
    status: int
    headers: dict[str, str]
    body: Body


@dataclass(slots=True)
class DiscordMessage:
    """A message as it stands, and everything it was before."""

    raw: Body
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    before: list[str] = field(default_factory=list[str])

    @property
    def id(self) -> int:
        return int(self.raw["id"])

    @property
    def text(self) -> str:
        return self.raw["content"]

    @property
    def own(self) -> bool:
        return self.raw["author"]["id"] == str(BOT)

    @property
    def buttons(self) -> dict[str, Body]:
        rows: list[Body] = self.raw["components"]
        return {button["label"]: button for row in rows for button in row["components"]}


@dataclass(slots=True)
class Press:
    """A press of a button, and the response to the user."""

    token: str
    answer: Body | None = None  # the callback
    shown: DiscordMessage | None = None  # only to them
    later: list[str] = field(default_factory=list[str])

    @property
    def words(self) -> str:
        data: Body = (self.answer or {}).get("data") or {}
        return data.get("content") or ""


class FakeDiscord:
    """One server with one channel, private channels for everybody, and the bot."""

    def __init__(self) -> None:
        self.address = ""
        self.people = {each.id: each for each in (ANN, BEN, CLEO, SELF)}
        self.channels: dict[int, Body] = {CHANNEL: _text_channel()}
        self.messages: dict[int, dict[int, DiscordMessage]] = {}
        self.attachments: dict[str, bytes] = {}
        self.presses: dict[str, Press] = {}
        self.troubles: list[Trouble] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.identified = self.resumed = 0
        self.may_read_messages = True
        self.mentions_parsed: list[Any] = []
        self._number = 10_000
        self._sequence = 0
        self._sent: list[tuple[int, str]] = []
        self._socket: web.WebSocketResponse | None = None
        self._changed = anyio.Event()

    # -- what tests do ------------------------------------------------------------------------------

    @property
    def api(self) -> str:
        return f"{self.address}/api/v10"

    async def until(self, holds: Callable[[], Any]) -> Any:
        """What `holds` gives as soon as it is something."""
        with anyio.move_on_after(PATIENCE_S):
            while not (found := holds()):
                await self._changed.wait()
            return found
        text = {place: [each.text for each in kept.values()] for place, kept in self.messages.items()}
        raise AssertionError(f"it never came to that; this was said: {text}")

    async def says(
        self,
        who: DiscordUser,
        text: str,
        *,
        channel: int = CHANNEL,
        mention: bool = True,
        files: dict[str, tuple[str, bytes]] | None = None,
        **more: Any,
    ) -> DiscordMessage:
        """A user writes; with `mention`, to the bot."""
        content = f"<@{BOT}> {text}" if mention else text
        message = self._message(channel, who, content)
        if mention:
            message["mentions"] = [SELF.user()]
        message["attachments"] = [self.create_attachment(name, *file) for name, file in (files or {}).items()]
        message.update(more)
        said = self._keep(channel, message)
        await self._dispatch("MESSAGE_CREATE", {**message, **self._where(channel, who)})
        return said

    def private(self, who: DiscordUser) -> int:
        """The private channel of the bot with a user."""
        number = 5_000 + who.id
        self.channels[number] = {
            "id": str(number), "type": 1, "recipients": [who.user()], "last_message_id": None
        }  # fmt: skip
        return number

    async def writes(self, who: DiscordUser, text: str, **more: Any) -> DiscordMessage:
        """A user writes in private."""
        return await self.says(who, text, channel=self.private(who), mention=False, **more)

    async def presses_button(self, who: DiscordUser, message: DiscordMessage, label: str) -> Press:
        """A user presses a button; returns when the bot has answered."""
        data = {"custom_id": message.buttons[label]["custom_id"], "component_type": 2}
        return await self._interacts(who, message, 3, data)

    async def fills_in(self, who: DiscordUser, message: DiscordMessage, form: Press, text: str) -> Press:
        """A user sends the form that a button opened; returns when the bot has answered."""
        assert form.answer is not None
        assert form.answer["type"] == 9
        shown: Body = form.answer["data"]
        assert 0 < len(shown["title"]) <= 45
        [label] = shown["components"]
        field = {"type": 4, "id": 2, "custom_id": label["component"]["custom_id"], "value": text}
        data = {
            "custom_id": shown["custom_id"],
            "components": [{"type": 18, "id": 1, "component": field}],
        }
        return await self._interacts(who, message, 5, data)

    async def _interacts(self, who: DiscordUser, message: DiscordMessage, kind: int, given: Body) -> Press:
        press = Press(token=f"tok{self._next()}")
        self.presses[press.token] = press
        channel = int(message.raw["channel_id"])
        in_private = self.channels[channel]["type"] == 1
        person = {"user": who.user()} if in_private else {"member": {**who.member(), "user": who.user()}}
        if not in_private:
            person["member"]["permissions"] = "0"
            person["guild_id"] = str(GUILD)  # pyright: ignore[reportArgumentType] - one object, many kinds
        data = {
            "id": str(self._next()), "application_id": str(BOT), "type": kind, "token": press.token,
            "version": 1, "attachment_size_limit": 1, "channel_id": str(channel), "message": message.raw,
            "channel": self.channels[channel], **person,
            "data": given,
        }  # fmt: skip
        await self._dispatch("INTERACTION_CREATE", data)
        await self.until(lambda: press.answer)
        return press

    def own(self, channel: int) -> list[DiscordMessage]:
        """What the bot says in a channel."""
        return [message for message in self.messages.get(channel, {}).values() if message.own]

    async def wait_for_message(self, channel: int, words: str) -> DiscordMessage:
        """The bot's message with these words, as soon as there is one."""
        return await self.until(
            lambda: next((message for message in self.own(channel) if words in message.text), None)
        )

    async def thread(self, number: int = 1) -> int:
        """The `number`th thread the bot opened."""

        def find() -> int | None:
            threads = [each for each, raw in self.channels.items() if raw["type"] == 11]
            return threads[number - 1] if len(threads) >= number else None

        return await self.until(find)

    def goes_wrong(
        self, method: str, path: str, status: int, body: Body | None = None, **headers: str
    ) -> None:
        """The next such request fails."""
        self.troubles.append(Trouble(method, path, status, headers, body or {"message": "trouble"}))

    async def hang_up(self) -> None:
        """The line breaks; what happens meanwhile is sent again when the bot is back."""
        assert self._socket is not None
        await self._socket.close(code=4000)

    # -- the gateway --------------------------------------------------------------------------------

    async def gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": 30_000}, "s": None, "t": None})
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            data = json.loads(message.data)
            if data["op"] == 1:
                await socket.send_json({"op": 11, "d": None, "s": None, "t": None})
            elif data["op"] == 2:
                await self._identify(socket, data["d"])
            elif data["op"] == 6:
                await self._resume(socket, data["d"])
        return socket

    async def _identify(self, socket: web.WebSocketResponse, told: Body) -> None:
        if told["token"] != TOKEN:
            await socket.close(code=4004)
            return
        if not self.may_read_messages and told["intents"] & (1 << 15):
            await socket.close(code=4014)
            return
        self._socket, self._sequence, self._sent = socket, 0, []
        again = f"{self.address.replace('http', 'ws')}/gateway"
        await self._dispatch(
            "READY",
            {
                "v": 10, "user": SELF.user(), "guilds": [{"id": str(GUILD), "unavailable": True}],
                "session_id": "session", "resume_gateway_url": again,
                "application": {"id": str(BOT), "flags": 0},
            },
        )  # fmt: skip
        threads = [raw for raw in self.channels.values() if raw["type"] == 11]
        await self._dispatch("GUILD_CREATE", _guild(self.channels[CHANNEL], threads))
        self.identified += 1
        self._tell()

    async def _resume(self, socket: web.WebSocketResponse, told: Body) -> None:
        assert told["session_id"] == "session"
        self._socket = socket
        for sequence, text in self._sent:
            if sequence > told["seq"]:
                await socket.send_str(text)
        self._sequence += 1
        await socket.send_json({"op": 0, "t": "RESUMED", "s": self._sequence, "d": {}})
        self.resumed += 1
        self._tell()

    async def _dispatch(self, kind: str, data: Body) -> None:
        self._sequence += 1
        text = json.dumps({"op": 0, "t": kind, "s": self._sequence, "d": data})
        self._sent.append((self._sequence, text))
        if self._socket is not None and not self._socket.closed:
            try:
                await self._socket.send_str(text)
            except ConnectionError:  # it is sent again when they are back
                return

    # -- REST ---------------------------------------------------------------------------------------

    def routes(self) -> list[web.RouteDef]:
        message = "/channels/{channel}/messages/{message}"
        return [
            web.get("/gateway", self.gateway),
            web.get("/files/{name}", self._file),
            web.get("/api/v10/gateway", self._gateway_url),
            web.get("/api/v10/users/@me", self._me),
            web.get("/api/v10/oauth2/applications/@me", self._application),
            web.get("/api/v10/channels/{channel}", self._channel),
            web.post("/api/v10/channels/{channel}/messages", self._post),
            web.get(f"/api/v10{message}", self._get),
            web.patch(f"/api/v10{message}", self._edit),
            web.post(f"/api/v10{message}/threads", self._open_thread),
            web.get("/api/v10/guilds/{guild}/members/{user}", self._member),
            web.post("/api/v10/interactions/{id}/{token}/callback", self._callback),
            web.patch("/api/v10/webhooks/{app}/{token}/messages/@original", self._edit_shown),
            web.post("/api/v10/webhooks/{app}/{token}", self._follow_up),
        ]

    @web.middleware
    async def guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if not request.path.startswith("/api/"):
            return await handler(request)
        path = request.path.removeprefix("/api/v10")
        for trouble in self.troubles:
            if trouble.method == request.method and re.fullmatch(trouble.path, path):
                self.troubles.remove(trouble)
                self._tell()
                return _json(trouble.body, status=trouble.status, headers=trouble.headers)
        known = path.startswith(("/interactions/", "/webhooks/")) or path == "/gateway"
        if not known and request.headers.get("Authorization") != f"Bot {TOKEN}":
            return _json({"message": "401: Unauthorized", "code": 0}, status=401)
        answer = await handler(request)
        self._tell()
        return answer

    async def _gateway_url(self, request: web.Request) -> web.Response:
        return _json({"url": f"{self.address.replace('http', 'ws')}/gateway"})

    async def _me(self, request: web.Request) -> web.Response:
        return _json(SELF.user())

    async def _application(self, request: web.Request) -> web.Response:
        told = {
            "id": str(BOT), "name": "fingerpost", "description": "", "icon": None, "bot_public": True,
            "bot_require_code_grant": False, "verify_key": "", "flags": 0, "owner": ANN.user(),
        }  # fmt: skip
        return _json(told)

    async def _channel(self, request: web.Request) -> web.Response:
        found = self.channels.get(int(request.match_info["channel"]))
        return _json(found) if found is not None else _not_found()

    async def _member(self, request: web.Request) -> web.Response:
        found = self.people.get(int(request.match_info["user"]))
        if found is None or found is CLEO:  # she is not on the server
            return _not_found()
        return _json({**found.member(), "user": found.user()})

    async def _post(self, request: web.Request) -> web.Response:
        channel = int(request.match_info["channel"])
        if channel not in self.channels:
            return _not_found()
        body, files = await _body(request)
        if (wrong := _wrong(body, files)) is not None:
            return wrong
        self.mentions_parsed.append(body.get("allowed_mentions"))
        raw = self._message(channel, SELF, body.get("content") or "")
        raw |= {"components": body.get("components") or [], "flags": body.get("flags", 0)}
        if body.get("message_reference"):
            raw["message_reference"] = body["message_reference"]
        raw["attachments"] = [
            self.create_attachment(name, "application/octet-stream", files[name]) for name in files
        ]
        message = self._keep(channel, raw)
        message.files = files
        return _json(raw)

    async def _get(self, request: web.Request) -> web.Response:
        found = self._find(request)
        return _json(found.raw) if found is not None else _not_found()

    async def _edit(self, request: web.Request) -> web.Response:
        found = self._find(request)
        if found is None:
            return _not_found()
        if not found.own:
            return _json({"message": "not yours", "code": 50005}, status=403)
        body, files = await _body(request)
        if (wrong := _wrong({"content": found.text, **body}, files)) is not None:
            return wrong
        self.mentions_parsed.append(body.get("allowed_mentions"))
        if body.get("content") is not None:
            found.before.append(found.text)
            found.raw["content"] = body["content"]
        if "components" in body:
            found.raw["components"] = body["components"]
        found.files |= files
        return _json(found.raw)

    async def _open_thread(self, request: web.Request) -> web.Response:
        body, _ = await _body(request)
        number = int(request.match_info["message"])
        if number in self.channels or not 1 <= len(body["name"]) <= 100:
            return _json({"message": "no", "code": 160004}, status=400)
        self.channels[number] = thread = {
            "id": str(number), "type": 11, "guild_id": str(GUILD), "parent_id": str(CHANNEL),
            "owner_id": str(BOT), "name": body["name"], "message_count": 0, "member_count": 1,
            "thread_metadata": {
                "archived": False, "auto_archive_duration": 1440, "archive_timestamp": WHEN, "locked": False,
            },
        }  # fmt: skip
        await self._dispatch("THREAD_CREATE", thread)
        return _json(thread, status=201)

    async def _callback(self, request: web.Request) -> web.Response:
        press = self.presses[request.match_info["token"]]
        assert press.answer is None, "an interaction is answered once"
        press.answer, files = await _body(request)
        kind = press.answer["type"]
        told: Body = {"interaction": {"id": request.match_info["id"], "type": 3}}
        if kind == 4:
            data = press.answer["data"]
            raw = self._message(CHANNEL, SELF, data.get("content") or "")
            raw["components"] = data.get("components") or []
            press.shown = DiscordMessage(raw, files)
            told["resource"] = {"type": kind, "message": raw}
        return _json(told)

    async def _edit_shown(self, request: web.Request) -> web.Response:
        press = self.presses[request.match_info["token"]]
        body, _ = await _body(request)
        press.later.append(body.get("content") or "")
        return _json(self._message(CHANNEL, SELF, body.get("content") or ""))

    async def _follow_up(self, request: web.Request) -> web.Response:
        return await self._edit_shown(request)

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.attachments[request.match_info["name"]])

    # -- what there is ------------------------------------------------------------------------------

    def create_attachment(self, name: str, kind: str, data: bytes, *, size: int | None = None) -> Body:
        self.attachments[name] = data
        return {
            "id": str(self._next()), "filename": name, "content_type": kind,
            "size": len(data) if size is None else size,
            "url": f"{self.address}/files/{name}", "proxy_url": f"{self.address}/files/{name}",
        }  # fmt: skip

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _message(self, channel: int, who: DiscordUser, content: str) -> Body:
        return {
            "id": str(self._next()), "channel_id": str(channel), "author": who.user(), "content": content,
            "timestamp": WHEN, "edited_timestamp": None, "tts": False, "mention_everyone": False,
            "mentions": [], "mention_roles": [], "attachments": [], "embeds": [], "pinned": False,
            "type": 0, "components": [], "flags": 0,
        }  # fmt: skip

    def _where(self, channel: int, who: DiscordUser) -> Body:
        return {} if self.channels[channel]["type"] == 1 else {"guild_id": str(GUILD), "member": who.member()}

    def _keep(self, channel: int, raw: Body) -> DiscordMessage:
        message = DiscordMessage(raw)
        self.messages.setdefault(channel, {})[message.id] = message
        self._tell()
        return message

    def _find(self, request: web.Request) -> DiscordMessage | None:
        of_channel = self.messages.get(int(request.match_info["channel"]), {})
        return of_channel.get(int(request.match_info["message"]))

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@asynccontextmanager
async def stand_in() -> AsyncGenerator[FakeDiscord]:
    """A Discord of the test's own, at an address of its own."""
    discord = FakeDiscord()
    app = web.Application(middlewares=[discord.guard], client_max_size=32 * 1024 * 1024)
    app.add_routes(discord.routes())
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    discord.address = f"http://127.0.0.1:{port}"
    try:
        yield discord
    finally:
        await runner.cleanup()


def _json(told: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Discord names no character set."""
    kind = {"Content-Type": "application/json"}
    return web.Response(body=json.dumps(told).encode(), status=status, headers={**kind, **(headers or {})})


async def _body(request: web.Request) -> tuple[Body, dict[str, bytes]]:
    """The JSON of a request, and the files that came with it."""
    if not request.content_type.startswith("multipart/"):
        return await request.json(), {}
    body: Body = {}
    files: dict[str, bytes] = {}
    async for part in await request.multipart():
        assert isinstance(part, aiohttp.BodyPartReader)
        if part.name == "payload_json":
            body = json.loads(await part.text())
        else:
            files[part.filename or "?"] = bytes(await part.read())
    return body, files


def _wrong(body: Body, files: dict[str, bytes]) -> web.Response | None:
    content = body.get("content") or ""
    if len(content) > 2000 or (not content.strip() and not files):
        return _json({"message": "Invalid Form Body", "code": 50035}, status=400)
    return None


def _not_found() -> web.Response:
    return _json({"message": "Unknown", "code": 10008}, status=404)


def _text_channel() -> Body:
    return {
        "id": str(CHANNEL), "type": 0, "guild_id": str(GUILD), "name": "general", "position": 0,
        "permission_overwrites": [], "nsfw": False, "parent_id": None, "topic": None,
    }  # fmt: skip


def _guild(channel: Body, threads: list[Body]) -> Body:
    def role(number: int, name: str) -> Body:
        return {
            "id": str(number), "name": name, "color": 0, "hoist": False, "position": 0, "permissions": "0",
            "managed": False, "mentionable": False, "flags": 0, "colors": {"primary_color": 0},
        }  # fmt: skip

    return {
        "id": str(GUILD), "name": "The garden", "owner_id": str(ANN.id), "member_count": 3,
        "roles": [role(GUILD, "@everyone"), role(ROLE, "keepers")], "channels": [channel],
        "threads": threads, "members": [{**SELF.member(), "user": SELF.user()}], "presences": [],
        "voice_states": [], "emojis": [], "stickers": [], "features": [], "premium_tier": 0,
    }  # fmt: skip


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
