"""/v1 as an ASGI application: paths, who may come in, and what becomes of faults."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Principal, Right, new_id
from fingerpost.router import Router
from fingerpost.store.keys import PREFIX
from fingerpost.surfaces.completions import pages
from fingerpost.surfaces.completions.asking import Turn
from fingerpost.surfaces.completions.bodies import encode, read_object, too_large
from fingerpost.surfaces.completions.extension import end_headers
from fingerpost.surfaces.completions.faults import CLOSING, OURS, ApiFault, told
from fingerpost.surfaces.completions.forms import FORMS, Form
from fingerpost.surfaces.completions.line import Line
from fingerpost.surfaces.completions.manner import read_manner, split_model
from fingerpost.surfaces.completions.models import Models
from fingerpost.surfaces.completions.outlet import Outlet
from fingerpost.surfaces.completions.places import Place, place_of
from fingerpost.surfaces.completions.reading import Question
from fingerpost.surfaces.completions.turns import Turns
from fingerpost.surfaces.completions.work import Running, Work
from fingerpost.surfaces.web.asgi import (
    JSON_TYPE,
    AsgiScope,
    ClientGone,
    Fault,
    Header,
    Receive,
    Send,
    check_content_type,
    headers_of,
    read_body,
    respond,
)
from fingerpost.surfaces.web.gate import Endpoint, Gate, for_others
from fingerpost.surfaces.web.hearing import while_heard
from fingerpost.surfaces.web.rate import Rate
from fingerpost.surfaces.web.reach import reach_of

log = logging.getLogger("fingerpost.completions")

BODIES: Final = 8  # times `gateway.body_bytes`: a request may hold pictures
AT_ONCE: Final = 2000


@frozen(kw_only=False)
class Inbound:
    """One HTTP request at one of our paths."""

    method: str
    place: Place
    headers: Mapping[str, str]
    remote: str
    receive: Receive
    send: Outlet
    common: tuple[Header, ...] = ()  # go with every answer to it


@asynccontextmanager
async def open_completions(
    router: Router, *, gate: Gate, address: str, rate: Rate | None = None
) -> AsyncGenerator[Completions]:
    """/v1 for this router. `address` is where people reach us; `rate` is shared with other surfaces."""
    models = Models(router)
    try:
        yield Completions(router, gate=gate, address=address, models=models, rate=rate)
    finally:
        with anyio.CancelScope(shield=True):
            await models.aclose()


class Completions:
    """Answers chats. Use `open_completions`."""

    def __init__(
        self, router: Router, *, gate: Gate, address: str, models: Models, rate: Rate | None = None
    ) -> None:
        self._router = router
        self._settings = router.settings
        self._gate = gate
        self._models = models
        self._turns = Turns(router, address=address)
        self._rate = rate or Rate(self._settings.api.per_minute)
        self._work = Work(AT_ONCE)

    async def drain(self, seconds: float) -> None:
        """What runs gets a little time; then it is told that we close."""
        self._work.close()
        with anyio.move_on_after(seconds):
            await self._work.finished()
        self._work.end()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        outlet = Outlet(send)
        common: tuple[Header, ...] = ()
        try:
            headers, _ = headers_of(scope["headers"])
            common = pages.headers_for(self._gate, headers)
            inbound = Inbound(
                method=scope["method"],
                place=place_of(scope["path"]),
                headers=headers,
                remote=(scope.get("client") or ("",))[0],
                receive=receive,
                send=outlet,
                common=common,
            )
            with self._work.running() as running:
                await self._answer(inbound)
            if running.ended:
                await self._say_goodbye(running, outlet, common)
        except Fault as fault:
            await _respond_fault(outlet, fault, common)
        except ClientGone:
            pass
        except Exception:
            log.exception("A request at %s could not be answered", scope["path"][:200])
            if not outlet.begun:
                await _respond_fault(outlet, ApiFault(500, OURS), common)

    async def _say_goodbye(self, running: Running, outlet: Outlet, common: tuple[Header, ...]) -> None:
        fault = ApiFault(503, CLOSING)
        if not outlet.begun:
            await _respond_fault(outlet, fault, common)
        else:
            frame = b"data: %s\n\n" % encode(told(fault))
            await outlet({"type": "http.response.body", "body": frame})

    async def _answer(self, inbound: Inbound) -> None:
        if inbound.method == "OPTIONS":
            status, headers = pages.preflight(self._gate, inbound.headers)
            await respond(inbound.send, status, b"", headers)
            return
        principal = await self._admitted(inbound)
        if (wait := self._rate.take(principal.name)) > 0:
            again = (b"retry-after", str(int(wait) + 1).encode())
            raise ApiFault(429, f"Too many requests; wait {int(wait) + 1} s.", headers=(again,))
        place = inbound.place
        if inbound.method != place.method:
            allow = ((b"allow", place.method.encode()),)
            raise ApiFault(405, f"Use {place.method} here.", headers=allow)
        if place.what == "models":
            await self._list(inbound)
        else:
            await self._complete(inbound, principal)

    async def _admitted(self, inbound: Inbound) -> Principal:
        """Who asks. Clients of this API insist on sending some key, even where nobody needs one.

        What is not one of our keys opens nothing here without a sign-in, so it is as good as none.
        """
        headers = dict(inbound.headers)
        bearer = headers.get("authorization", "").partition(" ")[2].strip()
        if self._settings.gateway.sign_in is None and not bearer.startswith(PREFIX):
            headers.pop("authorization", None)
        # Which profile is meant may stand in the body; it is checked when that is read.
        endpoint = Endpoint(path=inbound.place.path, right=Right.USE, any_profile=True)
        admitted = await self._gate.admit(headers, endpoint, remote=inbound.remote)
        if isinstance(admitted, Principal):
            return admitted
        told_so = tuple((name.encode(), value.encode()) for name, value in admitted.headers)
        raise ApiFault(admitted.status, admitted.message, headers=told_so)

    async def _list(self, inbound: Inbound) -> None:
        name = inbound.place.name
        if name:
            body: JsonObject = await self._models.find(name)
        else:
            body = {"object": "list", "data": await self._models.listed()}
        await self._respond(inbound, body)

    # -- questions ----------------------------------------------------------------------------------

    async def _complete(self, inbound: Inbound, principal: Principal) -> None:
        form = FORMS[inbound.place.what]
        question = form.read(await self._body(inbound))
        if (own := for_others(inbound.headers)) is not None:
            await self._turns.ready()
            principal = await self._router.with_own_tools(principal, own)
        turn = self._turn(inbound, principal, question)
        if question.stream:
            await self._stream(inbound, turn, form)
            return
        ended = await while_heard(inbound.receive, lambda _: self._turns.take(turn))
        body = form.whole(ended, question, extension=self._settings.completions.extension)
        await self._respond(inbound, body, end_headers(ended))

    async def _body(self, inbound: Inbound) -> Mapping[str, Any]:
        check_content_type(inbound.headers)
        limit = self._settings.gateway.body_bytes * BODIES
        try:
            body = await read_body(
                inbound.headers,
                inbound.receive,
                limit=limit,
                seconds=self._settings.gateway.request_seconds,
            )
        except Fault as fault:
            if fault.status == 413:
                raise too_large(limit) from fault
            raise
        return await read_object(body)

    def _turn(self, inbound: Inbound, principal: Principal, question: Question) -> Turn:
        """Everything about how to answer, from the body, the headers and the path."""
        profiles = self._router.profiles
        _, suffix = split_model(question.model)
        theirs = tuple(name for name in profiles if profiles.may_use(name, principal.name))
        manner = read_manner(question.manner, inbound.headers, suffix=suffix, profiles=theirs)
        place = inbound.place.profile
        if place is not None and manner.profile not in (None, place):
            raise ApiFault(400, f"The path says the profile {place}, the request another.", "profile")
        return Turn(
            question=question,
            manner=manner,
            principal=principal,
            reach=reach_of(principal, place or manner.profile, profiles, api_version=manner.api_version),
            model=self._models.meant(question.model),
            keyless=not self._models.prime,
            authorization=for_others(inbound.headers),
        )

    async def _stream(self, inbound: Inbound, turn: Turn, form: Form) -> None:
        line = Line(inbound.send, inbound.common)
        stream = form.stream(line, turn.question, extension=self._settings.completions.extension)

        async def work(tasks: TaskGroup) -> None:
            tasks.start_soon(line.keep_alive)
            try:
                await stream.finish(await self._turns.take(turn, stream))
            except Fault as fault:
                if not line.opened:
                    raise
                await stream.fail(fault)
            except Exception:
                if not line.opened:
                    raise
                log.exception("An answer broke off")
                await stream.fail(ApiFault(500, OURS))

        await while_heard(inbound.receive, work)
        await line.close()

    async def _respond(self, inbound: Inbound, body: JsonObject, headers: tuple[Header, ...] = ()) -> None:
        mine = headers or _new_id()
        await respond(inbound.send, 200, encode(body), (JSON_TYPE, *mine, *inbound.common))


def _new_id() -> tuple[Header, ...]:
    return ((b"x-request-id", new_id("req").encode()),)


async def _respond_fault(outlet: Outlet, fault: Fault, common: tuple[Header, ...]) -> None:
    headers = (JSON_TYPE, *_new_id(), *fault.headers, *common)
    await respond(outlet, fault.status, encode(told(fault)), headers)
