"""A program that passes its standard streams on to a fake in the process of the test: `imsg_program.py PORT`."""

import os
import socket
import sys
import threading


def main(port: int) -> None:
    connection = socket.create_connection(("127.0.0.1", port))

    def send() -> None:
        while chunk := os.read(0, 65_536):
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    while chunk := connection.recv(65_536):
        view = memoryview(chunk)
        while view:
            view = view[os.write(1, view) :]
    os._exit(0)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except OSError as exc:
        sys.stderr.write(f"imsg: {exc}\n")
        os._exit(1)
