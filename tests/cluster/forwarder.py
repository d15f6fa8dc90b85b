"""Carries TCP connections from an inherited listening socket to an address inside the cluster's network.

A script, with the standard library only: `forwarder.py LISTENER_FD HOST PORT`. Needed only where the network
namespace was made without root; there no pair of interfaces can join it to the host.
"""

import asyncio
import socket
import sys

CHUNK_BYTES = 1 << 18


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def _serve(fd: int, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        inner_writer.close()
        writer.close()

    server = await asyncio.start_server(connected, sock=socket.socket(fileno=fd))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
