from dataclasses import dataclass

from syncscope.sched_core.errors import DeviceError

FUNCTIONS: tuple[str, ...]
OPTIONAL: frozenset[str]
LIBRARY: str
NO_DRIVER: str
TOO_OLD: str

@dataclass(frozen=True)
class GPU:
    index: int
    name: str
    compute: tuple[int, int]
    nbytes: int
    @property
    def arch(self) -> str: ...

def load(library: str = ...) -> None: ...
def driver_error(status: int, call: str) -> DeviceError: ...
def driver_version() -> tuple[int, int]: ...
def list_gpus() -> list[GPU]: ...
