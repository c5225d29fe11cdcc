"""The device kernels' sources: parameters as in the signatures, and no warning from nvcc."""

import re
from pathlib import Path

import pytest

from syncscope.kernels import cuda_launch, loader
from syncscope.kernels.cuda_launch import FAULTS, SOURCE_OF, launch_shape
from syncscope.kernels.loader import HEADERS, SOURCES, find_nvcc, load_modules
from syncscope.kernels.signature import KERNELS, LIMITS, Instance, parameter_type
from syncscope.sched_core.errors import DeviceError, UsageError

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
STRICT = ("-Werror", "all-warnings")
C_TYPES = {
    "f16": "__half",
    "f32": "float",
    "i32": "int",
    "i64": "long long",
    "u64": "unsigned long long",
}
TRAILING = ["fault_record *fault", "stamp_record *stamp", "int slot"]
ON_DEVICE = [name for name in SOURCE_OF if name != cuda_launch.ADVANCE_STEP]

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc to compile the kernels with")


def source(name: str) -> str:
    """Return a source file without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", (SOURCES / name).read_text("utf-8"), flags=re.S)


def kernels_in(name: str) -> dict[str, list[str]]:
    """Return the parameters of each kernel that a file defines, blanks evened out."""
    pattern = r'extern "C" __global__ void\s*(?:__launch_bounds__\([^)]*\))?\s*(\w+)\(([^)]*)\)'
    return {
        kernel: [re.sub(r"\s+", " ", part).strip() for part in parameters.split(",")]
        for kernel, parameters in re.findall(pattern, source(name))
    }


def instance(kernel: str, **values: float) -> Instance:
    """Return an instance whose other parameters are of the shape 15m, one token."""
    known = {"T": 1, "D": 288, "H": 6, "G": 6, "S": 48, "F": 768, "V": 32000, "C": 2048, "K": 768}
    known |= {"eps": 1e-5, "theta": 1e4, "pairing": 0}  # type: ignore[dict-item]
    known |= {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 7}  # type: ignore[dict-item]
    known |= values  # type: ignore[arg-type]
    return KERNELS[kernel].instance(**{name: known[name] for name in KERNELS[kernel].parameters})


# ------------------------------------------------------------------------------ sources


@pytest.mark.parametrize("kernel", ON_DEVICE)
def test_parameters_are_those_of_the_signature(kernel: str) -> None:
    signature = KERNELS[kernel]
    wanted = [
        f"{'' if argument.write else 'const '}{C_TYPES[argument.dtype]} *{argument.name}"
        for argument in signature.arguments
    ]
    wanted += [f"{C_TYPES[parameter_type(name)]} {name}" for name in signature.parameters]
    assert kernels_in(SOURCE_OF[kernel])[kernel] == wanted + TRAILING


@pytest.mark.parametrize("kernel", ON_DEVICE)
def test_a_kernel_begins_and_ends_with_its_stamps(kernel: str) -> None:
    definition = source(SOURCE_OF[kernel]).partition(f"{kernel}(")[2].partition("\n}")[0]
    body = definition.partition("{\n")[2]
    lines = [line.strip() for line in body.splitlines() if "__shared__" not in line]
    assert lines[0] == "stamp_begin(stamp);"
    assert lines[-1] == "stamp_end(stamp);"
    assert "return" not in body  # every thread gets there


def test_every_kernel_of_every_source_is_listed() -> None:
    files = {path.name for path in SOURCES.glob("*.cu")}
    assert files == set(SOURCE_OF.values())
    found = {kernel: file for file in files for kernel in kernels_in(file)}
    assert found == dict(SOURCE_OF)


def test_fault_codes_are_those_of_the_header() -> None:
    header = (SOURCES / "common.cuh").read_text("utf-8")
    found = re.findall(r"FAULT_\w+ = (\d+),? +/\* (.+?) \*/", header)
    assert {int(code): words for code, words in found} == dict(FAULTS)


def test_sizes_are_those_of_the_header() -> None:
    defined = dict(re.findall(r"#define (\w+) (\d+)\b", source("common.cuh")))
    assert int(defined["N_THREADS"]) == cuda_launch.N_THREADS
    assert int(defined["TILE"]) == cuda_launch.TILE
    assert int(defined["STAGED"]) == cuda_launch.STAGED >= LIMITS["D"][1]
    assert int(defined["MAX_SIZE"]) == LIMITS["S"][1]
    own = dict(re.findall(r"#define (\w+) (\d+)\b", source("attention.cu")))
    assert int(own["PARTIAL"]) == cuda_launch.ATTENTION_PARTIAL
    own = dict(re.findall(r"#define (\w+) (\d+)\b", source("argmax.cu")))
    assert int(own["N_READERS"]) == cuda_launch.ARGMAX_THREADS
    own = dict(re.findall(r"#define (\w+) (\d+)\b", source("sample.cu")))
    assert int(own["N_READERS"]) == cuda_launch.SAMPLE_THREADS


def test_every_header_that_is_included_counts_for_the_cache() -> None:
    texts = [path.read_text("utf-8") for path in SOURCES.glob("*.cu*")]
    assert {name for text in texts for name in re.findall(r'#include "(.+)"', text)} == set(HEADERS)


# ------------------------------------------------------------------------------ launches


@pytest.mark.parametrize("n_tokens", [1, 2, 8, 33, 512, 8192])
@pytest.mark.parametrize("kernel", ON_DEVICE)
def test_launches_stay_within_what_every_gpu_takes(kernel: str, n_tokens: int) -> None:
    largest = {
        "D": 8192,
        "F": 8192,
        "K": 8192,
        "C": 8192,
        "V": 1 << 24,
        "H": 8192,
        "G": 8192,
        "S": 256,
    }
    for values in ({}, largest):
        shape = launch_shape(instance(kernel, **{**values, "T": n_tokens}))
        assert all(n >= 1 for n in (*shape.grid, *shape.block))
        assert shape.grid[1] <= 65535
        assert shape.shared_nbytes + 3000 <= 48 << 10  # and the static part
        assert shape.block[0] % 32 == 0


def test_a_launch_is_as_wide_as_the_work() -> None:
    assert launch_shape(instance("qkv_f16")).grid == (1, 54, 1)
    assert launch_shape(instance("project_f16")).grid == (1, 36, 1)
    assert launch_shape(instance("project_f16", T=33)).grid == (5, 18, 1)
    assert launch_shape(instance("logits_f16")).grid == (1, 384, 1)
    assert launch_shape(instance("logits_f16", T=512)) == launch_shape(instance("logits_f16"))
    assert launch_shape(instance("attention", T=33)).grid == (6, 33, 1)
    assert launch_shape(instance("project_f16", K=172)).shared_nbytes == 4 * 176


def test_a_host_kernel_has_no_launch() -> None:
    with pytest.raises(UsageError, match="runs on the host"):
        launch_shape(KERNELS["write_out_ids"].instance(T=1))


# ------------------------------------------------------------------------------ compiler


@pytest.fixture(scope="session")
def cubin_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that outlives the run, where pytest keeps one."""
    cache = getattr(request.config, "cache", None)
    return Path(cache.mkdir("cubins")) if cache else tmp_path_factory.mktemp("cubins")


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_sources_compile_without_a_warning(arch: str, cubin_cache: Path) -> None:
    modules = load_modules(arch, cubin_cache, STRICT)
    assert set(modules) == set(SOURCE_OF)
    for kernel, cubin in modules.items():
        assert kernel.encode() in cubin


def fake_nvcc(folder: Path, body: str) -> None:
    """Put a shell script in nvcc's place, at the front of a PATH of `folder`."""
    script = folder / "nvcc"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)


VERSION = 'if [ "$1" = --version ]; then echo "Cuda compilation tools, V1.2.3"; exit 0; fi'
WRITE = 'for word; do [ "$last" = -o ] && out=$word; last=$word; done; printf "\\177ELF" > "$out"'


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that nvcc is looked for in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(
        loader, "find_nvcc", lambda: str(folder / "nvcc") if (folder / "nvcc").exists() else None
    )
    return folder


def test_a_compiled_kernel_is_kept_and_needs_no_nvcc_again(tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    fake_nvcc(tools, f"{VERSION}\n{WRITE}")
    first = load_modules("sm_90", cache)
    assert set(first) == set(SOURCE_OF)
    fake_nvcc(tools, f"{VERSION}\nexit 1")
    assert load_modules("sm_90", cache) == first
    (tools / "nvcc").unlink()
    assert load_modules("sm_90", cache) == first
    with pytest.raises(DeviceError, match=r"no nvcc to compile .* for sm_80.*install the CUDA"):
        load_modules("sm_80", cache)
    assert not list(cache.glob("*.part"))


def test_a_damaged_cubin_is_compiled_again(tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    fake_nvcc(tools, f"{VERSION}\n{WRITE}")
    first = load_modules("sm_90", cache)
    for path in cache.glob("*.cubin"):
        path.write_bytes(b"")
    assert load_modules("sm_90", cache) == first


def test_a_failed_compilation_names_the_error_and_the_log(tools: Path, tmp_path: Path) -> None:
    fake_nvcc(tools, f'{VERSION}\necho noise\necho "x.cu(3): error: no such thing"\nexit 2')
    with pytest.raises(DeviceError) as failed:
        load_modules("sm_90", tmp_path / "cache")
    text = str(failed.value)
    assert "\n" not in text
    assert "x.cu(3): error: no such thing" in text
    log = Path(text.rpartition("full log: ")[2])
    assert "noise" in log.read_text()


def test_a_cache_that_cannot_be_written_is_no_error(tools: Path, tmp_path: Path) -> None:
    fake_nvcc(tools, f"{VERSION}\n{WRITE}")
    (tmp_path / "file").write_text("in the way")
    assert set(load_modules("sm_90", tmp_path / "file" / "cache")) == set(SOURCE_OF)


@pytest.mark.parametrize(
    ("body", "text"), [("exit 0", "names no version"), (None, "could not be run")]
)
def test_an_nvcc_that_does_not_work_is_named(
    tools: Path, tmp_path: Path, body: str | None, text: str
) -> None:
    fake_nvcc(tools, body or "exit 0")
    if body is None:
        (tools / "nvcc").chmod(0o644)
    with pytest.raises(DeviceError, match=text):
        load_modules("sm_90", tmp_path / "cache")


def test_an_architecture_is_checked() -> None:
    with pytest.raises(DeviceError, match="sm_90"):
        load_modules("90; rm")


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loader.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert loader.cache_folder() == tmp_path / "syncscope" / "cubin"
