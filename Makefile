# make install | run | gui | test | lint | bench | dist | clean
# ARGS goes to syncscope (make run ARGS="--tokens 8"), PYTEST_ARGS to pytest,
# PYTHON names the Python that makes .venv.

VENV := .venv
PY := $(VENV)/bin/python
# Holds the path of this checkout: a copied .venv would run the code of the original.
STAMP := $(VENV)/.installed
FOLDERS := app sched_core kernels
SOURCES := $(shell find $(FOLDERS) -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
PIP := $(PY) -m pip --disable-pip-version-check --no-input -qq

export PYTHON
unexport PYTHONPATH PYTHONHOME

.NOTPARALLEL:
.PHONY: help install run gui test lint bench dist clean FORCE

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

bench: install
	@set -e; for f in tests/bench/bench_*.py; do [ -e "$$f" ] || continue; echo "== $$f"; $(PY) "$$f"; done

dist: install
	@$(PY) -m build --version >/dev/null 2>&1 || $(PIP) install build
	@rm -rf dist build/lib* build/bdist* build/temp*
	@$(PY) -m build
	@$(PY) packaging/check_wheel.py dist/*.whl

clean:
	rm -rf build dist *.egg-info $(VENV)
	find $(FOLDERS) -name '*.so' -delete
