"""The metrics of ended pairs, which are counted some time later."""

import msgspec
import pytest
from shadowrun_mirror.config import Comparison
from shadowrun_mirror.measure import failed_result
from shadowrun_mirror.metrics import Metrics, Vitals
from shadowrun_mirror.reasons import FailureReason, Likeness

from tests.integration.mirror.rig import configuration

pytestmark = pytest.mark.mirror

VITALS = Vitals(in_flight=0, queued=0, copying=True, held_bytes=0, lag_p50=0, lag_max=0, cpu_share=0, collector_s=0)


def test_what_breaks_on_one_pair_loses_no_other() -> None:
    metrics = Metrics(configuration([1, 2]))
    failed = failed_result(FailureReason.CONNECT, True, None)
    for arm in ("baseline", "nobody", "candidate"):
        metrics.ended({arm: failed})
    with pytest.raises(KeyError):
        metrics.render(VITALS)
    text = metrics.render(VITALS)
    for arm in ("baseline", "candidate"):
        assert b'answers_total{arm="%b",model="",outcome="Connect"} 1.0' % arm.encode() in text


def test_every_likeness_of_every_challenger_is_there_at_zero_where_answers_are_compared() -> None:
    name = "shadowrun_mirror_compared_answers_total"
    assert f"{name}{{" not in Metrics(configuration([1, 2, 3])).render(VITALS).decode()
    metrics = Metrics(configuration([1, 2, 3], comparison=Comparison()))
    text = metrics.render(VITALS).decode()
    for arm in ("candidate", "control"):
        for likeness in Likeness:
            assert f'{name}{{arm="{arm}",result="{likeness.value}"}} 0.0' in text
    assert f'{name}{{arm="baseline"' not in text
    failed = failed_result(FailureReason.CONNECT, True, None)
    results = {"baseline": failed, "candidate": msgspec.structs.replace(failed, likeness=Likeness.BOTH_FAILED)}
    metrics.ended(results)
    assert f'{name}{{arm="candidate",result="BothFailed"}} 1.0' in metrics.render(VITALS).decode()
