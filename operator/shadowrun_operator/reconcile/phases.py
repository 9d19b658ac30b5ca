"""The phases of a run, and which may follow which. Pure; when one follows is decided in the module of each phase."""

from collections.abc import Mapping

from shadowrun_operator.api.status import Phase

FOLLOWS: Mapping[Phase, tuple[Phase, ...]] = {
    "Pending": ("Preparing", "Complete"),
    "Preparing": ("WarmingUp", "Finishing", "Pending"),
    "WarmingUp": ("Running", "Finishing"),
    "Running": ("Finishing",),
    "Finishing": ("Complete",),
    "Complete": (),
}
"""By phase, those that may come next. Back to Pending goes a run that has made something and copied nothing: the API
server refused the candidate's patch, or an older run was accepted for the same primary at the same time. `Finishing` is
left out where nothing was made, and nothing follows `Complete`."""


def may_follow(before: Phase, after: Phase) -> bool:
    """Whether a status may show `after` once it has shown `before`: a phase can be over before it was ever written."""
    reached, ahead = {before}, [before]
    while ahead:
        new = [phase for phase in FOLLOWS[ahead.pop()] if phase not in reached]
        reached.update(new)
        ahead += new
    return after in reached
