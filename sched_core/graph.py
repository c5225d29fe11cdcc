"""The model graph: what is computed, in which order, and which byte ranges each node touches."""

from __future__ import annotations

from dataclasses import dataclass

HOST = -1
"""The device number of the host."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named range of memory that nodes use.

    Parameters
    ----------
    name : str
    nbytes : int
    role : str
        ``weight``, ``input`` (written by the host before each step), ``state`` (lives across
        steps: token list, KV cache), ``activation`` or ``output``.
    device : int
        Where it lives; -1 is the host.
    """

    name: str
    nbytes: int
    role: str
    device: int


@dataclass(frozen=True, slots=True)
class Use:
    """One kernel argument: bytes of a tensor, read or written.  ``end`` -1: to its end."""

    tensor: str
    write: bool
    begin: int = 0
    end: int = -1


@dataclass(frozen=True, slots=True)
class Node:
    """One kernel of the model.

    Parameters
    ----------
    site : str
        Dotted name, unique in the graph.
    kernel : str
        Name of the kernel instance, such as ``argmax(V=512)``.
    uses : tuple of Use
        In the order of the kernel's arguments.
    device : int
        Where it runs; -1 is the host.
    """

    site: str
    kernel: str
    uses: tuple[Use, ...]
    device: int


@dataclass(frozen=True, slots=True)
class Graph:
    """One phase of a model.

    Parameters
    ----------
    tensors : tuple of Tensor
    writers : tuple of Node
        Host nodes, one per user input, that write it before the step.
    nodes : tuple of Node
        The model, in execution order; consecutive nodes of one device become a split.
    output : str
        The tensor that goes back to the host.
    samplers : tuple of Node
        Host nodes that turn the output into the next token: the first reads `output`
        and can as well run on the output's device; the rest run on the host.
    """

    tensors: tuple[Tensor, ...]
    writers: tuple[Node, ...]
    nodes: tuple[Node, ...]
    output: str
    samplers: tuple[Node, ...]

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of that name; KeyError if there is none."""
        for record in self.tensors:
            if record.name == name:
                return record
        raise KeyError(name)
