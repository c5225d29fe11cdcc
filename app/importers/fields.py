"""Typed values out of parsed JSON that nobody vouches for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]

_ABSENT = object()


class BadField(Exception):
    """What is wrong with a value; whoever knows the place adds it."""


def show(value: object) -> str:
    """Return a value of a file as short, printable text on one line."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = ascii(value[:60]) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def get(record: Record, key: str, kind: type, what: str, default: Any = _ABSENT) -> Any:
    """Return a value of exactly that type, or the default where the key is absent."""
    if key not in record and default is not _ABSENT:
        return default
    if key not in record:
        raise BadField(f"lacks {key}")
    if type(record[key]) is not kind:
        raise BadField(f"{key} is {show(record[key])}, not {what}")
    return record[key]


def get_text(record: Record, key: str, default: Any = _ABSENT) -> str:
    """Return a text."""
    value: str = get(record, key, str, "a text", default)
    return value


def get_number(record: Record, key: str, default: Any = _ABSENT, most: int = 1 << 62) -> int:
    """Return a whole number within ``0..most``."""
    value: int = get(record, key, int, "a whole number", default)
    if key in record and not 0 <= value <= most:
        raise BadField(f"{key} is {show(value)}, not within 0..{most}")
    return value


def get_flag(record: Record, key: str) -> bool:
    """Return true or false; false where the key is absent."""
    value: bool = get(record, key, bool, "true or false", False)
    return value


def get_list(record: Record, key: str, default: Any = _ABSENT) -> list[Any]:
    """Return a list."""
    value: list[Any] = get(record, key, list, "a list", default)
    return value


def get_object(record: Record, key: str) -> Record:
    """Return an object."""
    value: Record = get(record, key, dict, "an object")
    return value


def get_choice(record: Record, key: str, known: tuple[str, ...], default: Any = _ABSENT) -> str:
    """Return one of the known texts."""
    value = get_text(record, key, default)
    if value not in known:
        raise BadField(f"{key} is {show(value)}; known: {', '.join(known)}")
    return value


def as_object(value: object) -> Record:
    """Return a value that has to be an object."""
    if not isinstance(value, dict):
        raise BadField(f"is {show(value)}, not an object")
    return value
