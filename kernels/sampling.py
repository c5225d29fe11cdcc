"""How the next token is chosen from the logits."""

from __future__ import annotations

from dataclasses import dataclass

from syncscope.kernels.signature import FLOAT_LIMITS, LIMITS
from syncscope.sched_core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen: the greatest logit, or a seeded draw.

    The draw of a token depends on the logits, these four and the token's position, nothing else.

    Parameters
    ----------
    temperature : float
        Logits are divided by it; 0 takes the greatest, whatever the rest says.
    top_k : int
        Only so many of the greatest logits take part; 0: all.
    top_p : float
        Of these only the fewest greatest that together have this share of the probability; 1: all.
    seed : int
        Of the random numbers; below 2^53, so that every reader of JSON keeps it whole.

    Raises
    ------
    UsageError
        If one of them is out of its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        low, high = FLOAT_LIMITS["temperature"]
        if self.temperature != 0 and not low <= self.temperature <= high:
            raise UsageError(
                f"temperature {self.temperature}: must be in {low}..{high}, or 0 for the greatest "
                "logit"
            )
        low, high = FLOAT_LIMITS["top_p"]
        if not low <= self.top_p <= high:
            raise UsageError(f"top-p {self.top_p}: must be in {low}..{high}; 1 keeps all tokens")
        least, greatest = LIMITS["top_k"]
        if not least <= self.top_k <= greatest:
            raise UsageError(
                f"top-k {self.top_k}: must be in {least}..{greatest}; 0 keeps all tokens"
            )
        least, greatest = LIMITS["seed"]
        if not least <= self.seed <= greatest:
            raise UsageError(f"sample seed {self.seed}: must be in {least}..{greatest}")

    @property
    def greedy(self) -> bool:
        """Whether the greatest logit is taken."""
        return self.temperature == 0


GREEDY = Sampling()
"""The greatest logit, the first of equal ones."""
