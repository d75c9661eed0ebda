"""A program (`python -I -S confine.py PLAN PROGRAM …`) that confines itself, then runs a command."""

import contextlib
import ctypes
import json
import os
import signal
import struct
import sys

TYPE_CHECKING = False  # importing `typing` is slow
if TYPE_CHECKING:
    from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_FILE_ACCESS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ_ACCESS = _EXECUTE | _READ_FILE | _READ_DIR

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_FIRST_DROPPED_CAPABILITY = 5  # lower ones concern owners and modes of files and are kept
_FAILED_STATUS = 125
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")


def get_landlock_version() -> int:
    """Return the kernel's Landlock version, or 0 if there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, 0, 1)))


def _check_result(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _restrict_files(reads: "list[str]", writes: "list[str]", *, network: bool) -> None:
    version = get_landlock_version()
    files = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    tcp = 0 if network or version < 4 else 3  # bind and connect
    scopes = 0 if version < 6 else 3  # abstract sockets and signals
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("=QQQ", files, tcp, scopes)[:size]
    ruleset = _check_result(_LIBC.syscall(_CREATE_RULESET, attributes, size, 0), "landlock_create_ruleset")
    everything = files & ~_MAKE_CHAR & ~_MAKE_BLOCK
    for paths, access in ((reads, _READ_ACCESS), (writes, everything)):
        for path in paths:
            _allow_path(ruleset, path, access & files)
    for name in _DEVICES:
        _allow_path(ruleset, f"/dev/{name}", (_READ_ACCESS | _WRITE_FILE | _TRUNCATE | _IOCTL) & files)
    _check_result(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check_result(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it does not exist or is not accessible
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{opened}"):  # noqa: PTH112 - faster start
            access &= _FILE_ACCESS
        beneath = struct.pack("=Qi", access, opened)
        _check_result(_LIBC.syscall(_ADD_RULE, ruleset, 1, beneath, 0), f"landlock_add_rule {path}")
    finally:
        os.close(opened)


def _mount_path(source: str, target: str, kind: "str | None", flags: int, data: str = "") -> None:
    given = (source.encode(), os.fsencode(target), None if kind is None else kind.encode())
    done = _LIBC.mount(*given, ctypes.c_ulong(flags), data.encode() or None)
    _check_result(done, f"mount {target}")


def _enter_namespaces(plan: "dict[str, Any]") -> None:
    """Enter new mount, process and IPC namespaces, and a network namespace unless it is allowed."""
    user, group = os.geteuid(), os.getegid()
    wanted = _NEWNS | _NEWPID | _NEWIPC | (0 if plan["network"] else _NEWNET)
    _check_result(_LIBC.unshare(wanted | (_NEWUSER if user else 0)), "unshare")
    if user:
        maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, line in maps.items():
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - faster start
                file.write(line)
    if not plan["network"]:
        _start_loopback()
    _mount_path("none", "/", None, _MS_REC | _MS_PRIVATE)
    _cover_folders(plan["covered"], plan["kept"], plan["masked"])


def _start_loopback() -> None:
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control_socket:
        up_and_running = 0x1 | 0x40
        fcntl.ioctl(control_socket, 0x8914, struct.pack("16sh22x", b"lo", up_and_running))


def _cover_folders(covered: "list[str]", kept: "list[str]", masked: "list[str]") -> None:
    """Mount empty folders over shared ones, restore what is needed, and hide Fingerpost's own files."""
    held: list[tuple[str, int]] = []
    for path in kept:
        with contextlib.suppress(OSError):
            held.append((path, os.open(path, os.O_PATH | os.O_CLOEXEC)))
    for path in covered:
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - faster start
            _mount_path("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=2g")
    for path, opened in held:
        source = f"/proc/self/fd/{opened}"
        if os.path.isdir(source):  # noqa: PTH112
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        _mount_path(source, path, None, _MS_BIND | _MS_REC)
        os.close(opened)
    for path in masked:
        if os.path.isdir(path):  # noqa: PTH112
            _mount_path("tmpfs", path, "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "size=4k")
        elif os.path.exists(path):  # noqa: PTH110
            _mount_path("/dev/null", path, None, _MS_BIND)


def _drop_rights() -> None:
    for number in range(_FIRST_DROPPED_CAPABILITY, 64):
        _LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)


def _execute_command(words: "list[str]") -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(words[0], words)  # noqa: S606 - the purpose of this program
    except OSError as error:
        sys.stderr.write(f"{words[0]} could not be started: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(126)


def _exit_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _wait_for(child: int) -> int:
    """Return the exit status of the child. Other children are reaped."""
    while True:
        ended, status = os.wait()
        if ended == child:
            return status


def main() -> None:
    plan: dict[str, Any] = json.loads(sys.argv[1])
    words = sys.argv[2:]
    reads: list[str] = plan["reads"]
    writes: list[str] = plan["writes"]
    network = bool(plan["network"])
    where = os.stat(".")  # noqa: PTH116
    if not plan["namespaces"]:
        _restrict_files(reads, writes, network=network)
        _drop_rights()
        _execute_command(words)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the command in the same process group handles them
    _enter_namespaces(plan)
    os.chdir(str(plan["folder"]))
    here = os.stat(".")  # noqa: PTH116
    if (here.st_dev, here.st_ino) != (where.st_dev, where.st_ino):
        raise OSError(0, "the folder was moved meanwhile")
    read_end, write_end = os.pipe()
    if (first := os.fork()) != 0:
        os.close(write_end)
        ended = _wait_for(first)
        data = os.read(read_end, 4)
        _exit_like(struct.unpack("=i", data)[0] if len(data) == 4 else ended)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _mount_path("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _restrict_files(reads, writes, network=True)  # without network access, its own network namespace is empty
    _drop_rights()
    if (command := os.fork()) == 0:
        _execute_command(words)
    os.write(write_end, struct.pack("=i", _wait_for(command)))
    os._exit(0)  # the kernel then ends all remaining processes of the namespace


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.stderr.write(f"the sandbox could not be set up: {error.strerror or error}\n")
        sys.stderr.flush()
        os._exit(_FAILED_STATUS)
