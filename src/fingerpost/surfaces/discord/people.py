"""Who is answered, and who may approve. Decided from ids alone: names can be taken by anybody."""

from __future__ import annotations

from fingerpost.frozen import frozen
from fingerpost.settings import DiscordSettings

CALLER_PREFIX = "discord:"  # of callers and of conversations


@frozen
class DiscordPerson:
    """Somebody on Discord. `server` is None in private; `roles` are those they have on that server."""

    user: int
    server: int | None = None
    roles: frozenset[int] = frozenset()

    @property
    def caller(self) -> str:
        """What they are called in this house."""
        return f"{CALLER_PREFIX}{self.user}"

    @property
    def named(self) -> frozenset[str]:
        """The ids a setting may mean them by. The role everybody has is as good as none."""
        return frozenset(str(each) for each in (self.user, *self.roles) if each != self.server)


def build_conversation_id(channel: int) -> str:
    """A thread, or a private channel, is a conversation."""
    return f"{CALLER_PREFIX}{channel}"


def parse_channel_id(conversation: str | None) -> int | None:
    """The channel a conversation is held in; None where it is none of ours."""
    number = (conversation or "").removeprefix(CALLER_PREFIX)
    ours = conversation is not None and conversation.startswith(CALLER_PREFIX) and number.isascii()
    return int(number) if ours and number.isdigit() and len(number) <= 20 else None


def is_allowed(settings: DiscordSettings, person: DiscordPerson) -> bool:
    """Whether they are answered where they are. In private `server` is one that they share with us."""
    if settings.servers and str(person.server) not in settings.servers:
        return str(person.user) in settings.users and person.server is None
    wanted = {*settings.users, *settings.roles}
    return not wanted or not wanted.isdisjoint(person.named)


def explain_no_approval(settings: DiscordSettings, person: DiscordPerson, *, asker: str | None) -> str | None:
    """Why they may not approve a call that `asker` (a caller) asked for; None where they may."""
    own = asker == person.caller
    if person.server is None and own:
        known = str(person.user) in {*settings.users, *settings.approvers}
        if settings.own_approvals and known:
            return None
        return (
            "You asked for this yourself, and may not approve it here. "
            "Whoever runs this bot can, in the console or with `fingerpost approvals`."
        )
    if own:
        return "You asked for this yourself: somebody else has to approve it."
    if settings.servers and person.server is not None and str(person.server) not in settings.servers:
        return "Nothing is approved on this server."
    if set(settings.approvers).isdisjoint(person.named):
        return "You are not among those who may approve. Whoever runs this bot decides who is."
    return None


def explain_no_rejection(
    settings: DiscordSettings, person: DiscordPerson, *, asker: str | None
) -> str | None:
    """The same for a no: whoever asked may always take it back."""
    return None if asker == person.caller else explain_no_approval(settings, person, asker=asker)
