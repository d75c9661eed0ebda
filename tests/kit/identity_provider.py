"""An OpenID provider for tests: npm oidc-provider as a program of its own, and a browser without a screen."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx2

from tests.kit.programs import ROOT, newer_node

CLIENT = "fingerpost-console"
SECRET = "a secret of the console: 100%"
PATIENCE_S = 30.0
MAX_STEPS = 10


@contextmanager
def run_identity_provider(people: Mapping[str, Any]) -> Generator[str]:
    """The issuer of a provider that knows these people and one client, a console on this machine."""
    client = {"client_id": CLIENT, "client_secret": SECRET}
    script = Path(__file__).with_name("identity_provider.mjs")
    given = json.dumps({"people": people, "client": client})
    with subprocess.Popen(
        [newer_node(), str(script), given],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            issuer = program.stdout.readline().strip()
            assert issuer, "the identity provider did not start; is npm's oidc-provider installed?"
            yield issuer
        finally:
            program.kill()


async def log_in(url: str, name: str) -> dict[str, str]:
    """Log in at the provider's own pages as this person. Return what it adds to the address it leads to."""
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as browser:
        answer = await browser.get(url)
        issuer = urlsplit(url).netloc
        for _ in range(MAX_STEPS):
            if answer.is_redirect:
                url = urljoin(url, answer.headers["location"])
                if urlsplit(url).netloc != issuer:
                    return dict(parse_qsl(urlsplit(url).query))
                answer = await browser.get(url)
                continue
            found = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
            assert found is not None, answer.text
            form = {"prompt": "login", "login": name, "password": "any"}
            answer = await browser.post(urljoin(url, found[1]), data=form)
    message = "the provider did not lead back"
    raise AssertionError(message)
