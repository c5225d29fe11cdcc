"""Random sequences in the format of conformance files."""

from __future__ import annotations

import random
from typing import Any

STREAM_SETS = (
    {"s": ("nonblocking", 0), "t": ("nonblocking", 0)},
    {"s": ("blocking", 0), "t": ("blocking", 0), "z": ("legacy_default", 0)},
    {"s": ("blocking", 0), "t": ("nonblocking", 0), "z": ("legacy_default", 0)},
    {"s": ("per_thread_default", 0), "t": ("blocking", 0), "z": ("legacy_default", 0)},
    {"s": ("blocking", 0), "t": ("blocking", 1), "z": ("legacy_default", 1)},
)
SYNCS = ("stream_sync", "device_sync", "event_sync", "stream_wait_event", "stream_query")
WORK = ("kernel", "kernel", "pdl", "copy", "copy", "memset", "host", "graph", "ext")


def random_ops(rng: random.Random, count: int, threads: int) -> tuple[dict[str, Any], list[Any]]:
    """Return the declarations of a case and `count` ops on them."""
    streams = rng.choice(STREAM_SETS)
    memory = {"D": "device", "E": "device", "P": "pinned", "Q": "pageable", "M": "managed"}
    chosen = rng.sample(sorted(memory), 3)
    nbytes = 12
    case: dict[str, Any] = {
        "streams": {name: {"kind": kind, "device": d} for name, (kind, d) in streams.items()},
        "buffers": {name: {"kind": memory[name], "bytes": nbytes} for name in chosen},
    }
    tokens: list[str] = []

    def stream() -> str:
        return rng.choice(sorted(streams))

    def spans(length: int | None = None) -> list[Any]:
        return [span(length) for _ in range(rng.randint(0, 2))]

    def span(length: int | None = None) -> Any:
        name = rng.choice(chosen)
        if rng.random() < 0.5:
            return name
        begin = rng.randrange(0, nbytes, 4)
        return {"buf": name, "off": begin, "len": rng.randrange(4, nbytes - begin + 1, 4)}

    def work() -> dict[str, Any]:
        kind = rng.choice(WORK)
        uses = {"reads": spans(), "writes": spans()}
        if kind in ("kernel", "graph"):
            op = "graph_launch" if kind == "graph" else "kernel"
            return {"op": op, "stream": stream(), **uses}
        if kind == "pdl":
            wait = {"pdl": True, "grid_dependency_sync": rng.random() < 0.3}
            return {"op": "kernel", "stream": stream(), **uses, **wait}
        if kind == "copy":
            ends = {"src": span(), "dst": span()}
            if rng.random() < 0.5:
                return {"op": "memcpy", **ends}
            return {"op": "memcpy_async", "stream": stream(), **ends}
        if kind == "memset":
            if rng.random() < 0.5:
                return {"op": "memset", "dst": span()}
            return {"op": "memset_async", "stream": stream(), "dst": span()}
        if kind == "ext":
            if tokens:
                return {"op": "ext_wait", "token": tokens.pop()}
            tokens.append("m")
            return {"op": "ext_begin", "token": "m", **uses}
        return {"op": "host_read", **uses}

    def sync() -> dict[str, Any]:
        kind = rng.choice(SYNCS)
        event = rng.choice(["e", "f"])
        if kind == "device_sync":
            return {"op": kind, "device": rng.choice([0, 0, 1])}
        if kind == "event_sync":
            return {"op": kind, "event": event}
        if kind == "stream_wait_event":
            return {"op": kind, "stream": stream(), "event": event}
        if kind == "stream_query":
            return {"op": kind, "stream": stream(), "result": "done"}
        return {"op": kind, "stream": stream()}

    ops = []
    for _ in range(count):
        draw = rng.random()
        if draw < 0.6:
            op = work()
        elif draw < 0.75:
            op = {"op": "event_record", "stream": stream(), "event": rng.choice(["e", "f"])}
        elif draw < 0.77:
            op = {"op": "event_create", "event": rng.choice(["e", "f"])}
        else:
            op = sync()
        if threads > 1:
            op["thread"] = rng.randrange(threads)
        ops.append(op)
    return case, ops
