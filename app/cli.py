"""The command: headless benchmark, lists of models and devices; errors become exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, TextIO

from tabulate import tabulate
from tqdm import tqdm

from syncscope import __version__
from syncscope.app import calibrate as calibration
from syncscope.app.bench.gates import parse_gates
from syncscope.app.calibration.fit import fit
from syncscope.app.conformance import judge
from syncscope.app.conformance import render_json as conformance_json
from syncscope.app.conformance import render_text as conformance_text
from syncscope.app.devices import CudaDevice, Device, SimDevice, choose_device, device_rows
from syncscope.app.experiments import with_experiments
from syncscope.app.importers.conformance import MAX_CASES, MAX_OPS, read_cases
from syncscope.app.report.atomic import check_writable, is_special, write_atomic
from syncscope.app.report.chrome_trace import write_traces
from syncscope.app.report.csv_report import render_csv
from syncscope.app.report.json_export import render_json
from syncscope.app.report.markdown import render_markdown
from syncscope.app.report.text import render_text
from syncscope.app.results import BenchResult
from syncscope.app.session import Progress, run_bench
from syncscope.app.spool import SUFFIX as SPOOL
from syncscope.app.variants import Variant, each_dropped, preset_variant
from syncscope.app.workload import DEFAULT_PROMPT, Workload
from syncscope.kernels.registry import list_models, load_model
from syncscope.kernels.sampling import GREEDY, Sampling
from syncscope.sched_core.cuda_backend import RECORDS, WAITS
from syncscope.sched_core.errors import DeviceError, FileError, SyncscopeError, UsageError
from syncscope.sched_core.order import RULES
from syncscope.sched_core.passes.registry import parse_pass
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.trace import Trace

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

OUTPUTS: Mapping[str, str] = {
    "timeline": "trace for Perfetto and syncscope",
    "json": "all figures (syncscope-bench/1)",
    "csv": "the comparison as CSV",
    "markdown": "the tables as Markdown",
}
"""Options that name a file to write, and its contents."""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        _print(message or "", end="")  # with what --help has printed
        raise SystemExit(status)


def _given(text: str) -> str:
    """Refuse an empty value: it is the unset variable of a script, not a wish."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the value is empty; give one or leave the option out")
    return text


def _items(text: str) -> list[str]:
    """Return the items of a list written with commas, at least one."""
    _given(text.replace(",", " "))
    return [item.strip() for item in text.split(",") if item.strip()]


def _close_off(stream: TextIO) -> None:
    """Send what a failed stream still holds nowhere: it would fail again at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _print(text: str, end: str = "\n") -> None:
    """Print; a reader who has had enough is no error."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        _close_off(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            reason = error.strerror or error
            raise FileError(f"cannot write to the standard output: {reason}") from None


def _complain(text: str) -> None:
    """Print one line on stderr, as far as it takes it; what would break the line is escaped."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _close_off(sys.stderr)


def _bench_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="syncscope",
        description="Which GPU syncs does an inference engine need, and what do they cost?",
        epilog="Desktop app: syncscope [FILE] [--trace FILE] [--compare FILE] [--run] "
        "[--theme dark|light] [--size WxH] [--screenshot FILE] [--panel NAME].  Other commands: "
        "syncscope models, devices, conformance, calibrate.  Exit codes: 0 fine; 1 hazard, "
        "mismatch or failed gate; 2 usage; 3 device or file trouble; 130 interrupted.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"syncscope {__version__}")
    parser.add_argument("--no-gui", action="store_true", help="run the benchmark without a window")
    where = parser.add_argument_group("where")
    where.add_argument("--device", type=_given, help="sim, cuda or cuda:N (default: what is there)")
    where.add_argument("--profile", type=_given, help="costs of the simulated device (h200)")
    where.add_argument(
        "--wait", choices=WAITS, default="spin", help="how the host waits for the GPU"
    )
    where.add_argument(
        "--record",
        choices=RECORDS,
        default="stamps",
        help="device times of a GPU: written by its kernels, by CUPTI (exact, costly), "
        "by events around what is issued, or none",
    )
    where.add_argument(
        "--sim",
        choices=("eager", "adversarial"),
        default="eager",
        help="data order of the simulator: as issued, or every order a device may choose",
    )
    where.add_argument(
        "--rules",
        choices=RULES,
        default="practical",
        help="what verdicts lean on: what hardware does, or only what CUDA documents",
    )
    where.add_argument("--seed", type=int, default=0, help="of random weights and sampled orders")
    where.add_argument("--no-compute", action="store_true", help="time the plan, compute nothing")
    what = parser.add_argument_group("what")
    what.add_argument(
        "--model", type=_given, default="tiny", help="an id of `syncscope models`, or a path"
    )
    what.add_argument("--prompt", default=DEFAULT_PROMPT, help="text to continue")
    what.add_argument("--tokens", type=int, default=64, help="tokens to generate")
    what.add_argument("--rounds", type=int, default=1, help="runs of each variant, back and forth")
    what.add_argument("--ubatch", type=int, default=512, help="prompt tokens per step")
    what.add_argument(
        "--temperature", type=float, metavar="F", help="draw tokens; 0: take the likeliest (0)"
    )
    what.add_argument(
        "--top-k", type=int, metavar="N", help="draw from the N likeliest; 0: all (0)"
    )
    what.add_argument(
        "--top-p", type=float, metavar="F", help="... from the likeliest that make up F; 1: all (1)"
    )
    what.add_argument("--sample-seed", type=int, metavar="N", help="of the draws (0)")
    how = parser.add_argument_group("how")
    how.add_argument("--preset", type=_items, help="presets to run (default: baseline,all)")
    how.add_argument(
        "--passes", type=_items, default=[], help="passes to add to each preset: ID[=value],.."
    )
    how.add_argument(
        "--drop", type=_items, default=[], help="syncs to remove raw: [PHASE:]SITE,..; * matches"
    )
    how.add_argument(
        "--drop-each",
        type=_items,
        default=[],
        metavar="SITE,..",
        help="one more variant per sync, each without it alone; safe: all that make no hazard",
    )
    how.add_argument(
        "--allow-hazards", action="store_true", help="run also what is not proved to be safe"
    )
    how.add_argument(
        "--provoke", action="store_true", help="drop each kept sync in turn, in every data order"
    )
    how.add_argument(
        "--minimal", action="store_true", help="name the smallest sets of syncs and the quickest"
    )
    out = parser.add_argument_group("output")
    for name, contents in OUTPUTS.items():
        out.add_argument(f"--{name}", type=_given, metavar="FILE", help=contents)
    out.add_argument(
        "--fail-on",
        type=_items,
        default=[],
        metavar="GATE,..",
        help="exit 1 on hazard, mismatch, syncs:N (more per step) or slower:PERCENT",
    )
    out.add_argument("-q", "--quiet", action="store_true", help="print the comparison only")
    out.add_argument("-v", "--verbose", action="store_true", help="print every site")
    return parser


def _variants(options: argparse.Namespace) -> list[Variant]:
    """Presets, each with the extra passes and the drops that were asked for."""
    passes, drop = options.passes, options.drop
    changed = passes or drop or options.drop_each
    presets = options.preset or (["baseline"] if changed else ["baseline", "all"])
    values: dict[str, int] = {}
    for text in passes:
        name, value = parse_pass(text)
        if values.setdefault(name, value) != value:
            raise UsageError(f"--passes {text}: {name} is also given as {values[name]}; keep one")
    return [preset_variant(preset, passes, drop, options.allow_hazards) for preset in presets]


def _sampling(options: argparse.Namespace) -> Sampling:
    """Return how tokens are chosen; what only a draw takes needs a temperature."""
    asked = {
        name: value
        for name, value in (
            ("temperature", options.temperature),
            ("top_k", options.top_k),
            ("top_p", options.top_p),
            ("seed", options.sample_seed),
        )
        if value is not None
    }
    if asked and "temperature" not in asked:
        raise UsageError(
            "--top-k, --top-p and --sample-seed are for draws, and without --temperature the "
            "greatest logit is taken; give --temperature 1, say"
        )
    return replace(GREEDY, **asked)


def _with_each_dropped(
    workload: Workload, variants: Sequence[Variant], sites: Sequence[str], rules: str
) -> list[Variant]:
    """Return each variant followed by those that lack one of its syncs."""
    baseline = workload.plan()
    return [
        found
        for variant in variants
        for found in (variant, *each_dropped(baseline, variant, sites, rules))
    ]


def _device(options: argparse.Namespace) -> tuple[Device, str]:
    """Return the device, and in one line why it is this one.

    What only the simulator can do chooses it, unless a GPU is asked for.
    """
    for_sim = [
        name
        for name, asked in (
            ("--sim adversarial", options.sim == "adversarial"),
            ("--no-compute", options.no_compute),
            ("--provoke", options.provoke),
            ("--minimal", options.minimal),
            (f"--profile {options.profile}", bool(options.profile)),
        )
        if asked
    ]
    asked_device = options.device or ""
    if for_sim and asked_device.startswith("cuda"):
        raise UsageError(f"{for_sim[0]} needs the simulator: use --device sim")
    profile = load_profile(options.profile or "h200")
    choice = choose_device("sim" if for_sim else asked_device)
    if choice.gpu is not None:
        return CudaDevice(choice.gpu, options.rules, options.wait, options.record), choice.line
    device = SimDevice(
        profile=profile,
        rules=options.rules,
        adversarial=options.sim == "adversarial",
        seed=options.seed,
        compute=not options.no_compute,
    )
    why = f"device: sim, for {for_sim[0]}" if for_sim and not asked_device else choice.line
    return device, why


def _progress(enabled: bool) -> tuple[Progress, Callable[[], None]]:
    """Return a progress callback, a bar on a terminal, and what ends it."""
    if not enabled:
        return (lambda variant, done, total: None), (lambda: None)
    bar = tqdm(unit="step", leave=False, file=sys.stderr)

    def show(variant: str, done: int, total: int) -> None:
        bar.set_description(variant, refresh=False)
        bar.total = total
        bar.n = done
        bar.refresh()

    return show, bar.close


def _check_outputs(outputs: Mapping[str, str | None], source: str | None = None) -> None:
    """Refuse files that cannot be written, and one that two options or `source` name.

    Raises
    ------
    UsageError
        For a file named twice; pipes and devices may be.
    FileError
        For one that cannot be written.
    """
    taken = {os.path.realpath(source): "the input"} if source else {}
    paths = {option: path for option, path in outputs.items() if path}
    for option, path in paths.items():
        check_writable(path)
        if is_special(path):
            continue
        owner = taken.setdefault(os.path.realpath(path), option)
        if owner != option:
            raise UsageError(f"{option} {path}: {owner} is this file too; name another")


def _deliver(options: argparse.Namespace, result: BenchResult, text: str) -> None:
    """Write the files asked for, then print; one that cannot be written costs no other."""
    writers: list[tuple[str | None, Callable[[str], None]]] = [
        (options.timeline, lambda path: write_traces([v.trace for v in result.variants], path)),
        (options.json, lambda path: write_atomic(path, [render_json(result).encode()])),
        (options.csv, lambda path: write_atomic(path, [render_csv(result).encode()])),
        (options.markdown, lambda path: write_atomic(path, [render_markdown(result).encode()])),
        ("-", lambda _: _print(text)),
    ]
    errors = []
    for path, write in writers:
        try:
            if path:
                write(path)
        except FileError as error:
            errors.append(error)
    if errors:
        raise FileError("; ".join(map(str, errors)))


def bench(arguments: Sequence[str]) -> int:
    """Run the headless benchmark."""
    options = _bench_parser().parse_args(arguments)
    if not options.no_gui:
        raise UsageError("options of the benchmark need --no-gui: add it, or see syncscope --help")
    if not 1 <= options.rounds <= 1000:
        raise UsageError(f"--rounds {options.rounds}: must be in 1..1000")
    if options.seed < 0:
        raise UsageError(f"--seed {options.seed}: must be at least 0")
    sampling = _sampling(options)
    device, why_device = _device(options)
    gates = parse_gates(options.fail_on)
    variants = _variants(options)
    outputs = {f"--{name}": getattr(options, name) for name in OUTPUTS}
    _check_outputs(outputs, options.model if os.path.isfile(options.model) else None)
    model = load_model(options.model, options.seed)
    prompt = tuple(model.tokenizer.encode(options.prompt))
    workload = Workload(model, prompt, options.tokens, options.ubatch, sampling)
    if options.drop_each:
        variants = _with_each_dropped(workload, variants, options.drop_each, device.rules)
    show, end = _progress(sys.stderr.isatty() and not options.quiet)
    try:
        result = run_bench(workload, device, variants, show, options.prompt, options.rounds)
        asked = (options.provoke, options.minimal)
        if any(asked) and isinstance(device, SimDevice) and not result.interrupted:
            try:
                result = with_experiments(result, workload, device, variants, *asked)
            except KeyboardInterrupt:
                result = replace(result, interrupted=True)
    finally:
        end()
    text = render_text(result, quiet=options.quiet, verbose=options.verbose)
    _deliver(options, result, text if options.quiet else f"{why_device}\n{text}")
    if result.failure:
        raise DeviceError(f"the device failed, what was recorded is kept: {result.failure}")
    if result.interrupted:
        _complain("interrupted: what was recorded until then is kept")
        return EXIT_INTERRUPTED
    failures = [text for gate in gates for text in gate.check(result)]
    for text in failures:
        _complain(f"gate failed: {text}")
    unsafe = any(each.harmed or each.hazards for each in result.variants)
    return EXIT_FAILED if failures or unsafe else 0


def models(arguments: Sequence[str]) -> int:
    """List the models."""
    _Parser(prog="syncscope models", description=models.__doc__).parse_args(arguments)
    rows = [
        (
            row.id,
            f"{row.parameters:,}" if row.parameters else "",
            row.layers or "",
            row.hidden or "",
            row.dtype,
            row.context or "",
            row.source,
            row.note,
        )
        for row in list_models()
    ]
    headers = ("model", "parameters", "layers", "hidden", "weights", "context", "source", "note")
    _print(tabulate(rows, headers=headers, disable_numparse=True))
    return 0


def devices(arguments: Sequence[str]) -> int:
    """List the devices: simulated profiles and GPUs."""
    _Parser(prog="syncscope devices", description=devices.__doc__).parse_args(arguments)
    _print(tabulate(device_rows(), headers=("device", "name", "what it is")))
    return 0


def conformance(arguments: Sequence[str]) -> int:
    """Judge cases whose hazards are known, and show where the ordering analysis disagrees."""
    parser = _Parser(
        prog="syncscope conformance",
        description=conformance.__doc__,
        epilog=f"A file holds up to {MAX_CASES:,} cases of up to {MAX_OPS:,} ops each.  "
        "Exit codes: 0 all agree; 1 some do not; 2 usage; 3 the file cannot be read.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="cases as JSON (hazard-cases/1)")
    parser.add_argument(
        "--rules",
        choices=RULES,
        default="strict",
        help="what CUDA documents, or also what current hardware does",
    )
    parser.add_argument(
        "--json", type=_given, metavar="FILE", help="the result (syncscope-conformance/1)"
    )
    options = parser.parse_args(arguments)
    _check_outputs({"--json": options.json}, options.file)
    judgements = [judge(case, options.rules) for case in read_cases(options.file)]
    if options.json:
        write_atomic(options.json, [conformance_json(judgements).encode()])
    _print(conformance_text(judgements, options.rules))
    return EXIT_FAILED if any(each.why for each in judgements) else 0


def calibrate(arguments: Sequence[str]) -> int:
    """Measure a GPU's API costs, copies and kernels, and write them as a profile."""
    parser = _Parser(
        prog="syncscope calibrate",
        description=calibrate.__doc__,
        epilog="Use the profile with --profile FILE.  Exit codes: 0 fine; 2 usage; 3 device or "
        "file trouble.",
        allow_abbrev=False,
    )
    parser.add_argument("--device", type=_given, help="cuda or cuda:N")
    parser.add_argument("--models", type=_items, help="models to run (tiny,shape:15m,shape:1b)")
    parser.add_argument("--tokens", type=int, help="tokens to generate with each (200)")
    parser.add_argument(
        "--from", nargs="+", type=_given, dest="traces", metavar="TRACE",
        help="fit stored traces instead: what --timeline has written",
    )  # fmt: skip
    parser.add_argument("--name", type=_given, default="h200", help="of the profile (h200)")
    parser.add_argument(
        "--profile", type=_given, default="h200", help="gives what the traces do not show (h200)"
    )
    parser.add_argument("--out", type=_given, metavar="FILE", help="the profile (NAME.json)")
    parser.add_argument("--timeline", type=_given, metavar="FILE", help="the traces, to fit again")
    options = parser.parse_args(arguments)
    out = options.out or f"{options.name}.json"
    start = load_profile(options.profile)
    outputs = {"--out": out, "--timeline": options.timeline}
    if options.traces:
        for name in ("device", "models", "tokens", "timeline"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name}: nothing is run with --from; leave one of them out")
        for path in options.traces:
            _check_outputs(outputs, path)
        traces = calibration.read(options.traces)
    else:
        _check_outputs(outputs)
        traces = _record_calibration(options)
    if options.timeline:
        write_traces(traces, options.timeline)
    found = fit(traces, start, options.name)
    calibration.save(found.profile, out)
    _print(calibration.render(found, calibration.check_steps(traces, found.profile)))
    return 0


def _record_calibration(options: argparse.Namespace) -> tuple[Trace, ...]:
    """Run what a profile is fitted to on a GPU."""
    asked = options.device or "cuda"
    if not asked.startswith("cuda"):
        raise UsageError(f"--device {asked}: a GPU is measured here; give cuda or cuda:N")
    try:
        choice = choose_device(asked)
    except DeviceError as error:
        remedy = "fit stored traces with --from"
        raise DeviceError(str(error).replace("use --device sim", remedy)) from None
    assert choice.gpu is not None
    tokens = calibration.TOKENS if options.tokens is None else options.tokens
    show, end = _progress(sys.stderr.isatty())
    try:
        return calibration.record(
            CudaDevice(choice.gpu), options.models or calibration.MODELS, tokens, show
        )
    finally:
        end()


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "models": models,
    "devices": devices,
    "conformance": conformance,
    "calibrate": calibrate,
}


DESKTOP_OPTIONS = frozenset(
    ("--trace", "--compare", "--run", "--theme", "--size", "--screenshot", "--panel")
)
"""What the desktop app takes; any other option is the benchmark's."""

TIMELINE_ENDS = (".json", ".json.gz", SPOOL)


def _is_for_desktop(argv: Sequence[str]) -> bool:
    """Whether arguments name no option but the desktop app's, and a timeline if they begin so."""
    options = {each.partition("=")[0] for each in argv if each.startswith("-")}
    begins_with_option = not argv or argv[0].startswith("-")
    return options <= DESKTOP_OPTIONS and (
        begins_with_option or argv[0].endswith(TIMELINE_ENDS) or os.path.isfile(argv[0])
    )


def main(
    arguments: Sequence[str] | None = None, desktop: Callable[[Sequence[str]], int] | None = None
) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    arguments : sequence of str or None
        Those of the process if None.
    desktop : callable or None
        Runs the desktop app; without it there is none.
    """
    argv = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        if argv and argv[0] in COMMANDS:
            return COMMANDS[argv[0]](argv[1:])
        if desktop is not None and _is_for_desktop(argv):
            return desktop(argv)
        if argv and not argv[0].startswith("-"):
            raise UsageError(
                f"unknown command {argv[0]}; known: {', '.join(COMMANDS)}, or --no-gui"
            )
        return bench(argv)
    except SyncscopeError as error:
        _complain(f"syncscope: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _complain("syncscope: interrupted")
        return EXIT_INTERRUPTED
    except MemoryError as error:
        _complain(f"syncscope: out of memory ({error}); use a smaller model or context")
        return DeviceError.exit_code
