"""Every manifest of a run as the operator writes it, kept as a file, so that a change of any is seen in review."""

import copy
from pathlib import Path

import pytest
import yaml
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.plan import Apply, Create, Delete, EditRoute, Merge, PatchCandidate, Step

from tests.unit.reconcile.routes import ROUTED, route
from tests.unit.reconcile.world import World, leader_worker_set

pytestmark = pytest.mark.operator

FOLDER = Path(__file__).parent


TEMPLATE: Manifest = {
    "metadata": {"labels": {"app": "chat"}, "annotations": {"team": "x"}},
    "spec": {
        "priorityClassName": "low",
        "runtimeClassName": "nvidia",
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "maxSkew": 1,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "chat"}},
            }
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        "volumes": [
            {"name": "weights", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
        "containers": [
            {
                "name": "engine",
                "image": "registry.example/engine:1",
                "ports": [{"name": "http", "containerPort": 8080}],
                "resources": {"claims": [{"name": "gpu"}], "limits": {"memory": "64Gi"}},
                "volumeMounts": [
                    {"name": "weights", "mountPath": "/weights", "readOnly": True},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
    },
}
"""A template in the spec with all that decides where and how pods run."""
SHORTCUTS: Manifest = {
    "image": "registry.example/engine:2",
    "args": ["--port=8080", "--prefix-cache"],
    "env": [{"name": "CACHE", "value": "1"}],
    "patch": {"spec": {"priorityClassName": "lower"}},
}


def _manifests() -> dict[str, Manifest]:
    """By file name: those of the usual run, and what differs with several mirrors, other copies, shortcuts, groups."""
    arms = {"control": "Enabled", "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}
    usual = _made(World.with_spec(arms=arms))
    several = _made(World.with_spec(arms=arms, mirror={"replicas": 3}))
    capture = {"mode": "External", "proxy": None, "external": {"serviceName": "chat-copies"}}
    external = _made(World.with_spec(arms=arms, capture=capture))
    gateway = World.with_spec(arms=arms, capture=ROUTED)
    gateway.route = route()
    routed = _made(gateway)
    world = World.with_spec()
    world.body["spec"]["arms"] = {"template": {"podTemplate": TEMPLATE}, "candidate": SHORTCUTS}
    written = _made(world)
    made = _different("several", several, usual) | _different("external", external, usual)
    made |= _different("routed", routed, usual)
    patch = {"written-patch-x-candidate": written["patch-x-candidate"]}
    return usual | made | _different("written", written, usual) | patch | _grouped(usual) | _crossing()


def _grouped(usual: dict[str, Manifest]) -> dict[str, Manifest]:
    """Of arms that are LeaderWorkerSets, with the patches of their drafts."""
    world = World.with_spec()
    world.body["spec"]["arms"] |= {"template": {"leaderWorkerSetRef": {"name": "big"}}, "replicas": 2}
    world.users["LeaderWorkerSet", "big"] = leader_worker_set(size=4, leader=True)
    made, drafts = _made(world), ("patch-x-candidate-leader", "patch-x-candidate-worker")
    return _different("grouped", made, usual) | {f"grouped-{name}": made[name] for name in drafts}


def _crossing() -> dict[str, Manifest]:
    """The arms of a run whose arms change places: as they are made first, and on the other's nodes."""
    template = copy.deepcopy(TEMPLATE)
    zone = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    template["spec"]["affinity"] = {"nodeAffinity": required}
    world = World.with_spec(hardware={"crossover": "Enabled"}, duration="1m")
    world.body["spec"]["arms"] = {
        "template": {"podTemplate": template},
        "candidate": SHORTCUTS,
        "warmup": {"duration": "5s", "requests": 20},
    }
    arms = ("deployment-x-baseline", "deployment-x-candidate")
    first = _made(world)
    found = {f"crossover-{name}": first[name] for name in arms}
    while world.record is None or not world.record.second_half:
        made = [step for step in world.turn().steps if isinstance(step, Create)]
        found |= {f"crossover-changed-{name}": manifest for name, manifest in map(_named, made) if name in arms}
    return found


def _different(what: str, made: dict[str, Manifest], usual: dict[str, Manifest]) -> dict[str, Manifest]:
    """Those that are not the usual ones; the hash of the spec, in patches and among attempts, is no difference."""
    return {
        f"{what}-{name}": manifest
        for name, manifest in made.items()
        if manifest != usual.get(name) and not name.startswith(("patch-", "configmap-"))
    }


def _made(world: World) -> dict[str, Manifest]:
    """What the first passes over a run create, apply and patch; secrets have tests of their own."""
    written: dict[str, Manifest] = {}
    for _ in range(5):
        written |= dict(_named(step) for step in world.turn().steps if not isinstance(step, Delete))  # of drafts
        if world.phase == "WarmingUp":
            break
    return {name: manifest for name, manifest in written.items() if "secret" not in name}


def _named(step: Step) -> tuple[str, Manifest]:
    match step:
        case PatchCandidate(name, body):
            return f"patch-{name}", body
        case Create(manifest) | Apply(manifest) | Merge(manifest):
            selects_capture = (
                "shadowrun.dev/run" in manifest["spec"].get("selector", {}) if "spec" in manifest else False
            )
            flipped = "-flipped" if manifest["metadata"]["name"] == "chat-shadowed" and selects_capture else ""
            return f"{manifest['kind'].lower()}-{manifest['metadata']['name']}{flipped}", manifest
        case EditRoute(name, wanted=wanted) if wanted is not None:
            return f"filter-of-{name}", wanted
        case _:
            raise AssertionError(f"a run begins without {step}")


MANIFESTS = _manifests()


@pytest.mark.parametrize("name", sorted(MANIFESTS))
def test_the_manifest_is_the_one_on_file(name: str, update_golden: bool) -> None:
    path = FOLDER / f"{name}.yaml"
    if update_golden:
        path.write_text(yaml.safe_dump(MANIFESTS[name], sort_keys=True))
    assert path.exists(), "no such file: run pytest tests/golden --update-golden"
    assert yaml.safe_load(path.read_text()) == MANIFESTS[name]


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(MANIFESTS)
