"""The process that matches a regular expression against texts. It may be killed at any time."""

import re
import resource
import sys


def find_matching_lines(pattern: "re.Pattern[str]", text: str, limit: int) -> "list[int]":
    """Return the numbers of the matching lines, from 0."""
    found: list[int] = []
    for number, line in enumerate(text.split("\n")):
        if pattern.search(line.rstrip("\r")):
            found.append(number)
            if len(found) >= limit:
                break
    return found


def _read_next() -> "bytes | None":
    length = sys.stdin.buffer.readline()
    return sys.stdin.buffer.read(int(length)) if length else None


def main() -> None:
    header, _, expression = (_read_next() or b"1 1\n").partition(b"\n")
    seconds, match_case = map(int, header.split())
    # The parent may have died, and a running match cannot notice that: the CPU limit ends the process.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    pattern = re.compile(expression.decode("utf-8", "surrogatepass"), 0 if match_case else re.IGNORECASE)
    while (given := _read_next()) is not None:
        most, _, text = given.partition(b"\n")
        found = find_matching_lines(pattern, text.decode("utf-8", "surrogatepass"), int(most))
        sys.stdout.buffer.write(" ".join(map(str, found)).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
