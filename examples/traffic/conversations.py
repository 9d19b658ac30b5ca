"""Conversations of random words over long documents, so that no real text is needed. Pure: the random source is given.

A conversation opens with one of a few documents, as several people do who ask about the same file; each turn adds the
answer and a new question, so prompts grow and their beginnings repeat. That is what a prefix cache lives on.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.traffic.arrivals import STRATA, Shape, prompt_tokens, stratified, turns

WORDS = (Path(__file__).parent / "words.txt").read_text().split()
"""Common English words, each about one token in most vocabularies."""

QUESTION_WORDS = 12
DOCUMENT_BIAS = 0.5
"""Chance that a conversation is about a document another one has already opened."""


def passage(words: int, source: random.Random) -> str:
    """That many random words in sentences."""
    text = [source.choice(WORDS) for _ in range(words)]
    for i in range(9, words, 10):
        text[i] += "."
    return " ".join(text)


@dataclass
class Conversation:
    """One dialogue: its id, the messages so far, and how many turns are left. One request at a time."""

    id: str
    messages: list[dict[str, str]]
    turns_left: int
    busy: bool = False
    last_used: float = 0.0

    def request(self, model: str, answer_tokens: int, stream: bool) -> dict[str, Any]:
        """The body of its next request."""
        body: dict[str, Any] = {
            "model": model,
            "messages": self.messages,
            "max_tokens": answer_tokens,
            "temperature": 0,
            "stream": stream,
        }
        return body

    def answered(self, text: str, source: random.Random) -> None:
        """Add the answer and the next question."""
        self.turns_left -= 1
        self.messages = [
            *self.messages,
            {"role": "assistant", "content": text},
            {"role": "user", "content": passage(QUESTION_WORDS, source)},
        ]


@dataclass
class Site:
    """All conversations of a site with `open_at_once` of them alive; picks who speaks at an arrival."""

    shape: Shape
    source: random.Random
    open_at_once: int = 8
    documents: list[str] = field(default_factory=list)
    alive: list[Conversation] = field(default_factory=list)
    opened: int = 0

    def __post_init__(self) -> None:
        """Lengths are drawn by themselves, so that they do not depend on what else is drawn."""
        self._quantiles = stratified(random.Random(self.source.random()))

    def _document(self) -> str:
        if self.documents and self.source.random() < DOCUMENT_BIAS:
            return self.source.choice(self.documents)
        text = passage(max(1, prompt_tokens(self.shape, next(self._quantiles)) - QUESTION_WORDS), self.source)
        self.documents = [*self.documents, text][-STRATA:]
        return text

    def _opened(self) -> Conversation:
        self.opened += 1
        text = f"{self._document()}\n\n{passage(QUESTION_WORDS, self.source)}"
        identity = f"c{self.source.getrandbits(48):012x}"
        return Conversation(identity, [{"role": "user", "content": text}], turns(self.shape, self.source))

    def speaker(self, now: float) -> Conversation:
        """The conversation the arrival at `now` belongs to: the one idle longest, or a new one while there is room.

        With everyone busy a new one opens all the same: arrivals never wait for answers.
        """
        self.alive = [c for c in self.alive if c.turns_left > 0 or c.busy]
        idle = [c for c in self.alive if not c.busy]
        if idle and len(self.alive) >= self.open_at_once:
            chosen = min(idle, key=lambda c: c.last_used)
        else:
            chosen = self._opened()
            self.alive.append(chosen)
        chosen.busy, chosen.last_used = True, now
        return chosen
