"""How much a bench may measure. Knows no bench."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """`rounds` of everything, interleaved; `seconds` for one measurement of the usual length."""

    rounds: int
    seconds: float

    @property
    def quick(self) -> bool:
        """Only to see that it runs: the numbers mean nothing."""
        return self.rounds == 1


FULL = Effort(rounds=3, seconds=4.0)
QUICK = Effort(rounds=1, seconds=0.4)
