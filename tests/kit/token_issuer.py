"""A small authorization server: real keys, real signatures, metadata and key set over real HTTP."""

from __future__ import annotations

import json
import secrets
import time
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fingerpost.settings.model import SignInSettings
from fingerpost.testing.servers import served

AUDIENCE = "https://tools.example/mcp"


def rsa_key(number: int, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The same keys for all tests of a process: making one takes a while."""
    return _rsa_key(number, bits)


@cache
def _rsa_key(number: int, bits: int) -> rsa.RSAPrivateKey:
    del number
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(number: int) -> ec.EllipticCurvePrivateKey:
    del number
    return ec.generate_private_key(ec.SECP256R1())


def public_pem(number: int) -> bytes:
    return (
        rsa_key(number)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def rsa_jwk(number: int, kid: str | None, bits: int = 2048, **more: str) -> dict[str, Any]:
    jwk = json.loads(RSAAlgorithm.to_jwk(rsa_key(number, bits).public_key()))
    return {**jwk, **({"kid": kid} if kid else {}), **more}


def ec_jwk(number: int, kid: str) -> dict[str, Any]:
    return {**json.loads(ECAlgorithm.to_jwk(ec_key(number).public_key())), "kid": kid}


@dataclass
class TokenIssuer:
    """Its address, the keys it publishes, and what was asked of it."""

    issuer: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    answers: dict[str, Response] = field(default_factory=dict[str, Response])  # instead of the usual ones
    asked: Counter[str] = field(default_factory=Counter[str])
    metadata_path: str = "/.well-known/oauth-authorization-server"
    client: tuple[str, str] = ("fingerpost", "a secret: 100%")  # who may exchange tokens
    lifetime: int = 300  # of exchanged tokens, as it is named

    async def answer(self, request: Request) -> Response:
        path = request.url.path
        self.asked[path] += 1
        if path in self.answers:
            return self.answers[path]
        if path == self.metadata_path:
            endpoints = {
                "jwks_uri": f"{self.base}/keys",
                "authorization_endpoint": f"{self.base}/authorize",
                "token_endpoint": f"{self.base}/token",
                "response_types_supported": ["code"],
            }
            return JSONResponse({"issuer": self.issuer, **endpoints, **self.metadata})
        if path == "/token":
            return self.exchange(request.headers.get("authorization", ""), dict(await request.form()))
        return JSONResponse({"keys": self.keys}) if path == "/keys" else Response(status_code=404)

    base: str = ""

    def exchange(self, authorization: str, form: Mapping[str, Any]) -> Response:
        """Token exchange (RFC 8693): a token of this server for one with another audience."""
        name, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if (unquote(name), unquote(secret)) != self.client:
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        kind = "urn:ietf:params:oauth:token-type:access_token"
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
        assert (form["subject_token_type"], form["requested_token_type"]) == (kind, kind)
        try:
            subject = jwt.decode(
                form["subject_token"],
                rsa_key(1).public_key(),
                ["RS256"],
                audience=AUDIENCE,
                issuer=self.issuer,
            )
        except jwt.PyJWTError as error:
            fault = {"error": "invalid_grant", "error_description": f"the subject token: {error}"}
            return JSONResponse(fault, status_code=400)
        claims: dict[str, Any] = {
            "sub": subject["sub"],
            "aud": form.get("audience") or form["resource"],
            "scope": form.get("scope"),
            "jti": secrets.token_hex(8),
        }
        made = {"access_token": self.token(**claims), "issued_token_type": kind, "token_type": "Bearer"}
        return JSONResponse({**made, "expires_in": self.lifetime})

    def settings(self, **more: Any) -> SignInSettings:
        return SignInSettings.model_validate({"issuer": self.issuer, "audience": AUDIENCE, **more})

    def claims(self, **more: Any) -> dict[str, Any]:
        now = time.time()
        given = {"iss": self.issuer, "aud": AUDIENCE, "sub": "dana", "iat": now, "exp": now + 300, **more}
        return {name: value for name, value in given.items() if value is not None}

    def token(
        self,
        *,
        key: Any = None,
        algorithm: str = "RS256",
        headers: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """A token as this server signs it; a claim of None is left out."""
        signing = rsa_key(1) if key is None else key
        kid: dict[str, Any] = {"kid": "one"} if headers is None else headers
        return jwt.encode(self.claims(**claims), signing, algorithm=algorithm, headers=kid)


@asynccontextmanager
async def authority(path: str = "") -> AsyncGenerator[TokenIssuer]:
    """An authorization server with one RSA key named `one`. `path` is where on its host the issuer is."""
    made = TokenIssuer(keys=[rsa_jwk(1, "one")])
    app = Starlette(routes=[Route("/{path:path}", made.answer, methods=["GET", "POST"])])
    async with served(app) as base:
        made.base, made.issuer = base, f"{base}{path}"
        made.metadata_path = f"/.well-known/oauth-authorization-server{path}"
        yield made
