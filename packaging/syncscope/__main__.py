"""Run the command: ``python -m syncscope``."""

from syncscope.app.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
