"""The greedy text of a GPU is that of the host's kernels, up to a tie of the two best logits."""

import pytest

from helpers.gpu import first_gpu
from helpers.greedy_text import TIE, compare, generate, on_the_host
from helpers.stories import BOS, stories_model
from syncscope.app.devices import CudaDevice
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(first_gpu())


def workload_of(name: str) -> Workload:
    model = stories_model() if name == "stories260K" else load_model(name)
    prompt = (BOS,) if name == "stories260K" else tuple(model.tokenizer.encode("Alice was"))
    return Workload(model, prompt, 256, 512)


@pytest.mark.parametrize("name", ["tiny", "stories260K"])
def test_greedy_text_is_that_of_the_host_up_to_a_tie(device: CudaDevice, name: str) -> None:
    workload = workload_of(name)
    found = compare(on_the_host(workload), generate(workload, device))
    assert found.tokens >= 200
    assert found.gap is None or found.gap <= TIE
    assert 0 <= found.largest_difference < 0.05
