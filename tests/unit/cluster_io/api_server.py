"""An API server in memory, request by request, for the operator's own client. It knows nothing of a run.

It stores, counts versions and generations, refuses what is stale, collects what an owner leaves behind, and writes down
which rights every request would need. It validates nothing and merges no list.
"""

import asyncio
import contextlib
import copy
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from shadowrun_operator.cluster.client import KINDS, ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.manifests.names import Manifest

from tests.unit.reconcile.routes import patched
from tests.unit.reconcile.world import _patch_containers

Key = tuple[str, str, str]
"""Kind, namespace, name; a kind without namespaces has ""."""

Right = tuple[str, str, str]
"""API group, resource, verb."""

_BY_RESOURCE = {(version.rpartition("/")[0], plural): kind for kind, (version, plural) in KINDS.items()}


class Killed(BaseException):
    """The process is dead: no `except Exception` of its own saves it."""


class Fault:
    """What happens to one request: an error instead of it, or an error although it was carried out."""

    def __init__(self, error: BaseException, *, carried_out: bool = False) -> None:
        self.error, self.carried_out = error, carried_out


class ApiServer:
    """`used` holds the rights that the requests so far needed, `given` how often an object was given as a whole."""

    def __init__(self) -> None:
        self.objects: dict[Key, Manifest] = {}
        self.used: set[Right] = set()
        self.given: Counter[str] = Counter()
        self.now = ""
        self._numbers = itertools.count(1)

    def put(self, manifest: Manifest) -> Manifest:
        """Store an object as a user's or a controller's write leaves it."""
        stored = copy.deepcopy(manifest)
        meta = stored["metadata"]
        meta.setdefault("uid", f"uid-{next(self._numbers)}")
        meta.setdefault("generation", 1)
        meta["resourceVersion"] = str(next(self._numbers))
        self.objects[_key(stored)] = stored
        return stored

    def answer(
        self, method: str, path: str, body: Any, content: str, query: dict[str, str], *, counted: bool = True
    ) -> Manifest:
        """One request. Raises `ApiRefusal`; what it gives is a copy."""
        kind, group, resource, namespace, name, part = parsed(path)
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        verb = verbs.get(method) or ("get" if name else "list")
        if counted:
            self.used.add((group, f"{resource}/{part}" if part else resource, verb))
        key = (kind, namespace, name)
        match verb:
            case "list":
                return {"metadata": {}, "items": self._listed(kind, namespace, query)}
            case "create":
                return copy.deepcopy(self._created(kind, body))
        if key not in self.objects and content != "application/apply-patch+yaml":
            raise ApiRefusal(404, "NotFound", f'{resource} "{name}" not found')
        match verb:
            case "get":
                return copy.deepcopy(self.objects[key])
            case "update":
                self._not_stale(key, body)
                return copy.deepcopy(self.put(body))
            case "delete":
                self._deleted(key, body)
                return {}
        if part == "status":
            return self._status_applied(key, body)
        if content == "application/apply-patch+yaml":
            if counted and key not in self.objects:
                self.used.add((group, resource, "create"))
            return copy.deepcopy(self._applied(key, body))
        return copy.deepcopy(self._patched(key, body, content))

    def remove(self, key: Key) -> None:
        """The object is gone, and what it owned with it."""
        gone = self.objects.pop(key, None)
        if gone is None:
            return
        uid = gone["metadata"]["uid"]
        for other, item in list(self.objects.items()):
            owners = item["metadata"].get("ownerReferences", [])
            if any(owner["uid"] == uid for owner in owners):
                self.remove(other)

    def _listed(self, kind: str, namespace: str, query: dict[str, str]) -> list[Manifest]:
        labels = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
        node = query.get("fieldSelector", "").removeprefix("spec.nodeName=").partition(",")[0]
        return [
            copy.deepcopy(item)
            for (k, ns, _), item in self.objects.items()
            if k == kind
            and namespace in ("", ns)
            and labels.items() <= item["metadata"].get("labels", {}).items()
            and node in ("", item.get("spec", {}).get("nodeName"))
        ]

    def _created(self, kind: str, body: Manifest) -> Manifest:
        meta = body["metadata"]
        if "generateName" in meta:
            body = {**body, "metadata": {**meta, "name": f"{meta['generateName']}{next(self._numbers)}"}}
        if _key(body) in self.objects:
            raise ApiRefusal(409, "AlreadyExists", f"{kind} {body['metadata']['name']!r} already exists")
        return self.put(body)

    def _not_stale(self, key: Key, body: Manifest) -> None:
        stored, given = self.objects[key]["metadata"], body["metadata"]
        if any(given.get(field, stored.get(field)) != stored.get(field) for field in ("resourceVersion", "uid")):
            raise ApiRefusal(409, "Conflict", "the object has been modified")

    def _applied(self, key: Key, body: Manifest) -> Manifest:
        """One field manager has all: what is applied is what there is, but for the status and the identity."""
        before = self.objects.get(key)
        if before is None:
            return self.put(body)
        self._not_stale(key, body)
        made = {**body, "metadata": {**body["metadata"]}}
        if "status" in before:
            made["status"] = before["status"]
        return self._replaced(before, made)

    def _status_applied(self, key: Key, body: Manifest) -> Manifest:
        if key not in self.objects:
            raise ApiRefusal(404, "NotFound", f"{key[2]!r} not found")
        self._not_stale(key, body)
        self.objects[key]["status"] = copy.deepcopy(body["status"])
        self.objects[key]["metadata"]["resourceVersion"] = str(next(self._numbers))
        return copy.deepcopy(self.objects[key])

    def _patched(self, key: Key, body: Any, content: str) -> Manifest:
        before = self.objects[key]
        match content:
            case "application/json-patch+json":
                tested = next((op["value"] for op in body if op["path"] == "/metadata/resourceVersion"), None)
                if tested not in (None, before["metadata"]["resourceVersion"]):
                    raise ApiRefusal(409, "Conflict", "the object has been modified")
                return self._replaced(before, patched(before, body))
            case "application/merge-patch+json":
                self._not_stale(key, body)
                return self._replaced(before, merged(before, body))
        made = copy.deepcopy(before)
        made["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations", {}))
        made["spec"]["replicas"] = body["spec"].get("replicas", made["spec"]["replicas"])
        _patch_containers(made["spec"]["template"], body["spec"].get("template", {}))
        return self._replaced(before, made)

    def _replaced(self, before: Manifest, made: Manifest) -> Manifest:
        old = before["metadata"]
        changed = made.get("spec") != before.get("spec")
        made["metadata"] = {**made["metadata"], "uid": old["uid"], "generation": old["generation"] + changed}
        return self.put(made)

    def _deleted(self, key: Key, options: Any) -> None:
        meta = self.objects[key]["metadata"]
        wanted = (options or {}).get("preconditions", {}).get("uid")
        if wanted not in (None, meta["uid"]):
            raise ApiRefusal(409, "Conflict", "the uid in the precondition is another one")
        if meta.get("finalizers"):
            meta.setdefault("deletionTimestamp", self.now)
        else:
            self.remove(key)


class InMemory(Cluster):
    """The operator's client in front of an `ApiServer`, as one process has it. `disturb` may spoil any request."""

    def __init__(self, server: ApiServer, disturb: Callable[[str, str], Fault | None] = lambda *_: None) -> None:
        self._server, self._disturb = server, disturb
        self._may_write = lambda: True
        self.dead = False

    async def close(self) -> None:
        """There is no connection."""

    async def _call(
        self,
        method: str,
        path: str,
        body: Manifest | Sequence[Manifest] | None = None,
        *,
        content: str = "application/json",
        query: dict[str, str] | None = None,
        accept: str = "application/json",
    ) -> Manifest:
        await asyncio.sleep(0)
        if self.dead:
            raise Killed
        fault = self._disturb(method, path)
        if fault is None:
            found = self._server.answer(method, path, body, content, query or {})
            if "PartialObjectMetadata" in accept:
                return _bare(found)
            self._server.given[f"{method} {path}"] += 1
            return found
        if fault.carried_out:
            with contextlib.suppress(ApiRefusal):  # nobody hears of it
                self._server.answer(method, path, body, content, query or {})
        self.dead = isinstance(fault.error, Killed)
        raise fault.error


REFUSALS = (
    ApiRefusal(409, "Conflict", "the object has been modified"),
    ApiRefusal(410, "Expired", "the resource version is too old"),
    ApiRefusal(422, "Invalid", "no"),
    ApiRefusal(429, "TooManyRequests", "later"),
    ApiRefusal(500, "InternalError", "etcd"),
    ApiUnreachable("no answer"),
)
"""What an API server may say to any request."""


def parsed(path: str) -> tuple[str, str, str, str, str, str]:
    """(kind, group, resource, namespace, name, subresource) of a request's path."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource, name, part = [*rest, "", ""][:3]
    return _BY_RESOURCE[group, resource], group, resource, namespace, name, part


def merged(value: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    made = copy.deepcopy(value) if isinstance(value, dict) else {}
    for name, item in patch.items():
        if item is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), item)
    return made


def _bare(found: Manifest) -> Manifest:
    """As a real one says it: null where a list is empty."""
    if "items" not in found:
        return {"kind": "PartialObjectMetadata", "metadata": found["metadata"]}
    return {**found, "items": [_bare(item) for item in found["items"]] or None}


def _key(manifest: Manifest) -> Key:
    meta = manifest["metadata"]
    return manifest["kind"], meta.get("namespace", ""), meta["name"]
