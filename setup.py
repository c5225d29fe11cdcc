"""Build the Cython modules under their installed names.

The folders app/, sched_core/ and kernels/ are installed as syncscope.<folder>
(package-dir in pyproject.toml). setuptools understands that mapping; Cython does
not: it finds a .pxd by walking real directories. So before compiling we make one
directory in which the dotted path exists, build/cython-root/syncscope/<folder>,
with a link to each folder, and hand it to Cython as its include path. mypy and
import-linter read the same directory, since they do not follow editable installs.
"""

import multiprocessing
import os
import shutil
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler.Errors import CompileError
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NAME = "syncscope"
FOLDERS = ("app", "sched_core", "kernels")
LINK_ROOT = Path("build", "cython-root")
ROOT_PACKAGE = Path("packaging", NAME)

# The host kernels must give the same bits everywhere: a*b+c may not become a fused operation.
COMPILE_ARGS = {"unix": ["-O3", "-ffp-contract=off"], "msvc": ["/O2", "/fp:precise"]}


def link_folders() -> str:
    """Make LINK_ROOT/NAME show the whole package; return the include path."""
    package = LINK_ROOT / NAME
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.pxd").touch()
    targets = [Path(folder) for folder in FOLDERS]
    targets += [path for path in ROOT_PACKAGE.iterdir() if path.is_file()]
    for target in targets:
        link = package / target.name
        if os.name == "nt":
            copy_or_join(target, link)
        elif not link.exists():
            link.unlink(missing_ok=True)  # a dangling link
            link.symlink_to(os.path.relpath(target, package), target.is_dir())
    return str(LINK_ROOT)


def copy_or_join(target: Path, link: Path) -> None:
    """Stand in for a symlink, which needs a privilege on Windows."""
    if target.is_file():
        shutil.copyfile(target, link)
    elif not link.exists():
        import _winapi  # exists on Windows only

        _winapi.CreateJunction(str(target.resolve()), str(link))


def extensions() -> list[Extension]:
    """Return one extension per .pyx, named by its path under the package."""
    found = [pyx for folder in FOLDERS for pyx in sorted(Path(folder).rglob("*.pyx"))]
    if not found:
        raise SystemExit("no .pyx file here: the source archive is incomplete (MANIFEST.in)")
    headers = [str(h) for folder in FOLDERS for h in sorted(Path(folder).rglob("*.h"))]
    return [
        Extension(
            ".".join((NAME, *pyx.with_suffix("").parts)),
            [pyx.as_posix()],
            include_dirs=[str(LINK_ROOT), *FOLDERS],
            depends=headers,
        )
        for pyx in found
    ]


def translators() -> int:
    """Return how many processes may translate .pyx files; only forked ones are safe here."""
    return (os.cpu_count() or 1) if multiprocessing.get_start_method() == "fork" else 0


class BuildExt(build_ext):
    """Compiles in parallel, with the flags above, in a folder that is kept."""

    def finalize_options(self) -> None:
        """Keep what an editable install built, so that a rebuild compiles only changes."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        if self.editable_mode or self.inplace:
            self.build_lib = self.build_temp = os.path.join("build", "inplace")

    def build_extensions(self) -> None:
        """Add the flags of the compiler in use."""
        for extension in self.extensions:
            extension.extra_compile_args += COMPILE_ARGS.get(self.compiler.compiler_type, [])
        super().build_extensions()


def translate() -> list[Extension]:
    """Turn every .pyx into C; a mistake in one ends the build without a traceback."""
    try:
        return cythonize(
            extensions(),
            include_path=[link_folders()],
            build_dir="build/cython",
            nthreads=translators(),
            compiler_directives={"language_level": 3, "embedsignature": True, "binding": True},
        )
    except CompileError as error:  # Cython has printed the place
        raise SystemExit(f"not compiled: {error}") from None


setup(cmdclass={"build_ext": BuildExt}, ext_modules=translate())
