"""What the resource can say and this version does not do: each such field is named, nothing is silently ignored.

Pure. A field leaves this list in the same change that implements it. What contradicts itself is refused by the API
server before; what is missing in the cluster is found by the operator.
"""

from shadowrun_operator.api.spec import Capture, EndConditions, Sampling, Spec


def not_implemented(spec: Spec) -> list[str]:
    """A sentence for every field that asks for what is not done yet, in the order of the spec; empty when none does."""
    return [
        *_in_capture(spec.capture, spec.primary.service.port),
        *_in_sampling(spec.sampling),
        *_in_the_rest(spec),
        *_in_end_conditions(spec.end_conditions),
    ]


def _in_capture(capture: Capture, primary_port: int) -> list[str]:
    found = []
    if capture.mode != "Proxy":
        found.append(f"spec.capture.mode {capture.mode} is not implemented yet; use Proxy.")
    if capture.proxy is not None and capture.proxy.port not in (None, primary_port):
        found.append("spec.capture.proxy.port is not implemented yet where it is not the primary's port.")
    return found


def _in_sampling(sampling: Sampling) -> list[str]:
    found = []
    key = sampling.key
    if key is not None and key.body_field is not None:
        found.append("spec.sampling.key.bodyField is not implemented yet; use key.header.")
    if key is not None and key.credential is not None:
        found.append("spec.sampling.key.credential is not implemented yet; use key.header.")
    if key is None and sampling.unit == "Conversation":
        found.append("spec.sampling.key is needed for unit Conversation: following its opening is not implemented yet.")
    if sampling.on_missing_key == "Lineage":
        found.append("spec.sampling.onMissingKey Lineage is not implemented yet; use Random or Skip.")
    if sampling.class_rates:
        found.append("spec.sampling.classRates is not implemented yet; all classes are sampled at spec.sampling.rate.")
    return found


def _in_the_rest(spec: Spec) -> list[str]:
    found = []
    if spec.admission.queue.max_length > 0:
        found.append("spec.admission.queue.maxLength above 0 is not implemented yet; pairs over the cap are shed.")
    if spec.mirror.replicas > 1:
        found.append("spec.mirror.replicas above 1 is not implemented yet.")
    if spec.arms.replicas > 1 and spec.sampling.unit != "Request":
        found.append("spec.arms.replicas above 1 is not implemented yet for units other than Request.")
    if spec.comparison is not None:
        found.append("spec.comparison is not implemented yet; answers are measured and not compared.")
    if spec.live_path_guard is not None:
        found.append("spec.livePathGuard is not implemented yet.")
    return found


def _in_end_conditions(conditions: EndConditions) -> list[str]:
    found = []
    if conditions.gpu_hours is not None:
        found.append("spec.endConditions.gpuHours is not implemented yet; use pairs, tokens or spec.duration.")
    if conditions.decided:
        found.append("spec.endConditions.decided is not implemented yet; use pairs, tokens or spec.duration.")
    if conditions.match_rate is not None:
        found.append("spec.endConditions.matchRate is not implemented yet; use pairs, tokens or spec.duration.")
    return found
