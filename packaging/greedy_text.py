"""Compare the greedy text of a device with that of the host's kernels, and store what was found.

python packaging/greedy_text.py OUT.json [DEVICE]

DEVICE is as for `syncscope --device` (default cuda).  Models: tiny, and stories260K of the test
data (SYNCSCOPE_SHARED, default ../shared).  Ends with 1 where a text differs by more than a tie.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder, whose syncscope is only the root of the package
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.greedy_text import TIE, record
from helpers.stories import BOS, stories_model
from syncscope.app.devices import CudaDevice, Device, SimDevice, choose_device
from syncscope.app.environment import describe_environment
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.sched_core.profile import load_profile

SCHEMA = "syncscope-greedy-text/1"
PROMPT = "Alice looked at the Queen and said"
TOKENS = 256


def compare_all(device: Device) -> dict[str, Any]:
    """Return the comparison of every model, with where and when it was made."""
    tiny, stories = load_model("tiny"), stories_model()
    cases = (
        (tiny, tuple(tiny.tokenizer.encode(PROMPT)), PROMPT),
        (stories, (BOS,), ""),
    )
    return {
        "schema": SCHEMA,
        "device": device.describe(),
        "tie": TIE,
        "models": [
            record(Workload(model, prompt, TOKENS, 512), text, device, model.tokenizer)
            for model, prompt, text in cases
        ],
        "environment": {**describe_environment(), **device.environment()},
    }


def main(out: str, asked: str = "cuda") -> int:
    """Write the file; 1 where a text differs by more than a tie."""
    choice = choose_device(asked)
    device = SimDevice(load_profile("h200")) if choice.gpu is None else CudaDevice(choice.gpu)
    found = compare_all(device)
    Path(out).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8", "replace")
    for each in found["models"]:
        where = each["first_difference"]
        text = "equal" if where is None else f"differs at {where}, gap {each['gap']:.2g}"
        print(f"{each['model']}: {each['tokens']} tokens, {text}")
    return int(any(each["gap"] is not None and each["gap"] > TIE for each in found["models"]))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
