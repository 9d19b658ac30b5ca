"""When a running run is expected to be decided, at the rate its pairs have come in so far. Pure; decides nothing."""

import msgspec

from shadowrun_operator.judge.criteria import CriterionResult

_HOUR, _MINUTE = 3600, 60


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The criterion that is expected to be decided last: further pairs, and seconds (None where it can't be told)."""

    criterion: str
    pairs: int
    seconds: float | None


def forecast(results: tuple[CriterionResult, ...], elapsed_s: float) -> Forecast | None:
    """The last of the gating criteria that are open; None where every one is decided. `elapsed_s`: counted so far."""
    still = [r for r in results if not r.informational and r.outcome == "Inconclusive"]
    expected = [Forecast(criterion=r.name, pairs=r.needed, seconds=_seconds(r, elapsed_s)) for r in still]
    unknown = next((f for f in expected if f.seconds is None), None)
    return unknown or max(expected, key=lambda f: f.seconds or 0.0, default=None)


def forecast_sentence(found: Forecast | None, left_s: float, against: str) -> str:
    """For people; `left_s` is the time until the run ends at the latest, `against` what keeps it from a verdict now."""
    if found is None:
        but = f", but there is no verdict: {against}" if against else "."
        return f"Every criterion is decided{but}"
    if found.seconds is None:
        return f'When "{found.criterion}" will be decided can\'t be told yet.'
    about = f'about {found.pairs:,} more pairs for "{found.criterion}", {span(found.seconds)} at this rate'
    late = ", which is after the run's end" if found.seconds > left_s else ""
    return f"Decision expected after {about}{late}."


def span(seconds: float) -> str:
    """A length of time in its two largest units at most: 40 s, 14 min, 3 h 20 min, 5 d 2 h."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE)
    if minutes < 2 * 60:
        return f"{minutes} min"
    if minutes < 2 * 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def _seconds(result: CriterionResult, elapsed_s: float) -> float | None:
    if not result.needed or not result.pairs or elapsed_s <= 0:
        return None
    return result.needed * elapsed_s / result.pairs
