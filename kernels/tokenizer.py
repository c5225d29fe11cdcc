"""Tokenizers: text to token ids and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from syncscope.sched_core.errors import UsageError


class Tokenizer(Protocol):
    """What a model needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with the token that starts a sequence in front."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids."""
        ...


@dataclass(frozen=True, slots=True)
class ByteTokenizer:
    """One token per byte of UTF-8; `bos` starts a sequence and has no text."""

    bos: int = 0

    def encode(self, text: str) -> list[int]:
        """Return `bos` and the bytes of the text."""
        return [self.bos, *text.encode("utf-8", errors="surrogateescape")]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; bytes that are no UTF-8, and ids over 255, show as U+FFFD."""
        # 255 occurs in no UTF-8 text, so it decodes to the replacement character.
        values = (255 if i > 255 else i for i in ids if i != self.bos)
        return bytes(values).decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class NumberTokenizer:
    """Token ids as decimal numbers, for a model whose vocabulary is not known."""

    bos: int
    n_vocab: int

    def encode(self, text: str) -> list[int]:
        """Return `bos` and the ids written in the text; UsageError if it holds anything else."""
        ids = [self.bos]
        for word in text.replace(",", " ").split():
            if not (word.isascii() and word.isdigit()) or int(word[:9]) >= self.n_vocab:
                raise UsageError(
                    f"prompt {word!r}: this model has no tokenizer here; write the prompt as "
                    f"token ids in 0..{self.n_vocab - 1}"
                )
            ids.append(int(word))
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the ids separated by blanks."""
        return " ".join(str(i) for i in ids)
