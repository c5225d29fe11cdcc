"""Train the bundled model ``tiny``: a byte-level llama-style decoder on three old books.

Usage::

    python packaging/train_tiny.py --text DIR --out DIR [--steps N] [--device auto]

``DIR`` of ``--text`` holds ``alice29.txt``, ``asyoulik.txt`` and ``plrabn12.txt``, the public
domain texts of the Canterbury corpus as brotli's test data carries them; their SHA-256 is checked.

Each text is cut by position, bytes as they are:

==============  =========================================================
first 85 %      training
85 % to 90 %    validation: chooses the settings and the checkpoint
last 10 %       held out: never trained on, never used to choose anything
==============  =========================================================

``DIR`` of ``--out`` receives ``model.safetensors`` (F16, Hugging Face Llama names, tied head),
``config.json``, ``loss.csv`` and ``figures.json`` (what the model card reports). Needs PyTorch,
NumPy and safetensors; Syncscope itself does not need PyTorch.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

# cuBLAS reads this once, before its first call: without it matrix products may vary run to run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

TEXT_SHA256 = {
    "alice29.txt": "7467306ee0feed4971260f3c87421154a05be571d944e9cb021a5713700c38f0",
    "asyoulik.txt": "eaa3526fe53859f34ecdf255712f9ecf0b2c903451d4755b2edaa2e2599cb0fc",
    "plrabn12.txt": "07e2e0b461af78c7c647cb53dab39de560198e16f799b4516eccf0fbd69f764c",
}
TRAIN_PERCENT = 85
HELD_OUT_FROM_PERCENT = 90
BOS = 0
SAMPLE_PROMPTS = (
    "Alice looked at the Queen and said",
    "ROSALIND\tI pray you, tell me",
    "And now the angel of the Lord",
)
SAMPLE_BYTES = 200
REPEAT_PROMPTS = 48
REPEAT_PROMPT_BYTES = 32
REPEAT_BYTES = 16
MAX_FILE_BYTES = 4_000_000


@dataclass(frozen=True)
class Shape:
    """The sizes of the decoder, named as in a Hugging Face Llama ``config.json``."""

    vocab_size: int = 256
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 4
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    max_position_embeddings: int = 512
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def head_size(self) -> int:
        """Elements of one attention head."""
        return self.hidden_size // self.num_attention_heads


@dataclass(frozen=True)
class Settings:
    """What a training run may vary; the defaults are those of the bundled weights."""

    steps: int = 5000
    seed: int = 1
    batch: int = 64
    dropout: float = 0.1
    learning_rate: float = 4e-3
    final_learning_rate: float = 1e-4
    warmup: int = 100
    weight_decay: float = 1.0
    clip: float = 1.0
    average_decay: float = 0.998
    evaluate_every: int = 250


class Attention(nn.Module):
    """Causal grouped-query attention with rotary positions, half-split pairing."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.heads = shape.num_attention_heads
        self.kv_heads = shape.num_key_value_heads
        self.head_size = shape.head_size
        self.dropout = dropout
        kv_size = self.kv_heads * self.head_size
        self.q_proj = nn.Linear(shape.hidden_size, shape.hidden_size, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(shape.hidden_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend over the tokens of `x`, shape (batch, time, hidden)."""
        batch, time_, hidden = x.shape
        q = self.q_proj(x).view(batch, time_, self.heads, self.head_size).transpose(1, 2)
        k = self.k_proj(x).view(batch, time_, self.kv_heads, self.head_size).transpose(1, 2)
        v = self.v_proj(x).view(batch, time_, self.kv_heads, self.head_size).transpose(1, 2)
        q = rotate(q, cos, sin)
        k = rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(
            q,
            self._share(k),
            self._share(v),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
        )
        return self.o_proj(y.transpose(1, 2).reshape(batch, time_, hidden))

    def _share(self, x: Tensor) -> Tensor:
        """Repeat every key/value head for the query heads of its group."""
        batch, kv_heads, time_, size = x.shape
        group = self.heads // kv_heads
        x = x[:, :, None].expand(batch, kv_heads, group, time_, size)
        return x.reshape(batch, self.heads, time_, size)


class FeedForward(nn.Module):
    """The SwiGLU feed-forward block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``down(silu(gate(x)) * up(x))``."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One decoder layer: attention and feed-forward, each normalised first and added back."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.self_attn = Attention(shape, dropout)
        self.mlp = FeedForward(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the residual stream after this layer."""
        x = x + self.drop(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.drop(self.mlp(self.post_attention_layernorm(x)))


class Stack(nn.Module):
    """Embedding, layers and final norm: the part that Hugging Face names ``model``."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, dropout) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.drop = nn.Dropout(dropout)


class Decoder(nn.Module):
    """The whole model; its state dict carries the Hugging Face Llama names."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.model = Stack(shape, dropout)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        scale = 0.02 / math.sqrt(2 * shape.num_hidden_layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=scale if into_residual else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of every position of `tokens`, shape (batch, time)."""
        x = self.model.drop(self.model.embed_tokens(tokens))
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


def rope_tables(shape: Shape) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary angles, each (positions, head size)."""
    half = shape.head_size // 2
    exponent = torch.arange(half, dtype=torch.float64) * 2 / shape.head_size
    position = torch.arange(shape.max_position_embeddings, dtype=torch.float64)
    angle = position[:, None] * shape.rope_theta**-exponent
    angle = torch.cat((angle, angle), dim=1)
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn element ``i`` of each head with element ``i + half`` (half-split pairing)."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


@dataclass(frozen=True)
class Corpus:
    """The three texts, each cut into training, validation and held-out bytes."""

    train: dict[str, bytes]
    validation: dict[str, bytes]
    held_out: dict[str, bytes]

    @classmethod
    def read(cls, folder: Path) -> Corpus:
        """Read, check and cut the texts.

        Parameters
        ----------
        folder
            Where the files of `TEXT_SHA256` lie.

        Raises
        ------
        SystemExit
            When a text is missing or is not the expected one.
        """
        train: dict[str, bytes] = {}
        validation: dict[str, bytes] = {}
        held_out: dict[str, bytes] = {}
        for name, expected in TEXT_SHA256.items():
            try:
                text = (folder / name).read_bytes()
            except OSError as error:
                raise SystemExit(f"cannot read {folder / name}: {error.strerror}") from error
            found = hashlib.sha256(text).hexdigest()
            if found != expected:
                raise SystemExit(f"{folder / name}: SHA-256 is {found}, expected {expected}")
            train_end = len(text) * TRAIN_PERCENT // 100
            held_out_start = len(text) * HELD_OUT_FROM_PERCENT // 100
            train[name] = text[:train_end]
            validation[name] = text[train_end:held_out_start]
            held_out[name] = text[held_out_start:]
        return cls(train, validation, held_out)


class Batches:
    """Random training windows: byte 0, then bytes of one text; any start is equally likely."""

    def __init__(self, texts: dict[str, bytes], context: int, batch: int, seed: int) -> None:
        self.context = context
        self.batch = batch
        self.data = to_tokens(b"".join(texts.values()))
        starts = []
        offset = 0
        for text in texts.values():
            starts.append(torch.arange(offset, offset + len(text) - context + 1))
            offset += len(text)
        self.starts = torch.cat(starts)
        self.generator = torch.Generator().manual_seed(seed)

    def next(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, each (batch, context)."""
        pick = torch.randint(len(self.starts), (self.batch,), generator=self.generator)
        target = self.data[self.starts[pick][:, None] + torch.arange(self.context)]
        target = target.to(device)
        return shift_in_bos(target), target


def to_tokens(text: bytes) -> Tensor:
    """Return the token ids of `text`: its byte values."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def shift_in_bos(target: Tensor) -> Tensor:
    """Return the inputs that predict `target`: byte 0 first, its last byte left off."""
    return F.pad(target[:, :-1], (1, 0), value=BOS)


@torch.no_grad()
def total_bits(model: nn.Module, text: bytes, context: int, device: torch.device) -> float:
    """Return the bits that `model` needs for `text`, in F32.

    The text is cut into windows of `context` bytes that do not overlap (the last may be
    shorter). Each window is scored on its own, with byte 0 in front, so that every byte is
    predicted exactly once from the bytes before it in its window.
    """
    tokens = to_tokens(text)
    whole = len(tokens) // context * context
    groups = list(tokens[:whole].view(-1, context).split(64))
    if whole < len(tokens):
        groups.append(tokens[whole:][None])
    nats = 0.0
    for group in groups:
        target = group.to(device)
        logits = model(shift_in_bos(target)).double()
        nats += F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum").item()
    return nats / math.log(2)


def bits_per_byte(
    model: nn.Module, texts: dict[str, bytes], context: int, device: torch.device
) -> dict[str, float]:
    """Return bits per byte of each text, and of all their bytes together under ``all``."""
    bits = {name: total_bits(model, text, context, device) for name, text in texts.items()}
    result = {name: bits[name] / len(text) for name, text in texts.items()}
    result["all"] = sum(bits.values()) / sum(len(text) for text in texts.values())
    return result


@torch.no_grad()
def continue_greedily(
    model: nn.Module, prompts: Sequence[bytes], count: int, device: torch.device
) -> list[bytes]:
    """Continue prompts of one length by `count` bytes, always taking the likeliest byte."""
    tokens = torch.stack([to_tokens(bytes([BOS]) + prompt) for prompt in prompts]).to(device)
    start = tokens.shape[1]
    for _ in range(count):
        best = model(tokens)[:, -1].argmax(dim=-1)
        tokens = torch.cat((tokens, best[:, None]), dim=1)
    return [bytes(row) for row in tokens[:, start:].tolist()]


def repeated_share(text: bytes) -> float:
    """Return which share of the `REPEAT_BYTES`-long strings in `text` occurs earlier in it."""
    count = len(text) - REPEAT_BYTES + 1
    distinct = {text[i : i + REPEAT_BYTES] for i in range(count)}
    return 1 - len(distinct) / count


def greedy_repetition(model: nn.Module, texts: dict[str, bytes], device: torch.device) -> float:
    """Return the mean `repeated_share` of greedy continuations, from evenly spaced prompts."""
    text = b"".join(texts.values())
    stride = len(text) // REPEAT_PROMPTS
    starts = range(0, stride * REPEAT_PROMPTS, stride)
    prompts = [text[start : start + REPEAT_PROMPT_BYTES] for start in starts]
    continuations = continue_greedily(model, prompts, SAMPLE_BYTES, device)
    return sum(map(repeated_share, continuations)) / len(continuations)


def learning_rate(settings: Settings, step: int) -> float:
    """Return the learning rate of a step: linear warm-up, then half a cosine."""
    if step < settings.warmup:
        return settings.learning_rate * (step + 1) / settings.warmup
    progress = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    span = settings.learning_rate - settings.final_learning_rate
    return settings.final_learning_rate + span * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class Point:
    """One evaluation during training; losses in bits per byte."""

    step: int
    train_loss: float
    validation_loss: float
    greedy_repetition: float

    @property
    def score(self) -> float:
        """What the chosen checkpoint has least of.

        The validation loss alone stops training while greedy continuations still circle; the
        repetition alone would only reward learning the texts by heart.
        """
        return self.validation_loss + self.greedy_repetition


@dataclass
class Outcome:
    """What training leaves: the chosen weights and how it went."""

    weights: dict[str, Tensor]
    best_step: int
    curve: list[Point]
    minutes: float


def train(
    corpus: Corpus,
    shape: Shape,
    settings: Settings,
    device: torch.device,
    max_minutes: float,
) -> Outcome:
    """Train, and keep the averaged weights with the best `Point.score`.

    Parameters
    ----------
    corpus
        The texts; only their training and validation bytes are used.
    shape, settings
        The model's sizes and the training settings.
    device
        Where to compute; on a GPU the forward pass runs in bfloat16.
    max_minutes
        Stop after this many minutes, finished or not (the learning rate follows `settings`).

    Returns
    -------
    Outcome
        Weights in F16 on the CPU; losses in bits per byte.
    """
    torch.manual_seed(settings.seed)
    model = Decoder(shape, settings.dropout).to(device)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.average_decay))
    average.eval()
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.99),
        fused=device.type == "cuda",
    )
    batches = Batches(corpus.train, shape.max_position_embeddings, settings.batch, settings.seed)
    outcome = Outcome({}, 0, [], 0.0)
    best = math.inf
    running = torch.zeros((), device=device)
    since = 0
    begin = time.monotonic()
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, step)
        inputs, target = batches.next(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(inputs)
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(model)
        running += loss.detach()
        since += 1
        minutes = (time.monotonic() - begin) / 60
        last = step + 1 == settings.steps or minutes > max_minutes
        if (step + 1) % settings.evaluate_every and not last:
            continue
        point = Point(
            step=step + 1,
            train_loss=running.item() / since / math.log(2),
            validation_loss=bits_per_byte(
                average, corpus.validation, shape.max_position_embeddings, device
            )["all"],
            greedy_repetition=greedy_repetition(average, corpus.validation, device),
        )
        running.zero_()
        since = 0
        outcome.curve.append(point)
        if point.score < best:
            best = point.score
            outcome.best_step = point.step
            outcome.weights = half_weights(average.module)
        print(
            f"step {point.step:5d}  train {point.train_loss:.4f}"
            f"  validation {point.validation_loss:.4f}"
            f"  repetition {point.greedy_repetition:.3f}  best score {best:.4f}"
            f"  {(time.monotonic() - begin) / 60:.2f} min",
            flush=True,
        )
        if last:
            break
    outcome.minutes = (time.monotonic() - begin) / 60
    return outcome


def half_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the parameters in F16 on the CPU, names sorted."""
    state = model.state_dict()
    return {name: state[name].to("cpu", torch.float16).contiguous() for name in sorted(state)}


def hugging_face_config(shape: Shape) -> dict[str, object]:
    """Return the contents of ``config.json``."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **asdict(shape),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "tokenizer": "bytes",
        "bos_token_id": BOS,
    }


def figures(
    model: Decoder,
    corpus: Corpus,
    settings: Settings,
    outcome: Outcome,
    device: torch.device,
    validation_only: bool,
) -> dict[str, object]:
    """Measure the stored weights and return everything that the model card reports."""
    context = model.shape.max_position_embeddings
    samples = {}
    for prompt in SAMPLE_PROMPTS:
        (text,) = continue_greedily(model, [prompt.encode()], SAMPLE_BYTES, device)
        samples[prompt] = text.decode("latin-1")
    result: dict[str, object] = {
        "shape": asdict(model.shape),
        "settings": asdict(settings),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "text_sha256": TEXT_SHA256,
        "bytes": {
            part: {name: len(text) for name, text in getattr(corpus, part).items()}
            for part in ("train", "validation", "held_out")
        },
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "minutes": round(outcome.minutes, 2),
        "best_step": outcome.best_step,
        "validation_bits_per_byte": bits_per_byte(model, corpus.validation, context, device),
        "greedy_samples": samples,
        "greedy_repetition": greedy_repetition(model, corpus.validation, device),
    }
    if not validation_only:
        result["held_out_bits_per_byte"] = bits_per_byte(model, corpus.held_out, context, device)
    return result


def write_json(path: Path, value: dict[str, object]) -> None:
    """Write `value` as indented JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    defaults = Settings()
    parser = argparse.ArgumentParser(description="Train the bundled model tiny.")
    parser.add_argument("--text", type=Path, required=True, help="folder of the three texts")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--batch", type=int, default=defaults.batch)
    parser.add_argument("--dropout", type=float, default=defaults.dropout)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument("--weight-decay", type=float, default=defaults.weight_decay)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--max-minutes", type=float, default=math.inf, help="stop training after this time"
    )
    parser.add_argument(
        "--validation-only",
        action="store_true",
        help="do not score the held-out bytes (for trying settings)",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = parse_arguments(arguments)
    name = options.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    torch.use_deterministic_algorithms(True)
    shape = Shape()
    settings = Settings(
        steps=options.steps,
        seed=options.seed,
        batch=options.batch,
        dropout=options.dropout,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
    )
    corpus = Corpus.read(options.text)
    options.out.mkdir(parents=True, exist_ok=True)
    outcome = train(corpus, shape, settings, device, options.max_minutes)

    weights_path = options.out / "model.safetensors"
    save_file(outcome.weights, weights_path, metadata={"format": "pt"})
    size = weights_path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise SystemExit(f"{weights_path} has {size} bytes, more than {MAX_FILE_BYTES}")
    write_json(options.out / "config.json", hugging_face_config(shape))
    with (options.out / "loss.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Point))
        writer.writerows(
            (step, *(f"{value:.4f}" for value in values))
            for step, *values in map(astuple, outcome.curve)
        )

    # Everything reported is measured on the file just written, not on the weights in memory.
    model = Decoder(shape)
    model.load_state_dict({k: v.float() for k, v in load_file(weights_path).items()})
    model.to(device).eval()
    report = figures(model, corpus, settings, outcome, device, options.validation_only)
    report["file_bytes"] = size
    write_json(options.out / "figures.json", report)
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
