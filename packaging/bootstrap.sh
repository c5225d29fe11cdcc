#!/usr/bin/env bash
# Finds what the system must provide, and installs what is missing when it may:
# as root or with passwordless sudo on a Debian-like system. Otherwise it prints
# the exact command and stops with exit 1.
#
#   packaging/bootstrap.sh build    Python >= 3.11 with venv and headers, and a C compiler;
#                                   prints the Python to use (PYTHON=... chooses one)
#   packaging/bootstrap.sh window   the shared libraries of a Qt window (Linux)
#   packaging/bootstrap.sh display  a virtual display with a window manager, for tests (Linux)
#   packaging/bootstrap.sh browser  Chromium and its driver, to look at timelines in Perfetto
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }
die() {
    say "$@"
    exit 1
}

# Whether packages may be installed without asking anybody.
may_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

# Run apt-get as root.
apt_get() {
    local become=(env DEBIAN_FRONTEND=noninteractive)
    [ "$(id -u)" = 0 ] || become=(sudo -n "${become[@]}")
    "${become[@]}" apt-get -qq "$@" >&2
}

# Install Debian packages, or say how.
install_packages() {
    local command="apt-get install -y --no-install-recommends $*"
    [ "$(id -u)" = 0 ] || command="sudo $command"
    command -v apt-get >/dev/null ||
        die "missing system packages; on Debian or Ubuntu they are: $*"
    may_install || die "missing system packages; run: $command"
    say "installing system packages: $*"
    apt_get install -y --no-install-recommends "$@" 2>/dev/null ||
        { apt_get update && apt_get install -y --no-install-recommends "$@"; } ||
        die "installing system packages failed; run: $command"
}

# Whether $1 starts and is new enough.
is_new_enough() {
    "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null
}

# Whether $1 can make a virtual environment with pip in it.
has_venv() {
    "$1" -c 'import venv, ensurepip' 2>/dev/null
}

# Whether a C file that includes Python.h compiles with the compiler that $1 builds with.
can_compile() {
    local flags
    flags=$("$1" -c 'import os, sysconfig as s
print(os.environ.get("CC") or s.get_config_var("CC") or "cc", "-I" + s.get_path("include"))')
    # shellcheck disable=SC2086  # the compiler may carry options
    printf '#include <stdint.h>\n#include <Python.h>\n' |
        $flags -x c -c -o /dev/null - >/dev/null 2>&1
}

# Print the first suitable Python; a complete one wins over one that lacks packages.
find_python() {
    local python first=""
    local candidates=(python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for python in "${candidates[@]}"; do
        python=$(command -v "$python") && is_new_enough "$python" || continue
        first=${first:-$python}
        if has_venv "$python" && can_compile "$python"; then
            first=$python
            break
        fi
    done
    printf '%s' "$first"
}

# Print the newest Debian package of a suitable Python, or else the default one.
python_package() {
    local version
    for version in 3.14 3.13 3.12 3.11; do
        if [ -n "$(apt-cache show --no-all-versions "python$version-venv" 2>/dev/null)" ]; then
            printf 'python%s' "$version"
            return
        fi
    done
    printf 'python3'
}

build() {
    local python package
    python=$(find_python)
    if [ -z "$python" ]; then
        [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON is not a Python 3.11 or newer"
        command -v apt-get >/dev/null || die "Python 3.11 or newer is needed: https://python.org"
        ! may_install || apt_get update
        package=$(python_package)
        install_packages "$package" "$package-venv" "$package-dev" gcc libc6-dev
        python=$(find_python)
        [ -n "$python" ] || die "Python 3.11 or newer is needed, and this system offers none"
    fi
    if ! has_venv "$python" || ! can_compile "$python"; then
        package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        install_packages "$package-venv" "$package-dev" gcc libc6-dev
        has_venv "$python" || die "$python cannot make virtual environments (venv, ensurepip)"
        can_compile "$python" || die "$python: no C compiler, or no Python.h for it"
    fi
    printf '%s\n' "$python"
}

window() {
    [ "$(uname -s)" = Linux ] || return 0
    local pairs=(
        libglib-2.0.so.0=libglib2.0-0 libGL.so.1=libgl1 libEGL.so.1=libegl1
        libxkbcommon.so.0=libxkbcommon0 libfontconfig.so.1=libfontconfig1
        libdbus-1.so.3=libdbus-1-3 libxcb-cursor.so.0=libxcb-cursor0
        libxkbcommon-x11.so.0=libxkbcommon-x11-0 libxcb-icccm.so.4=libxcb-icccm4
        libxcb-keysyms.so.1=libxcb-keysyms1 libxcb-shape.so.0=libxcb-shape0
    )
    local pair known missing=()
    known=$(PATH="$PATH:/sbin:/usr/sbin" ldconfig -p)
    for pair in "${pairs[@]}"; do
        case $known in
        *"${pair%%=*}"*) ;;
        *) missing+=("${pair#*=}") ;;
        esac
    done
    [ "${#missing[@]}" = 0 ] || install_packages "${missing[@]}"
}

# Install the packages of those commands, given as COMMAND=PACKAGE, that are not there.
install_commands() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [ "${#missing[@]}" = 0 ] || install_packages "${missing[@]}"
}

display() {
    [ "$(uname -s)" = Linux ] || return 0
    install_commands Xvfb=xvfb openbox=openbox
}

browser() {
    install_commands chromium=chromium chromedriver=chromium-driver
}

case "${1:-}" in
build | window | display | browser) "$1" ;;
*) die "usage: packaging/bootstrap.sh build|window|display|browser" ;;
esac
