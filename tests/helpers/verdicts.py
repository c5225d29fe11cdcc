"""Plans of a small real model with passes applied, for tests of the ordering analysis."""

from functools import cache

import numpy as np

from syncscope.kernels.transformer import ModelConfig, build_graph
from syncscope.sched_core.capabilities import CUDA
from syncscope.sched_core.passes.registry import PASSES, apply_passes, preset_passes
from syncscope.sched_core.planner import plan_baseline

CONFIG = ModelConfig(n_layers=1, D=8, H=2, G=1, S=4, F=8, V=16, context=64, dtype="f32")
SIZES = (("prompt", 4), ("prompt_last", 3), ("decode", 1))


@cache
def baseline():
    return plan_baseline({name: build_graph(CONFIG, size, 64, 64) for name, size in SIZES})


def planned(passes):
    return apply_passes(baseline(), passes, CUDA, filtered=True).plan


@cache
def preset_plan(name):
    return planned(preset_passes(name))


def random_requests(count, seed=7):
    """Random sets of passes, each with a random depth of the ring."""
    draw = np.random.default_rng(seed)
    names = [name for name in PASSES if name != "keep-set"]
    for _ in range(count):
        chosen = [name for name in names if draw.random() < 0.5]
        yield tuple(
            f"{name}={draw.integers(2, 5)}" if name == "input-slot-ring" else name
            for name in chosen
        )


def phases_of(micro_batches, decode=5):
    return (*["prompt"] * (micro_batches - 1), "prompt_last", *["decode"] * decode) * 2
