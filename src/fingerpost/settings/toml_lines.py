"""On which line each key of a TOML file stands.

`tomllib` gives the values but not the places, so this reads the same text once
more and notes only places. It runs after `tomllib` accepted the text, hence it
never has to judge: what looks like a key is one.
"""

from __future__ import annotations

import re
import tomllib

from fingerpost.settings.problems import KeyPath

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r"""
      \"{3}(?:[^"\\]|\\.|"{1,2}(?!"))*\"{3,5}
    | '{3}(?:[^']|'{1,2}(?!'))*'{3,5}
    | "(?:[^"\\\n]|\\.)*"
    | '[^'\n]*'
    """,
    re.VERBOSE | re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")


def find_toml_lines(text: str) -> dict[KeyPath, int]:
    """Key path → line, for every table, key and array element of a valid TOML text."""
    return _TomlScanner(text).find_lines()


class _TomlScanner:
    """One pass over the text: `at` is where we are, `found` what we saw."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[KeyPath, int] = {}
        self.rows: dict[KeyPath, int] = {}  # of each array of tables: the newest index
        self._counted = 0
        self._line = 1

    def find_lines(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self.text.startswith("[", self.at):
                table = self._read_header()
            else:
                self._read_pair(table)
            self._skip(_BLANK)
        return self.found

    def _read_header(self) -> KeyPath:
        """`[a.b]` or `[[a.b]]`; inside an array of tables the path goes on in its newest row."""
        row = self.text.startswith("[[", self.at)
        line = self._get_line()
        self.at += 2 if row else 1
        names = self._read_key()
        self.at += 2 if row else 1
        path: KeyPath = ()
        for name in names[:-1]:
            path = self._get_newest_path((*path, name))
            self.found.setdefault(path, line)
        path = (*path, names[-1])
        if row:
            self.rows[path] = self.rows.get(path, -1) + 1
            self.found.setdefault(path, line)
            path = (*path, self.rows[path])
        self.found[path] = line
        return path

    def _get_newest_path(self, path: KeyPath) -> KeyPath:
        return (*path, self.rows[path]) if path in self.rows else path

    def _read_pair(self, table: KeyPath) -> None:
        """`a.b = value`"""
        line = self._get_line()
        path = table
        for name in self._read_key():
            path = (*path, name)
            self.found.setdefault(path, line)
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        self._read_value(path)

    def _read_key(self) -> list[str]:
        """A dotted key, and the space around it."""
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            if quoted := _STRING.match(self.text, self.at):
                names.append(str(tomllib.loads(f"key = {quoted[0]}")["key"]))
                self.at = quoted.end()
            else:
                names.append(self._skip(_BARE_KEY))
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _read_value(self, path: KeyPath) -> None:
        first = self.text[self.at : self.at + 1]
        if first == "[":
            self._read_array(path)
        elif first == "{":
            self._read_inline_table(path)
        elif string := _STRING.match(self.text, self.at):
            self.at = string.end()
        else:
            self._skip(_SCALAR)

    def _read_array(self, path: KeyPath) -> None:
        self.at += 1
        self._skip(_BLANK)
        index = 0
        while not self.text.startswith("]", self.at):
            self.found[(*path, index)] = self._get_line()
            self._read_value((*path, index))
            index += 1
            self._skip_separator()
        self.at += 1

    def _read_inline_table(self, path: KeyPath) -> None:
        self.at += 1
        self._skip(_BLANK)
        while not self.text.startswith("}", self.at):
            self._read_pair(path)
            self._skip_separator()
        self.at += 1

    def _skip_separator(self) -> None:
        self._skip(_BLANK)
        if self.text.startswith(",", self.at):
            self.at += 1
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match[0]

    def _get_line(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line
