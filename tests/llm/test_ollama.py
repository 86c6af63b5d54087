import asyncio

import pytest

from gateway.llm.ollama import installed_models
from tests.fakes.openai_server import FakeModels


async def test_a_running_ollama_tells_its_models() -> None:
    async with FakeModels() as server:
        server.ollama_models = ("qwen3:8b", "llama3")
        assert await installed_models(server.url) == ("qwen3:8b", "llama3")
        assert await installed_models(f"{server.url}/nothing-here") == ("qwen3:8b", "llama3")
    assert await installed_models(server.url) == ()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 500 No\r\n\r\n{}", b"HTTP/1.0 200 OK\r\n\r\nnot json", b"\xff\xfe"])
async def test_anything_else_is_no_ollama(answer: bytes) -> None:
    async def reply(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await installed_models(f"http://127.0.0.1:{port}") == ()


async def test_a_silent_server_is_not_waited_for() -> None:
    gone = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await installed_models(f"http://127.0.0.1:{port}", timeout=0.05) == ()
        await gone.wait()


async def test_nonsense_for_an_address_is_no_ollama() -> None:
    assert await installed_models("http://127.0.0.1:notaport") == ()
