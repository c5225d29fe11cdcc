"""Run the command: ``python -m syncscope``, and what the installed ``syncscope`` calls."""

import sys
from collections.abc import Sequence


def _desktop(arguments: Sequence[str]) -> int:
    """Run the desktop app; Qt is loaded for nothing else."""
    from syncscope.app.gui.start import main as run

    return run(arguments)


def main() -> int:
    """Run the command; Ctrl-C ends it with one line also while it is still being imported."""
    try:
        from syncscope.app.cli import main as run

        return run(desktop=_desktop)
    except KeyboardInterrupt:
        print("syncscope: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
