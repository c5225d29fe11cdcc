"""Splits to baseline Plan: every op that llama.cpp issues, in its order.

Per phase: the host writes the user inputs, then each split runs.  A host split is host work.  A
device split first receives its inputs.  A user input is copied on the per-thread default stream
between a sync of the compute stream (its device copy may still be read) and a sync of the
per-thread stream (the compute stream is not ordered with it).  An input that the host computed
takes three syncs: of the destination, again after the async copy was declined, and after the
blocking copy that replaces it.  Then its kernels are launched.  Where the phase has logits, they
are copied back on the compute stream, five getters sync before one row is read, and the host
samples.  The host backend's own sync is no op.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.graph import HOST, Graph, Node, Tensor
from syncscope.sched_core.records import Access, Buffer, Kind, Op, Plan, Stream
from syncscope.sched_core.split import Split, split_graph

GETTERS = 5
"""Output getters that a sampled token goes through; each syncs (sampled, probs, logits,
candidates, raw row)."""

PHASES_WITH_LOGITS = ("prompt_last", "decode")


def compute_stream(device: int) -> str:
    """Name of the non-blocking stream that runs a device's kernels."""
    return f"dev{device}.compute"


def copy_stream(device: int) -> str:
    """Name of the per-thread default stream of a device, which carries the baseline's copies."""
    return f"dev{device}.per_thread"


def device_copy(tensor: str, device: int) -> str:
    """Name of the duplicate of a host tensor on a device."""
    return f"{tensor}.dev{device}"


def host_copy(tensor: str) -> str:
    """Name of the host's copy of a device tensor."""
    return f"{tensor}.host"


def plan_baseline(graphs: Mapping[str, Graph]) -> Plan:
    """Plan every phase as llama.cpp would run it, without a captured graph.

    Parameters
    ----------
    graphs : mapping of str to Graph
        The model, per phase.

    Raises
    ------
    UsageError
        When a split needs a tensor of another device than the host.
    """
    splits = {phase: split_graph(graph) for phase, graph in graphs.items()}
    devices = sorted({each.device for run in splits.values() for each in run} - {HOST})
    buffers = _buffers(graphs, splits)
    nbytes = {each.name: each.nbytes for each in buffers}
    return Plan(
        buffers=buffers,
        streams=tuple(
            stream
            for device in devices
            for stream in (
                Stream(compute_stream(device), device, "nonblocking"),
                Stream(copy_stream(device), device, "per_thread_default"),
            )
        ),
        events=(),
        phases={
            phase: tuple(_phase_ops(phase, graph, splits[phase], nbytes))
            for phase, graph in graphs.items()
        },
    )


def _buffers(
    graphs: Mapping[str, Graph], splits: Mapping[str, tuple[Split, ...]]
) -> tuple[Buffer, ...]:
    """Every tensor, and its copy on each device that a split needs it on, at its largest size."""
    found: dict[str, Buffer] = {}

    def add(name: str, tensor: Tensor, memory: str, device: int) -> None:
        before = found[name].nbytes if name in found else 0
        found[name] = Buffer(name, max(before, tensor.nbytes), memory, device)

    for phase, graph in graphs.items():
        for tensor in graph.tensors:
            add(tensor.name, tensor, _memory(tensor), tensor.device)
        for split in splits[phase]:
            for name in split.inputs:
                tensor = graph.tensor(name)
                if tensor.device != HOST:
                    raise UsageError(
                        f"{phase}: device {split.device} needs {name} of device {tensor.device}; "
                        "only inputs from the host can be planned so far"
                    )
                add(device_copy(name, split.device), tensor, "device", split.device)
        output = graph.tensor(graph.output)
        if output.device != HOST:
            add(host_copy(output.name), output, "pinned", HOST)
    return tuple(found.values())


def _memory(tensor: Tensor) -> str:
    """Transfer sources and targets are pinned, what only the host uses is pageable."""
    if tensor.device != HOST:
        return "device"
    return "pageable" if tensor.role in ("weight", "state") else "pinned"


def _phase_ops(
    phase: str, graph: Graph, splits: Iterable[Split], nbytes: Mapping[str, int]
) -> Iterator[Op]:
    for node in graph.writers:
        yield _node_op(node, graph, nbytes)
    last = HOST
    for split in splits:
        if split.device != HOST:
            last = split.device
            for name in split.inputs:
                yield from _input_ops(graph.tensor(name), split.device, nbytes)
        for node in split.nodes:
            yield _node_op(node, graph, nbytes)
    if phase in PHASES_WITH_LOGITS:
        yield from _output_ops(graph, last, nbytes)


def _span(buffer: str, write: bool, tensor: Tensor, nbytes: Mapping[str, int]) -> Access:
    """Access all of a tensor, which in this phase may be smaller than its buffer."""
    whole = tensor.nbytes == nbytes[buffer]
    return Access(buffer, write, 0, -1 if whole else tensor.nbytes)


def _node_op(node: Node, graph: Graph, nbytes: Mapping[str, int]) -> Op:
    accesses = []
    for use in node.uses:
        tensor = graph.tensor(use.tensor)
        buffer = use.tensor
        if tensor.device != node.device:
            buffer = (
                host_copy(use.tensor)
                if node.device == HOST
                else device_copy(use.tensor, node.device)
            )
        if (use.begin, use.end) == (0, -1):
            accesses.append(_span(buffer, use.write, tensor, nbytes))
        else:
            end = tensor.nbytes if use.end < 0 else use.end
            accesses.append(Access(buffer, use.write, use.begin, end))
    kind = Kind.HOST if node.device == HOST else Kind.LAUNCH
    stream = "" if node.device == HOST else compute_stream(node.device)
    return Op(node.site, kind, stream, accesses=tuple(accesses), kernel=node.kernel)


def _input_ops(tensor: Tensor, device: int, nbytes: Mapping[str, int]) -> Iterator[Op]:
    suffix = "" if device == 0 else f".dev{device}"
    site = f"input.{tensor.name}{suffix}"
    compute, copies = compute_stream(device), copy_stream(device)
    if tensor.role == "input":
        yield Op(f"{site}.sync_before", Kind.SYNC, compute)
    else:
        yield Op(f"{site}.sync_dst", Kind.SYNC, compute)
        yield Op(f"{site}.sync_dst_again", Kind.SYNC, compute)
    yield Op(
        f"{site}.copy",
        Kind.COPY,
        copies,
        accesses=(
            _span(tensor.name, False, tensor, nbytes),
            _span(device_copy(tensor.name, device), True, tensor, nbytes),
        ),
    )
    yield Op(f"{site}.sync_after", Kind.SYNC, copies)


def _output_ops(graph: Graph, device: int, nbytes: Mapping[str, int]) -> Iterator[Op]:
    output = graph.tensor(graph.output)
    yield Op(
        "logits.copy",
        Kind.COPY,
        compute_stream(device),
        accesses=(
            _span(output.name, False, output, nbytes),
            _span(host_copy(output.name), True, output, nbytes),
        ),
    )
    for i in range(GETTERS):
        yield Op(f"logits.get{i}.sync", Kind.SYNC, compute_stream(device))
    for node in graph.samplers:
        yield _node_op(node, graph, nbytes)
