"""The metrics of ended pairs, which are counted some time later."""

import pytest
from shadowrun_mirror.measure import failed_result
from shadowrun_mirror.metrics import Metrics, Vitals
from shadowrun_mirror.reasons import FailureReason

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
