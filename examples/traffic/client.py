"""One request to an OpenAI-compatible server, read to its end, and what a customer would say of it. Never retries."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True)
class Answer:
    """`failure` is None for a good answer, else a short kind with `detail`; `ttft_s` is None where nothing came."""

    text: str = ""
    ttft_s: float | None = None
    failure: str | None = None
    detail: str = ""


def _content(event: dict[str, Any]) -> str:
    return "".join(choice.get("delta", {}).get("content") or "" for choice in event.get("choices", []))


async def _read_stream(response: aiohttp.ClientResponse, begun: float) -> Answer:
    parts: list[str] = []
    ttft: float | None = None
    done = False
    async for raw in response.content:
        line = raw.decode("utf-8", "replace").strip()
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            done = True
            continue
        event = json.loads(data)
        if "error" in event:
            return Answer("".join(parts), ttft, "StreamError", str(event["error"])[:200])
        if text := _content(event):
            ttft = ttft if ttft is not None else time.monotonic() - begun
            parts.append(text)
    if not done:
        return Answer("".join(parts), ttft, "StreamCut", "the stream ended without [DONE]")
    return Answer("".join(parts), ttft, None if parts else "Empty")


async def ask(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], conversation: str, *, last: bool = False
) -> Answer:
    """Send one request and read its answer; every way to fail becomes an `Answer` with a failure.

    `last`: its connection is closed afterwards.
    """
    begun = time.monotonic()
    headers = {"x-conversation-id": conversation, **({"connection": "close"} if last else {})}
    try:
        async with session.post(url, json=body, headers=headers) as response:
            if response.status != 200:
                return Answer(failure=f"HTTP{response.status}", detail=(await response.text())[:200])
            if body["stream"]:
                return await _read_stream(response, begun)
            told = await response.json()
            text = told["choices"][0]["message"]["content"] or ""
            return Answer(text, time.monotonic() - begun, None if text else "Empty")
    except TimeoutError:
        return Answer(failure="Timeout", detail=f"after {time.monotonic() - begun:.1f} s")
    except aiohttp.ClientError as e:
        return Answer(failure=type(e).__name__, detail=str(e)[:200])
    except (ValueError, KeyError, IndexError) as e:
        return Answer(failure="Malformed", detail=f"{type(e).__name__}: {e}"[:200])
    except asyncio.CancelledError:
        # Still open when the generator's grace was over: an answer that never came, so it counts as failed.
        return Answer(failure="Abandoned", detail=f"after {time.monotonic() - begun:.1f} s")
