"""Files: timelines opened and saved, a range as CSV, the timeline as a picture.

Everything here is work for `tasks`: it knows no window, says how far it is and may be ended.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPoint
from PySide6.QtGui import QImage, QImageWriter, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from syncscope.app.gui.recording import Recording
from syncscope.app.gui.span_row import SpanRow
from syncscope.app.gui.tasks import Progress
from syncscope.app.report.atomic import write_atomic
from syncscope.app.report.chrome_trace import read_traces, write_trace
from syncscope.app.spool import SUFFIX, convert_spool, read_spool
from syncscope.app.trace_changes import is_baseline
from syncscope.sched_core.errors import FileError
from syncscope.sched_core.trace import Trace

CSV_HEADER = (
    "span",
    "lane",
    "site",
    "phase",
    "step",
    "kind",
    "begin_ns",
    "end_ns",
    "duration_ns",
    "bytes",
    "verdict",
    "exactness",
)
CHUNK = 4096


def open_recordings(path: Path, progress: Progress) -> tuple[Recording, ...]:
    """Read all runs of a timeline file, or a spooled run.

    Raises
    ------
    FileError
    """
    progress(0, 2)
    traces: tuple[Trace, ...]
    traces = (read_spool(path),) if path.suffix == SUFFIX else read_traces(path)
    if not traces:
        raise FileError(f"cannot read {path}: it holds no run")
    progress(1, 2)
    plans = (plan for trace in traces for plan in trace.plans)
    baseline = next(filter(is_baseline, plans), None)
    return tuple(Recording.from_trace(trace, baseline) for trace in traces)


def save_recording(recording: Recording, spool: Path | None, target: Path) -> None:
    """Write a timeline; from the spool if there is one, which has also what left the memory.

    Raises
    ------
    FileError
    """
    if spool is not None:
        convert_spool(spool, target)
    else:
        write_trace(recording.to_trace(), target)


def csv_chunks(recording: Recording, t0_ns: int, t1_ns: int, progress: Progress) -> Iterator[bytes]:
    """Yield the spans that touch a range of time as lines of CSV, oldest first."""
    refs = recording.refs_between(t0_ns, t1_ns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for i, ref in enumerate(refs):
        try:
            writer.writerow(_cells(recording.span(int(ref))))
        except IndexError:
            continue  # a live run has overwritten it meanwhile
        if i % CHUNK == CHUNK - 1:
            progress(i, len(refs))
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


def _cells(row: SpanRow) -> tuple[object, ...]:
    exactness = "bounded" if row.is_bounded else "lower bound" if row.is_lower_bound else "exact"
    return (
        row.ref,
        row.lane,
        row.site.name,
        row.phase,
        row.step,
        row.kind,
        row.begin_ns,
        row.end_ns,
        row.end_ns - row.begin_ns,
        row.nbytes,
        row.verdict,
        exactness,
    )


def save_csv(
    recording: Recording, t0_ns: int, t1_ns: int, target: Path, progress: Progress
) -> None:
    """Write the spans that touch a range of time as CSV.

    Raises
    ------
    FileError
    """
    write_atomic(target, csv_chunks(recording, t0_ns, t1_ns, progress))


def save_image(image: QImage, target: Path) -> None:
    """Write a picture; PNG whatever the name's end.

    Raises
    ------
    FileError
    """
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    if not QImageWriter(buffer, QByteArray(b"png")).write(image):
        raise FileError(f"cannot write {os.fspath(target)}: Qt could not make a PNG of it")
    write_atomic(target, [bytes(buffer.data().data())])


def save_svg(widget: QWidget, target: Path) -> None:
    """Write a widget as SVG: text and lines as such, the spans as one picture.

    Raises
    ------
    FileError
    """
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    generator.setSize(widget.size())
    generator.setViewBox(widget.rect())
    generator.setTitle("Syncscope timeline")
    widget.render(generator, QPoint(), QRegion(), QWidget.RenderFlag.DrawChildren)
    write_atomic(target, [bytes(buffer.data().data())])
