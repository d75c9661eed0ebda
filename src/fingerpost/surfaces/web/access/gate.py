"""Says who asks, for every HTTP request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from fingerpost.events import EventSink
from fingerpost.frozen import frozen
from fingerpost.records import LOCAL_NAME, JsonObject, Principal, Right
from fingerpost.store.keys import PREFIX
from fingerpost.surfaces.web.access.documents import Documents
from fingerpost.surfaces.web.access.hosts import Hosts, embeds_from_elsewhere
from fingerpost.surfaces.web.access.refusals import Refusals
from fingerpost.surfaces.web.access.tries import Tries
from fingerpost.surfaces.web.access.verdicts import Insufficient, Known, Undecided, Unknown, Verdict
from fingerpost.surfaces.web.gate import Denial, Endpoint

# Callers without a key, tools as well as people, use and look. Deciding takes what a tool has not,
# a key with the right or a session of the console that `fingerpost console` opens.
LOCAL: Final = Principal(name=LOCAL_NAME, kind="local", rights=(Right.USE, Right.WATCH))

LONGEST_CREDENTIAL: Final = 16_384
# Set by proxies: whoever asks through one does not sit at this machine.
_FORWARDED: Final = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"})

_NEEDED = "A key is needed: send it as `Authorization: Bearer …` or `X-API-Key: …`."
_WRONG = "The key or token is not valid. Ask whoever runs this gateway for another."
_TOO_LITTLE = "The key or token is valid, but does not reach this endpoint."
_NOT_ENOUGH = "The token is valid, but not taken: {reason}."
_NOT_ALLOWED = "The key or token is valid, but its holder may not do this: it needs the right `{right}`."
_NOT_SIGNED_IN = (
    "Being at this machine is not enough for this: a tool could say so, too. It needs the right `{right}`. "
    "Sign in to the console with the link that `fingerpost console` prints, use the command line "
    "(`fingerpost approvals`), or send a key made with `fingerpost keys add NAME --may {right}`."
)
_TOO_MANY = "Too many wrong keys or tokens came from here. Wait a minute."
_EMBEDDED = "A page of another site may not load this."
_LATER = "Keys and tokens cannot be checked at the moment. Try again in a few seconds."


class Check(Protocol):
    """Looks at one kind of credential."""

    def remembered(self, credential: str, /) -> Known | None: ...

    async def judge(self, credential: str, /) -> Verdict: ...


@frozen(kw_only=False)
class _Refused:
    """A refusal with what only the audit trail hears of it."""

    denial: Denial
    reason: str
    principal: str | None = None


class Doorkeeper:
    """The gate (`exchange.Gate`). `local`: who it is at this machine that has no key; None: all need one."""

    def __init__(
        self,
        *,
        hosts: Hosts,
        documents: Documents,
        keys: Check,
        tokens: Check | None,
        events: EventSink,
        local: Principal | None,
        tries: Tries | None = None,
    ) -> None:
        self._hosts = hosts
        self._documents = documents
        self._keys = keys
        self._tokens = tokens
        self._local = local
        self._tries = tries or Tries()
        self._refusals = Refusals(events)

    def documents(self) -> Mapping[str, JsonObject]:
        return self._documents.all()

    def allows_page(self, headers: Mapping[str, str]) -> bool:
        """Whether a web page may call us, by Host and Origin: its key comes with the call itself."""
        return self._hosts.aim(headers).refusal is None

    def answers_probe(self, headers: Mapping[str, str]) -> bool:
        return self._hosts.answers_probe(headers)

    async def admit(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | Denial:
        """Who this is, or why they are not let in. `remote` is the address they come from."""
        answer = await self._look(headers, endpoint, remote)
        if isinstance(answer, _Refused):
            self._refusals.tell(
                remote, endpoint=endpoint.path, reason=answer.reason, principal=answer.principal
            )
            return answer.denial
        return answer

    async def _look(
        self, headers: Mapping[str, str], endpoint: Endpoint, remote: str
    ) -> Principal | _Refused:
        aim = self._hosts.aim(headers)
        if aim.refusal is not None:
            return _Refused(Denial(status=403, message=aim.refusal), aim.refusal)
        if embeds_from_elsewhere(headers):
            return _Refused(Denial(status=403, message=_EMBEDDED), _EMBEDDED)
        credential = _credential(headers)
        if credential is None:
            if self._local is not None and aim.loopback and not _through_proxy(headers):
                return self._at(endpoint, self._local)
            return _Refused(self._unauthorized(endpoint, _NEEDED), "no credential was given")
        check = self._keys if self._tokens is None or credential.startswith(PREFIX) else self._tokens
        known = check.remembered(credential)
        if known is None:
            # Looked at before anybody is told to wait: behind a proxy all come from one address, and a
            # stranger who guesses there must not keep the others out. A right guess would be let in, too,
            # but cannot be made: keys have 256 random bits, tokens a signature. Looking is cheap for us.
            verdict = await self._judge(check, credential)
            if not isinstance(verdict, Known):
                return self._refused(verdict, endpoint, remote)
            known = verdict
        return self._at(endpoint, known.principal)

    async def _judge(self, check: Check, credential: str) -> Verdict:
        if not credential.isascii() or len(credential) > LONGEST_CREDENTIAL:
            return Unknown("not a credential")
        return await check.judge(credential)

    def _at(self, endpoint: Endpoint, principal: Principal) -> Principal | _Refused:
        if endpoint.right is not None and not principal.may(endpoint.right):
            message = _NOT_SIGNED_IN if principal.kind == "local" else _NOT_ALLOWED
            denial = self._insufficient(endpoint, message.format(right=endpoint.right))
            return _Refused(denial, f"may not {endpoint.right}", principal.name)
        if endpoint.any_profile or principal.may_use(endpoint.profile):
            return principal
        denial = self._insufficient(endpoint, _TOO_LITTLE)
        return _Refused(denial, f"may use only {', '.join(principal.profiles)}", principal.name)

    def _refused(
        self, verdict: Unknown | Insufficient | Undecided, endpoint: Endpoint, remote: str
    ) -> _Refused:
        if isinstance(verdict, Undecided):
            again = ("retry-after", str(verdict.seconds))
            return _Refused(Denial(status=503, message=_LATER, headers=(again,)), verdict.reason)
        if isinstance(verdict, Insufficient):
            message = _NOT_ENOUGH.format(reason=verdict.reason)
            denial = self._insufficient(endpoint, message, verdict.scopes)
            return _Refused(denial, verdict.reason, verdict.principal)
        if (seconds := self._tries.wait(remote)) > 0:
            return _too_many(seconds)
        self._tries.failed(remote)
        return _Refused(self._unauthorized(endpoint, _WRONG, "invalid_token"), verdict.reason)

    def _unauthorized(self, endpoint: Endpoint, message: str, error: str | None = None) -> Denial:
        challenge = self._documents.challenge(endpoint.path, error)
        return Denial(status=401, message=message, headers=(challenge,))

    def _insufficient(self, endpoint: Endpoint, message: str, scopes: tuple[str, ...] = ()) -> Denial:
        challenge = self._documents.challenge(endpoint.path, "insufficient_scope", scopes)
        return Denial(status=403, message=message, headers=(challenge,))


def _too_many(seconds: float) -> _Refused:
    again = ("retry-after", str(int(seconds) + 1))
    return _Refused(Denial(status=429, message=_TOO_MANY, headers=(again,)), "too many wrong credentials")


def _credential(headers: Mapping[str, str]) -> str | None:
    """What was given to be let in. Beside an `X-API-Key` the Authorization may be meant for a server."""
    if (key := headers.get("x-api-key")) is not None:
        return key.strip()
    authorization = headers.get("authorization")
    if authorization is None:
        return None
    scheme, _, value = authorization.strip().partition(" ")
    # Another scheme is a credential too, and a wrong one.
    return value.strip() if scheme.lower() == "bearer" else ""


def _through_proxy(headers: Mapping[str, str]) -> bool:
    return not _FORWARDED.isdisjoint(headers)
