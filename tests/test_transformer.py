import dataclasses
import hashlib

import numpy as np
import pytest

from helpers.host_runner import HostRunner
from helpers.stories import (
    stories_expected,
    stories_model,
    stories_tokenizer,
    tinystories_ids,
)
from syncscope.kernels.registry import load_model
from syncscope.kernels.signature import KERNELS, Instance
from syncscope.kernels.transformer import ModelConfig, build_graph, instances
from syncscope.kernels.weights import random_weights
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.graph import HOST
from syncscope.sched_core.split import split_graph

SMALL = ModelConfig(2, 24, 4, 2, 6, 44, 61, 64, dtype="f32")


def test_inputs_of_the_device_split_come_in_llama_cpp_order() -> None:
    host, device = split_graph(build_graph(SMALL, 3, 16, 20))
    assert (host.device, host.inputs) == (HOST, ())
    assert device.inputs == ("embd", "pos", "k_idxs", "v_idxs", "mask", "out_ids")


def test_sites() -> None:
    graph = build_graph(SMALL, 1, 16, 20)
    assert [node.site for node in graph.writers] == [
        f"input.{name}.write" for name in ("pos", "k_idxs", "v_idxs", "mask", "out_ids")
    ]
    assert [node.site for node in graph.nodes] == [
        "input.embd.compute",
        *(
            f"layer.{layer}.{part}"
            for layer in (0, 1)
            for part in ("qkv", "attention", "attention_output", "gate_up", "down")
        ),
        "logits",
    ]
    assert [node.site for node in graph.samplers] == ["sample", "sample.accept"]
    assert graph.samplers[0].uses[0].tensor == graph.output == "logits"


def test_all_phases_have_the_same_sites() -> None:
    first, second = (build_graph(SMALL, n, 16, 20) for n in (1, 8))
    assert [n.site for n in first.nodes] == [n.site for n in second.nodes]
    assert {t.name for t in first.tensors} == {t.name for t in second.tensors}


def test_tensors_live_where_the_planner_expects_them() -> None:
    graph = build_graph(SMALL, 4, 16, 20)
    homes = {(t.role, t.device) for t in graph.tensors}
    assert homes == {
        ("state", -1), ("state", 0), ("weight", -1), ("weight", 0), ("input", -1),
        ("activation", -1), ("activation", 0), ("output", 0),
    }  # fmt: skip
    roles = {t.name: (t.role, t.device, t.nbytes) for t in graph.tensors}
    assert roles["tokens"] == ("state", -1, 80)
    assert roles["token_embd.weight"] == ("weight", -1, 61 * 24 * 4)
    assert roles["output.weight"] == ("weight", 0, 61 * 24 * 4)
    assert roles["mask"] == ("input", -1, 4 * 16 * 2)
    assert roles["k_cache.1"] == ("state", 0, 16 * 12 * 4)
    assert roles["tap"] == ("state", 0, 16 * 61 * 4)
    assert roles["token"] == ("activation", -1, 4)


def test_weights_of_the_graph_are_those_of_the_configuration() -> None:
    graph = build_graph(SMALL, 1, 16, 20)
    weights = random_weights(SMALL, 1).arrays
    sizes = {t.name: t.nbytes for t in graph.tensors if t.role == "weight"}
    assert sizes == {name: array.nbytes for name, array in weights.items()}


def test_every_kernel_that_is_named_has_an_instance() -> None:
    graph = build_graph(SMALL, 2, 16, 20)
    named = {n.kernel for n in (*graph.writers, *graph.nodes, *graph.samplers)}
    assert named == {i.name for i in instances(SMALL, 2, 16, 20)}


@pytest.mark.parametrize(
    ("change", "n_tokens", "n_kv", "line"),
    [
        ({"D": 9000}, 1, 16, "D=9000 is no whole number in 1..8192"),
        ({"F": 8193}, 1, 16, "F=8193"),
        ({"G": 3}, 1, 16, "4 heads (H) are no multiple of 3 (G)"),
        ({"S": 7}, 1, 16, "head size S=7 is odd"),
        ({"n_layers": 0}, 1, 16, "0 layers"),
        ({}, 0, 16, "T=0"),
        ({}, 17, 16, "17 tokens do not fit a KV cache of 16 rows"),
        ({}, 1, 8193, "C=8193"),
    ],
)
def test_bad_shapes_are_refused(
    change: dict[str, int], n_tokens: int, n_kv: int, line: str
) -> None:
    config = dataclasses.replace(SMALL, **change)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as error:
        build_graph(config, n_tokens, n_kv, n_kv + 1)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_instance_names_are_unique_and_readable() -> None:
    make = KERNELS["gate_up_f16"].instance
    assert make(T=1, D=64, F=172, eps=1e-5).name == "gate_up_f16(T=1,D=64,F=172,eps=1e-05)"
    assert make(eps=1e-5, F=172, D=64, T=1) == make(T=1, D=64, F=172, eps=1e-5)
    assert len({make(T=1, D=64, F=172, eps=eps).name for eps in (1e-5, 1.1e-5, 0.0)}) == 3
    assert make(T=3, D=64, F=172, eps=1e-5).work == 2 * 3 * 64 * 172
    with pytest.raises(UsageError, match="takes T, D, F, eps; given: T"):
        make(T=1)


def test_sizes_follow_the_declared_shapes() -> None:
    instance: Instance = KERNELS["qkv_f16"].instance(
        T=3, D=8, H=4, G=2, S=6, C=16, eps=1e-5, theta=1e4, pairing=1
    )
    names = [a.name for a in instance.kernel.arguments]
    sizes = dict(zip(names, instance.nbytes, strict=True))
    assert sizes == {
        "x": 96, "norm": 16, "wq": 384, "wk": 192, "wv": 192, "pos": 12, "k_idxs": 24,
        "v_idxs": 24, "q": 288, "k_cache": 768, "v_cache": 768,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("pairing", [0, 1])
def test_micro_batches_of_any_size_give_the_same_bits(dtype: str, pairing: int) -> None:
    config = dataclasses.replace(SMALL, dtype=dtype, pairing=pairing)
    weights = random_weights(config, 3)
    ids = np.random.default_rng(1).integers(0, config.V, 41).tolist()
    results = set()
    for micro_batch in (1, 7, 8, 41):
        runner = HostRunner(weights, 48)
        runner.prefill(ids, micro_batch)
        results.add(
            (
                runner.tap[40].tobytes(),
                runner.state["k_cache.1"].tobytes(),
                runner.state["v_cache.1"].tobytes(),
                int(runner.tokens[41]),
            )
        )
    assert len(results) == 1


def test_random_weights_keep_activations_finite() -> None:
    runner = HostRunner(load_model("shape:15m", seed=5).weights, 16)
    runner.prefill([0, 1, 31999, 7], 4)
    row = runner.tap[3]
    assert np.isfinite(row).all()
    assert 0.3 < row.std() < 3


@pytest.mark.parametrize("micro_batch", [1, 64])
def test_stories_says_what_it_should(micro_batch: int) -> None:
    model, expected = stories_model(), stories_expected()["greedy_from_bos"]
    ids = expected["ids"]
    runner = HostRunner(model.weights, len(ids) + 1)
    n = 1 if micro_batch == 1 else 100
    runner.prefill(ids[:n], micro_batch)
    while runner.cursor < len(ids) - 1:
        runner.step(1, sample=True)
    assert runner.tokens[: len(ids)].tolist() == ids
    text = model.tokenizer.decode(ids)
    assert text == expected["text"]
    assert hashlib.sha256(text.encode()).hexdigest() == expected["sha256_text"]


def test_stories_loss_is_the_published_one() -> None:
    model, expected = stories_model(), stories_expected()["nll_per_token"]
    ids = tinystories_ids(stories_tokenizer())
    losses = []
    for start in range(0, len(ids) - 1, 512):
        window, following = ids[start : start + 512], ids[start + 1 : start + 513]
        runner = HostRunner(model.weights, 512)
        runner.tokens[: len(window)] = window
        for _ in following:
            runner.step(1)
        logits = runner.tap[: len(following)].astype(np.float64)
        norm = np.log(np.exp(logits).sum(axis=1))
        losses.append(norm - logits[np.arange(len(following)), following])
    loss = np.concatenate(losses)
    assert loss.size == expected["tokens"]
    assert loss.mean() == pytest.approx(expected["safetensors"], abs=0.0002)


def test_the_tokenizer_of_stories_round_trips() -> None:
    tokenizer = stories_tokenizer()
    text = "Once upon a time, Zoë saw 3 × 4 boxes."
    assert tokenizer.decode(tokenizer.encode(text)) == text
