"""llama2.c's stories260K and its tokenizer, from the shared data."""

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.shared import shared_path
from syncscope.kernels.registry import Model, load_model

BOS = 1
FIRST_BYTE = 3  # the token of byte 0


@dataclass(frozen=True)
class StoriesTokenizer:
    """Greedy merge by score over the pieces of a llama2.c ``tok*.bin`` file."""

    pieces: Sequence[bytes]
    scores: Sequence[float]

    def encode(self, text: str) -> list[int]:
        known = {piece: i for i, piece in enumerate(self.pieces)}
        ids = []
        for letter in (" " if text else "") + text:  # sentencepiece puts a blank in front
            piece = letter.encode()
            ids += [known[piece]] if piece in known else [FIRST_BYTE + byte for byte in piece]
        while True:
            best, at = -1e10, -1
            for i in range(len(ids) - 1):
                merged = known.get(self.pieces[ids[i]] + self.pieces[ids[i + 1]], -1)
                if merged >= 0 and self.scores[merged] > best:
                    best, at = self.scores[merged], i
            if at < 0:
                return [BOS, *ids]
            ids[at : at + 2] = [known[self.pieces[ids[at]] + self.pieces[ids[at + 1]]]]

    def decode(self, ids: Iterable[int]) -> str:
        out, previous = b"", -1
        for i in ids:
            piece = self.pieces[i]
            if FIRST_BYTE <= i < FIRST_BYTE + 256:
                piece = bytes([i - FIRST_BYTE])
            elif i <= 2:
                piece = b""
            elif previous == BOS:
                piece = piece.removeprefix(b" ")
            out += piece
            previous = i
        return out.decode("utf-8", errors="replace")


def stories_tokenizer() -> StoriesTokenizer:
    raw = shared_path("data", "models", "tok512.bin").read_bytes()
    at, pieces, scores = 4, [], []
    while at < len(raw):
        score, length = struct.unpack_from("<fi", raw, at)
        pieces.append(raw[at + 8 : at + 8 + length])
        scores.append(score)
        at += 8 + length
    return StoriesTokenizer(pieces, scores)


def stories_model() -> Model:
    path = shared_path("data", "models", "stories260K.safetensors")
    return load_model(str(path), tokenizer=stories_tokenizer())


def stories_expected() -> dict[str, Any]:
    path = shared_path("data", "models", "expected.json")
    expected: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["stories260K"]
    return expected


def tinystories_ids(tokenizer: StoriesTokenizer) -> list[int]:
    """Return the sample stories as expected.json counts them: BOS before each, concatenated."""
    text = shared_path("data", "text", "tinystories_sample.txt").read_text(encoding="utf-8")
    ids: list[int] = []
    for story in text.split("<|endoftext|>"):
        if story.strip():
            ids += tokenizer.encode(story.strip())
    return ids
