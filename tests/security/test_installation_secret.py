"""The secret that encrypts sign-in tokens and approval states, and what it protects."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from pathlib import Path

import anyio.to_thread
import psycopg
import pytest
from psycopg import sql

from fingerpost.errors import ConfigError
from fingerpost.store import Store
from tests.kit.command_line import CommandLine
from tests.kit.elicitation import accept, open_elicitation_gateway, request
from tests.requirements import proves

SECRET = bytes(range(100, 132))


def put_secret(file: Path, secret: bytes = SECRET, mode: int = 0o600) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(secret)
    file.chmod(mode)
    return file


def dump(url: str) -> str:
    """Every row of every table, as text; bytes are written as hexadecimal digits."""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert ("tokens",) in names
        rows = [
            connection.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(name))).fetchall()
            for (name,) in names
        ]
    return "\n".join(row for table in rows for (row,) in table)


@proves("X14")
async def test_two_hosts_with_one_file_accept_each_others_states(tmp_path: Path, postgres_url: str) -> None:
    files = [put_secret(tmp_path / host / "fingerpost.secret") for host in ("one", "other")]
    stores = [{"url": postgres_url, "secret_file": str(file)} for file in files]
    async with (
        open_elicitation_gateway(tmp_path, store=stores[0]) as one,
        open_elicitation_gateway(tmp_path, store=stores[1]) as other,
    ):
        first = request()
        asked = await one.call(first)
        assert (await other.retry(first, asked, accept())).success
        assert len(other.notes.calls) == 1
    text = await anyio.to_thread.run_sync(dump, postgres_url)
    assert SECRET.hex() not in text


@proves("X14")
async def test_a_secret_in_the_database_is_removed_and_not_used_again(
    tmp_path: Path, postgres_url: str
) -> None:
    async with Store.open(postgres_url) as store:
        old = await store.secret.load()
    assert old.hex() in await anyio.to_thread.run_sync(dump, postgres_url)
    file = tmp_path / "fingerpost.secret"
    async with Store.open(postgres_url, secret_file=file) as store:
        made = await store.secret.load()
        assert await store.secret.load() == made
    assert made != old
    assert file.read_bytes() == made
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = await anyio.to_thread.run_sync(dump, postgres_url)
    assert old.hex() not in text
    assert made.hex() not in text


@proves("X14")
@pytest.mark.parametrize("mode", [0o660, 0o604, 0o644])
async def test_a_file_that_others_can_read_is_refused(tmp_path: Path, postgres_url: str, mode: int) -> None:
    file = put_secret(tmp_path / "fingerpost.secret", mode=mode)
    async with Store.open(postgres_url, secret_file=file) as store:
        with pytest.raises(ConfigError, match="can be read by others") as refused:
            await store.secret.load()
    assert f"chmod 600 {file}" in (refused.value.hint or "")


@proves("X14")
async def test_a_file_with_too_little_in_it_is_refused(tmp_path: Path, postgres_url: str) -> None:
    file = put_secret(tmp_path / "fingerpost.secret", b"short")
    async with Store.open(postgres_url, secret_file=file) as store:
        with pytest.raises(ConfigError, match="32 bytes"):
            await store.secret.load()


@proves("X14")
async def test_a_second_host_does_not_make_a_secret_of_its_own(tmp_path: Path, postgres_url: str) -> None:
    async with Store.open(postgres_url, secret_file=tmp_path / "one.secret") as store:
        await store.secret.load()
    missing = tmp_path / "other.secret"
    async with Store.open(postgres_url, secret_file=missing) as store:
        with pytest.raises(ConfigError, match="is missing") as refused:
            await store.secret.load()
        assert "copy" in (refused.value.hint or "")
    assert not missing.exists()
    async with Store.open(postgres_url, secret_file=put_secret(missing)) as store:  # a new one, on purpose
        assert await store.secret.load() == SECRET


@proves("X14")
async def test_the_doctor_says_where_the_secret_is_and_what_to_set(tmp_path: Path, postgres_url: str) -> None:
    person = CommandLine(tmp_path)
    shared = {"FINGERPOST_STORE__URL": postgres_url}

    async def ask(**more: str) -> str:
        done = await anyio.to_thread.run_sync(lambda: person.runs("doctor", extra={**shared, **more}))
        return " ".join(done.stdout.split())

    async with Store.open(postgres_url) as store:
        await store.secret.load()
    shown = await ask()
    assert "the database contains the secret that encrypts sign-in tokens and approval states" in shown
    assert "set store.secret_file" in shown

    async with Store.open(postgres_url, secret_file=put_secret(tmp_path / "one.secret")) as store:
        await store.secret.load()
    assert "secret" not in await ask(FINGERPOST_STORE__SECRET_FILE=str(tmp_path / "one.secret"))
    assert "store.secret_file is not set" in await ask()
    other = put_secret(tmp_path / "other.secret", bytes(32))
    assert "differs from the one" in await ask(FINGERPOST_STORE__SECRET_FILE=str(other))


TOKEN = b'{"tokens": {"access_token": "at-7Kq29", "refresh_token": "rt-55Lm"}}'


def read_rows(folder: Path) -> dict[str, bytes]:
    with sqlite3.connect(folder / "store.db") as database:
        rows = dict(database.execute("SELECT server, data FROM tokens").fetchall())
    database.close()
    return rows


def write_row(folder: Path, server: str, data: bytes) -> None:
    with sqlite3.connect(folder / "store.db") as database:
        database.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, '2026-11-01 00:00:00')", (server, data))
    database.close()


def list_files_with(folder: Path, text: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if text in file.read_bytes()]


async def put_token(folder: Path, server: str = "linear") -> None:
    async with Store.open(f"sqlite:///{folder}/store.db") as store:
        await store.tokens.put(server, TOKEN)


async def get_token(folder: Path, server: str = "linear", secret: str | None = None) -> bytes | None:
    async with Store.open(f"sqlite:///{folder}/store.db", secret=secret) as store:
        return await store.tokens.get(server)


@proves("M1")
async def test_sign_in_tokens_are_encrypted_and_useless_without_the_secret(tmp_path: Path) -> None:
    await put_token(tmp_path)
    assert await get_token(tmp_path) == TOKEN
    assert list_files_with(tmp_path, b"at-7Kq29") == []
    write_row(tmp_path, "other", read_rows(tmp_path)["linear"])  # a token is bound to its server
    with pytest.raises(ConfigError, match="the sign-in to other cannot be decrypted"):
        await get_token(tmp_path, "other")
    (tmp_path / "store.secret").unlink()
    with pytest.raises(ConfigError, match="the sign-in to linear cannot be decrypted") as refused:
        await get_token(tmp_path)
    assert "fingerpost servers login linear" in (refused.value.hint or "")


@proves("M1")
async def test_a_token_of_a_version_without_encryption_is_encrypted_when_it_is_read(tmp_path: Path) -> None:
    await put_token(tmp_path)
    write_row(tmp_path, "linear", TOKEN)
    assert await get_token(tmp_path) == TOKEN
    assert b"at-7Kq29" not in read_rows(tmp_path)["linear"]
    assert await get_token(tmp_path) == TOKEN


@pytest.mark.process
@proves("M1")
async def test_rekey_replaces_the_secret_of_all_tokens(tmp_path: Path) -> None:
    await put_token(tmp_path)
    secret = tmp_path / "store.secret"
    former = put_secret(tmp_path / "former", secret.read_bytes())
    person = CommandLine(tmp_path)
    extra = {"FINGERPOST_STORE__URL": f"sqlite:///{tmp_path}/store.db"}

    async def rekey(*options: str, **more: str) -> tuple[int, str]:
        done = await anyio.to_thread.run_sync(
            lambda: person.runs("store", "rekey", *options, extra={**extra, **more})
        )
        return done.returncode, done.stdout + done.stderr

    async with Store.open(extra["FINGERPOST_STORE__URL"]) as store:
        await store.instances.renew_lease("ins_1")
        code, text = await rekey("--yes")
        assert (code, "the store is in use (1 instance)" in text) == (2, True), text
        await store.instances.end("ins_1")
    code, text = await rekey("--yes")
    assert (code, "1 sign-in encrypted with" in text) == (0, True), text
    assert secret.read_bytes() != former.read_bytes()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert await get_token(tmp_path) == TOKEN

    own = {"FINGERPOST_STORE__SECRET": "a secret of thirty-two characters"}
    code, text = await rekey("--yes", **own)
    assert (code, "only a secret in a file can be replaced" in text) == (2, True), text
    code, text = await rekey("--old-secret-file", str(secret), **own)
    assert (code, "1 sign-in encrypted with store.secret" in text) == (0, True), text
    assert await get_token(tmp_path, secret=own["FINGERPOST_STORE__SECRET"]) == TOKEN
    with pytest.raises(ConfigError):
        await get_token(tmp_path)


@proves("M1")
async def test_rekey_that_was_killed_before_its_last_step_loses_nothing(tmp_path: Path) -> None:
    await put_token(tmp_path)
    secret, draft = tmp_path / "store.secret", tmp_path / "store.secret.next"
    former = secret.read_bytes()
    async with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        await store.secret.replace()
    shutil.move(secret, draft)  # as after a kill between the database and the file
    put_secret(secret, former)
    assert await get_token(tmp_path) == TOKEN
    assert not draft.exists()

    put_secret(draft, bytes(32))  # as after a kill before the database
    assert await get_token(tmp_path) == TOKEN
