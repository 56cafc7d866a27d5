"""`latency_proxy.py PORT URL SECONDS`: passes connections on, and makes every request wait.

What a client says after it was answered, and first of all, is held back for so long: one wait for
each request, and one for each "100 Continue" that a client asks for, as on a long line.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing, suppress
from urllib.parse import urlsplit

BLOCK = 1024 * 1024


class Line:
    """Between one client and the server."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self._host, self._port, self._seconds = host, port, seconds
        self._is_answered = True

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(self._host, self._port, limit=BLOCK)
        with closing(writer), closing(server), suppress(ConnectionError):
            back = asyncio.create_task(self._answers(answers, writer))
            await self._requests(reader, server)
            back.cancel()

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while data := await reader.read(BLOCK):
            if self._is_answered:
                self._is_answered = False
                await asyncio.sleep(self._seconds)
            server.write(data)
            await server.drain()

    async def _answers(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await answers.read(BLOCK):
            self._is_answered = True
            writer.write(data)
            await writer.drain()
        writer.close()


async def serve(port: int, url: str, seconds: float) -> None:
    parts = urlsplit(url)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Line(str(parts.hostname), parts.port or 80, seconds).connect(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", port, limit=BLOCK, backlog=512)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
