"""`Observation`: every fact a decision may rest on, gathered before it is taken. Frozen; decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shadowrun_mirror.config import MirrorConfig

from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.judge.merge import identity
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.manifests.workload import pods_each
from shadowrun_operator.reconcile.gateway import RouteSeen
from shadowrun_operator.reconcile.record import Books, RunRecord

API_REFUSED = "The API server refused"
NO_EFFECT = "The change in spec.arms.candidate changes nothing"
"""Beginnings of the messages of changes that only the API server could judge: tried again when the spec changes."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The operator's own surroundings."""

    mirror_image: str
    capture_image: str
    namespace: str = ""  # the operator's; empty outside a cluster
    version: str = ""
    kubernetes: str = ""  # version of the API server, as of the operator's start
    pull_policy: str = "IfNotPresent"  # of the images of mirror and capture
    pull_secrets: tuple[str, ...] = ()  # names of Secrets that have to be in the run's namespace


@dataclass(frozen=True, kw_only=True)
class FreshSecrets:
    """Random values for a run that has none yet; drawn anew for every observation and used at most once."""

    token: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A container that was started anew, how often, and in words what its last process ended with."""

    container: str
    count: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of ours that has not ended. `waiting` says in words why it is not ready, where the cluster says it.

    A `leaving` one is on its way out: nothing new is sent to it, but what it counted can still be read.
    """

    name: str
    uid: str
    component: str
    address: str = ""
    node: str = ""
    ready: bool = False
    leaving: bool = False
    waiting: str = ""
    follows: bool = False  # in a group, another pod of which takes the requests
    images: tuple[str, ...] = ()
    restarts: tuple[Restart, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeRoom:
    """A node, and what is left of it beside all pods that are bound to it (units of `manifests.requests`)."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Manifest, ...]
    free: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class OtherRun:
    """Another ShadowRun of the namespace that has been accepted and is not complete.

    `primary` is the Service that it stands before; "" where copies come from a proxy of the user's own. `rule` is the
    rule of an HTTPRoute that it has copied, as "route/rule"; "" in the other modes.
    `older`: it was created before this one, so that of two that were accepted at once, both know which may stay.
    """

    name: str
    primary: str
    service_name: str
    rule: str = ""
    older: bool = True


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One look at the world. `objects` are ours by label and owner, keyed by (kind, name)."""

    now: float  # UTC seconds
    run: ShadowRun
    settings: Settings
    fresh: FreshSecrets
    primary: Manifest | None = None  # the primary's Service
    source: Manifest | None = None  # what the arms are copied from (`manifests.template`)
    groups_served: bool = True  # whether the cluster has LeaderWorkerSets, where the run needs them
    capture_service: Manifest | None = None  # whatever Service has the name that spec.capture asks for
    arm_services: Mapping[str, Manifest] = field(default_factory=dict)  # that external arms' URLs name, by name
    credential_found: bool = True
    objects: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()  # objects that are not ours under names the run needs, as "Kind 'name'"
    leftovers: tuple[str, ...] = ()  # of an earlier run of the same name, or on their way out
    pods: tuple[Pod, ...] = ()
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lost_nodes: Mapping[str, str] = field(default_factory=dict)  # of the arms' nodes: what the cluster says of them
    room: tuple[NodeRoom, ...] | None = None  # of the arms' pool while they have no nodes; None: not known
    others: tuple[OtherRun, ...] = ()
    record: RunRecord | None = None
    books: Books = field(default_factory=Books)
    checkpoint_at: float = 0.0  # when the books were last stored
    config: MirrorConfig | None = None  # as stored in the mirror's Secret
    token: str = ""
    given_back_since: float | None = None  # since when customers' requests are known to go their way without us
    route: RouteSeen | None = None  # in mode HTTPRoute
    read: frozenset[str] = frozenset()  # uids of the pods whose evidence was read in this very look
    clocks: Mapping[str, float] = field(default_factory=dict)  # by pod uid: seconds its clock is ahead of ours, if any
    attempts: Mapping[str, int] = field(default_factory=dict)  # runs that copied before, by hash of the frozen spec
    ledger: Manifest | None = None  # where those are kept beyond the runs themselves
    refusal: str = ""  # what the API server answered to the candidate's patch, if it refused it

    @property
    def ref(self) -> RunRef:
        """Whom our objects belong to."""
        return RunRef(name=self.run.name, namespace=self.run.namespace, uid=self.run.uid)

    @property
    def held(self) -> bool:
        """Whether the ShadowRun, once deleted, stays until everything of it is taken down."""
        return names.FINALIZER in self.run.metadata.finalizers

    @property
    def external(self) -> bool:
        """Whether copies come from a proxy of the user's own: nothing of ours stands in the customers' path then."""
        return self.run.spec.capture.made_elsewhere

    @property
    def components(self) -> tuple[str, ...]:
        """Everything that has pods of the run and has to be ready before copies are taken."""
        return (*self.run.spec.made_arms, names.MIRROR, *(() if self.external else (names.CAPTURE,)))

    def object(self, kind: str, component: str) -> Manifest | None:
        """Our object of a kind for a component."""
        return self.objects.get((kind, names.object_name(self.run.name, component)))

    def pods_of(self, *components: str) -> tuple[Pod, ...]:
        """Our pods of some components that are there to stay."""
        return tuple(pod for pod in self.pods if pod.component in components and not pod.leaving)

    @property
    def grouped(self) -> bool:
        """Whether the arms are LeaderWorkerSets; settled at acceptance."""
        return bool(self.record.group) if self.record is not None else self.run.spec.arms.template.grouped

    @property
    def pods_per_arm(self) -> int:
        """How many pods each arm should have."""
        return self.run.spec.arms.replicas * (pods_each(self.record.source) if self.record is not None else 1)

    def arm(self, arm: str) -> Manifest | None:
        """The workload of an arm: its LeaderWorkerSet, or its Deployment."""
        return self.object(groups.KIND, groups.set_of(arm)) if self.grouped else self.object("Deployment", arm)

    @property
    def arms_stand(self) -> bool:
        """Whether an arm is there: its removal is one step, so what is seen is about the run and not about its end."""
        return any(self.arm(arm) is not None for arm in self.run.spec.made_arms)

    def all_ready(self, component: str) -> bool:
        """Whether a component's workload is there and every replica it wants is ready, in the newest template."""
        workload = self.arm(component) if component in self.run.spec.made_arms else self.object("Deployment", component)
        if workload is None:
            return False
        wanted, status = workload["spec"].get("replicas", 1), workload.get("status", {})
        generation = workload["metadata"].get("generation", 0)
        # The status of a LeaderWorkerSet says it only since LWS 0.9; a set of ours is never changed once it is made.
        observed = status.get("observedGeneration", generation if self.grouped else 0)
        return bool(
            wanted > 0
            and observed >= generation
            and status.get("updatedReplicas", 0) >= wanted
            and status.get("readyReplicas", 0) >= wanted
        )

    def why_waiting(self, component: str) -> str:
        """Why pods of a component are not there or not ready, where the cluster says it."""
        of_pods = next((pod.waiting for pod in self.pods_of(component) if pod.waiting), "")
        conditions = ((self.object("Deployment", component) or {}).get("status") or {}).get("conditions", [])
        refused = next((c for c in conditions if c["type"] == "ReplicaFailure" and c["status"] == "True"), None)
        return of_pods or (f"{refused['reason']} {refused.get('message', '')}"[:200] if refused else "")

    def dead_mirrors(self) -> frozenset[str]:
        """Mirror identities that will never count again: the pod is gone, or its process was started anew."""
        alive = {pod.uid for pod in self.pods if pod.component == names.MIRROR}
        newest = self.books.newest_mirrors()
        lasting = {identity(evidence.source) for uid, evidence in newest.items() if uid in alive}
        return frozenset(self.books.mirrors.keys() - lasting)
