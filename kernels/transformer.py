"""The model graph of a llama-style decoder.

RMSNorm, rotary positions, grouped-query attention and SwiGLU; the embedding is gathered on the
host, everything else runs on device 0.  Sizes come from the kernels' signatures.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncscope.kernels.sampling import GREEDY, Sampling
from syncscope.kernels.signature import KERNELS, Instance
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.graph import HOST, Graph, Node, Tensor, Use

DEVICE = 0
"""Where the model runs."""

USER_INPUTS = ("pos", "k_idxs", "v_idxs", "mask", "out_ids")
"""What the host writes before each step, in llama.cpp's order."""

_HOST_TENSORS = {
    "tokens": "state",
    "cursor": "state",
    "token_embd.weight": "weight",
    "embd": "activation",
    "token": "activation",
    **dict.fromkeys(USER_INPUTS, "input"),
}
"""Role of each tensor that lives on the host."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and constants of a model.

    Parameters
    ----------
    n_layers : int
    D, H, G, S, F, V : int
        Hidden size, heads, key and value heads, head size, feed-forward size, vocabulary.
    context : int
        Longest sequence.
    eps : float
        Added to the mean square in RMSNorm.
    theta : float
        Base of the rotary frequencies.
    pairing : int
        Which elements of a head rotate together: 0 halves (Hugging Face), 1 neighbours (llama2.c).
    dtype : str
        Type of the weights, ``f16`` or ``f32``.
    tied : bool
        Whether the output matrix equals the embedding table.
    """

    n_layers: int
    D: int
    H: int
    G: int
    S: int
    F: int
    V: int
    context: int
    eps: float = 1e-5
    theta: float = 10000.0
    pairing: int = 0
    dtype: str = "f16"
    tied: bool = True

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight, by the name that the graph uses."""
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.V, self.D)}
        heads, groups = self.H * self.S, self.G * self.S
        for layer in range(self.n_layers):
            shapes |= {
                f"blk.{layer}.attn_norm.weight": (self.D,),
                f"blk.{layer}.attn_q.weight": (heads, self.D),
                f"blk.{layer}.attn_k.weight": (groups, self.D),
                f"blk.{layer}.attn_v.weight": (groups, self.D),
                f"blk.{layer}.attn_output.weight": (self.D, heads),
                f"blk.{layer}.ffn_norm.weight": (self.D,),
                f"blk.{layer}.ffn_gate.weight": (self.F, self.D),
                f"blk.{layer}.ffn_up.weight": (self.F, self.D),
                f"blk.{layer}.ffn_down.weight": (self.D, self.F),
            }
        return shapes | {"output_norm.weight": (self.D,), "output.weight": (self.V, self.D)}

    @property
    def n_parameters(self) -> int:
        """Number of weights; a tied output matrix is counted once."""
        shapes = self.weight_shapes()
        if self.tied:
            del shapes["output.weight"]
        total = 0
        for shape in shapes.values():
            count = 1
            for size in shape:
                count *= size
            total += count
        return total


class _Builder:
    """Nodes of a graph, with the tensors and kernel instances that they name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.instances: dict[str, Instance] = {}

    def node(self, site: str, instance: Instance, device: int, names: str) -> Node:
        """Return a node whose arguments are the tensors in `names`, separated by blanks."""
        self.instances[instance.name] = instance
        uses = []
        for name, argument, nbytes in zip(
            names.split(), instance.kernel.arguments, instance.nbytes, strict=True
        ):
            tensor = self.tensors.setdefault(name, _tensor(name, nbytes))
            if tensor.nbytes != nbytes:
                raise ValueError(
                    f"{site}: {argument.name} of {instance.name} has {nbytes} bytes, "
                    f"tensor {name} has {tensor.nbytes}"
                )
            uses.append(Use(name, argument.write))
        return Node(site, instance.name, tuple(uses), device)


def _tensor(name: str, nbytes: int) -> Tensor:
    """Return a tensor with the role and the device that its name implies."""
    if name in _HOST_TENSORS:
        return Tensor(name, nbytes, _HOST_TENSORS[name], HOST)
    if name.endswith(".weight"):
        return Tensor(name, nbytes, "weight", DEVICE)
    if name == "tap" or "_cache." in name:
        return Tensor(name, nbytes, "state", DEVICE)
    return Tensor(name, nbytes, "output" if name == "logits" else "activation", DEVICE)


def _build(
    config: ModelConfig, n_tokens: int, n_kv: int, capacity: int, sampling: Sampling
) -> tuple[Graph, dict[str, Instance]]:
    """Return the graph and the instances by name."""
    if config.n_layers < 1:
        raise UsageError(f"a model of {config.n_layers} layers: give at least 1")
    if n_tokens > n_kv:
        raise UsageError(f"{n_tokens} tokens do not fit a KV cache of {n_kv} rows")
    b = _Builder()
    T, C, N = {"T": n_tokens}, {"C": n_kv}, {"N": capacity}
    D, V, eps = {"D": config.D}, {"V": config.V}, {"eps": config.eps}
    heads = {"H": config.H, "G": config.G, "S": config.S}
    rope = {"theta": config.theta, "pairing": config.pairing}
    f = config.dtype

    indices = KERNELS["write_kv_indices"].instance(**T, **C)
    positions = KERNELS["write_positions"].instance(**T)
    mask = KERNELS["write_mask"].instance(**T, **C)
    writers = (
        b.node("input.pos.write", positions, HOST, "cursor pos"),
        b.node("input.k_idxs.write", indices, HOST, "cursor k_idxs"),
        b.node("input.v_idxs.write", indices, HOST, "cursor v_idxs"),
        b.node("input.mask.write", mask, HOST, "cursor mask"),
        b.node("input.out_ids.write", KERNELS["write_out_ids"].instance(**T), HOST, "out_ids"),
    )

    embed = KERNELS[f"embed_rows_{f}"].instance(**T, **D, **V, **N)
    nodes = [
        b.node("input.embd.compute", embed, HOST, "tokens cursor token_embd.weight embd cursor")
    ]
    qkv = KERNELS[f"qkv_{f}"].instance(**T, **D, **heads, **C, **eps, **rope)
    attention = KERNELS["attention"].instance(**T, **heads, **C)
    attention_output = KERNELS[f"project_{f}"].instance(**T, K=config.H * config.S, **D)
    gate_up = KERNELS[f"gate_up_{f}"].instance(**T, **D, F=config.F, **eps)
    down = KERNELS[f"project_{f}"].instance(**T, K=config.F, **D)
    for layer in range(config.n_layers):
        w = f"blk.{layer}"
        caches = f"k_cache.{layer} v_cache.{layer}"
        x = "x" if layer else "embd"
        parts = (
            (
                "qkv",
                qkv,
                f"{x} {w}.attn_norm.weight {w}.attn_q.weight {w}.attn_k.weight {w}.attn_v.weight "
                f"pos k_idxs v_idxs q {caches}",
            ),
            ("attention", attention, f"q {caches} mask att"),
            ("attention_output", attention_output, f"att {w}.attn_output.weight {x} x"),
            ("gate_up", gate_up, f"x {w}.ffn_norm.weight {w}.ffn_gate.weight {w}.ffn_up.weight h"),
            ("down", down, f"h {w}.ffn_down.weight x x"),
        )
        for part, instance, names in parts:
            nodes.append(b.node(f"layer.{layer}.{part}", instance, DEVICE, names))
    logits = KERNELS[f"logits_{f}"].instance(**T, **D, **V, **C, **eps)
    names = "x out_ids pos output_norm.weight output.weight logits tap"
    nodes.append(b.node("logits", logits, DEVICE, names))

    samplers = (
        _sample(b, config.V, n_tokens, sampling),
        b.node(
            "sample.accept",
            KERNELS["accept_token"].instance(**V, **N),
            HOST,
            "token cursor tokens",
        ),
    )
    graph = Graph(tuple(b.tensors.values()), writers, tuple(nodes), "logits", samplers)
    return graph, b.instances


def _sample(b: _Builder, V: int, n_tokens: int, sampling: Sampling) -> Node:
    """Return the node that chooses the token; the position in `pos` numbers its random draw."""
    if sampling.greedy:
        return b.node("sample", KERNELS["argmax"].instance(V=V), HOST, "logits token")
    instance = KERNELS["sample"].instance(
        T=n_tokens,
        V=V,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
    )
    return b.node("sample", instance, HOST, "logits pos token")


def build_graph(
    config: ModelConfig, n_tokens: int, n_kv: int, capacity: int, sampling: Sampling = GREEDY
) -> Graph:
    """Return the graph of one step.

    Parameters
    ----------
    config : ModelConfig
    n_tokens : int
        Tokens of the micro-batch; 1 for decoding.
    n_kv : int
        Rows of the KV cache, and of the logits tap: the longest sequence of the run.
    capacity : int
        Length of the token list, prompt and generated tokens.
    sampling : Sampling

    Raises
    ------
    UsageError
        If the shape is beyond what the kernels take.
    """
    return _build(config, n_tokens, n_kv, capacity, sampling)[0]


def instances(
    config: ModelConfig, n_tokens: int, n_kv: int, capacity: int, sampling: Sampling = GREEDY
) -> tuple[Instance, ...]:
    """Return the kernel instances that `build_graph` of the same arguments names."""
    return tuple(_build(config, n_tokens, n_kv, capacity, sampling)[1].values())
