"""What a kernel instance has to do: loads counted by hand, and the sizes that the sources have."""

import re
from pathlib import Path

import pytest

from syncscope.kernels import work
from syncscope.kernels.cuda_launch import SOURCE_OF
from syncscope.kernels.loader import SOURCES
from syncscope.kernels.registry import SHAPES
from syncscope.kernels.signature import KERNELS, parse_instance
from syncscope.kernels.transformer import instances
from syncscope.kernels.work import work_of
from syncscope.sched_core.errors import UsageError


def of(kernel: str, visible: float = 0.0, **values: float) -> tuple[float, float]:
    """Loads of the input, and of weights or the cache, of an instance of shape 135m, one token."""
    known = {"T": 1, "D": 576, "H": 9, "G": 3, "S": 64, "F": 1536, "V": 49152, "C": 256, "K": 576}
    known |= {"eps": 1e-5, "theta": 1e4, "pairing": 0, **values}  # type: ignore[dict-item]
    kernel_record = KERNELS[kernel]
    found = work_of(
        kernel_record.instance(**{name: known[name] for name in kernel_record.parameters}), visible
    )
    return found.l2_loads, found.loads


def test_a_row_is_loaded_by_whole_parts_four_at_a_time_and_its_rest() -> None:
    # 32 lanes of 16 bytes: 256 halves, 128 floats
    assert of("project_f16", K=192) == (1, 1)  # a rest alone
    assert of("project_f16", K=256) == (1, 1)
    assert of("project_f16", K=576) == (1, 2 + 1)
    assert of("project_f16", K=1024) == (1, 1)
    assert of("project_f16", K=1536) == (2, 1 + 2)
    assert of("project_f16", K=8192) == (8, 8)
    assert of("project_f32", K=576) == (1, 1 + 1)  # four whole, and a rest


def test_a_warp_with_several_rows_loads_them_one_after_the_other() -> None:
    assert of("logits_f16", V=49152)[1] == 49152 / 8 / 384 * 3
    assert of("logits_f16", V=8 * 384 + 1)[1] == 2 * 3
    assert of("gate_up_f16", D=2048, F=8192)[1] == 3 * 2  # 2.7 units of two rows: 3


def test_kernels_that_norm_read_their_input_twice() -> None:
    assert of("qkv_f16")[0] == 2 * of("project_f16")[0] == 2
    assert of("gate_up_f16", D=2048)[0] == 2 * 2


def test_attention_waits_for_keys_by_the_pass_and_for_values_by_the_row() -> None:
    assert of("attention", 16.0)[1] == 2 + 16 / 16 / 2
    assert of("attention", 101.0)[1] == pytest.approx(2 + 101 / 16 / 2)
    assert of("attention", 129.0)[1] == pytest.approx(2 * 2 + 129 / 16 / 2)
    assert of("attention", 64.0, S=32)[1] == 1 + 64 / 32 / 2
    assert of("attention", 60.0, S=6)[1] == 1 + 60 / 32 / 2  # no vectors: a lane, an element
    assert of("attention", 60.0, S=10)[1] == 2 + 60 / 25 / 2


def test_argmax_finds_its_logits_in_the_cache() -> None:
    assert of("argmax", V=4096) == (1, 0)
    assert of("argmax", V=131072) == (32, 0)


def test_a_tile_of_tokens_shares_its_loads() -> None:
    assert of("project_f16", T=8)[1] == of("project_f16", T=2)[1]
    one, many = of("gate_up_f16", T=8), of("gate_up_f16", T=512)
    assert many[1] > one[1]
    assert of("logits_f16", T=35) == of("logits_f16", T=1)  # one row, whatever the batch


@pytest.mark.parametrize("model", SHAPES)
def test_every_instance_of_a_model_has_its_traffic_and_a_kernel_that_profiles_know(
    model: str,
) -> None:
    for size in (1, 35):
        for instance in instances(SHAPES[model], size, 256, 200):
            found = work_of(instance, 50.0)
            assert (found.moved, found.macs) == (instance.moved, instance.work)
            is_device = instance.kernel.name in SOURCE_OF
            assert found.kernel == (
                SOURCE_OF[instance.kernel.name].removesuffix(".cu")
                if is_device
                else instance.kernel.name
            )
            assert (found.l2_loads + found.loads > 0) == is_device


def test_loops_are_those_of_the_sources() -> None:
    def defined(name: str) -> dict[str, str]:
        return dict(re.findall(r"#define (\w+) (\d+)\b", Path(SOURCES / name).read_text("utf-8")))

    attention = defined("attention.cu")
    assert int(attention["LANES"]) == work.LANES
    assert int(attention["AT_ONCE"]) == work.AT_ONCE
    assert int(attention["MAX_GROUPS"]) == work.MAX_GROUPS
    header = Path(SOURCES / "common.cuh").read_text("utf-8")
    (unroll,) = re.findall(r"UNROLL = TT == 1 \? (\d+) : 1;", header)
    assert int(unroll) == work.IN_FLIGHT
    for name in ("attention.cu", "argmax.cu"):
        assert f"#pragma unroll {work.IN_FLIGHT}\n" in Path(SOURCES / name).read_text("utf-8")


@pytest.mark.parametrize("model", SHAPES)
def test_an_instance_is_found_again_by_its_name(model: str) -> None:
    for instance in instances(SHAPES[model], 3, 256, 200):
        assert parse_instance(instance.name) == instance


@pytest.mark.parametrize(
    "name",
    ["", "argmax", "argmax(V=5", "argmax(V=x)", "argmax(W=5)", "argmx(V=5)", "argmax(V=5)x",
     "argmax(V=0)", "argmax(V=5,V)", "argmax(V=1e400)"],
)  # fmt: skip
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        parse_instance(name)
