#!/usr/bin/env bash
# Take the pictures of the desktop app that the documents show: packaging/pictures.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
images=docs/images
for theme in dark light; do
    "$python" -m syncscope --screenshot "$images/window-$theme.png" --size 1280x720 --theme "$theme"
    for panel in latency output; do
        "$python" -m syncscope --screenshot "$images/$panel-$theme.png" --size 1280x720 --theme "$theme" --panel "$panel"
    done
done
