"""Stands for one command: passes all its input to the fork server, and ends as the command ends.

Run: `python -I -S launch.py ADDRESS PROGRAM ARGUMENT…`. Killing this process kills the command: the fork
server sees the connection break. Only builtin modules are loaded: the rest takes three times as long to load
as all of this does to run.
"""

import marshal
import os
import sys

TYPE_CHECKING = False  # `typing` itself would have to be loaded
if TYPE_CHECKING:
    import signal
    import socket
else:
    import _signal as signal
    import _socket as socket

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    line = socket.socket(socket.AF_UNIX)
    line.connect(sys.argv[1])

    def pass_on(number: int, _: object) -> None:
        line.send(bytes([number]))

    working_folder = os.getcwd()  # noqa: PTH109 - loading pathlib would take longer than all of this
    _, _, program, *arguments = sys.argv
    command = {
        "program": program,
        "arguments": arguments,
        "folder": working_folder,
        "environment": dict(os.environ),
    }
    body = marshal.dumps(command)
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    line.sendmsg([len(body).to_bytes(4)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    line.sendall(body)
    for number in PASSED_ON:
        signal.signal(number, pass_on)
    for stream in (0, 1, 2):  # the command has them now: a reader must see the end when the command ends
        os.close(stream)
    end_as(line.recv(8))


def end_as(text: bytes) -> None:
    code = int.from_bytes(text, signed=True) if text else 70
    if code < 0:
        if -code in PASSED_ON:  # the others were never handled, and some cannot be
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
