"""An API server in memory with the interface of `Cluster`: enough to drive passes. It knows nothing of a run."""

import copy
import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from shadowrun_operator.cluster.client import KINDS, ApiRefusal, ApiUnreachable
from shadowrun_operator.manifests.names import KIND, Manifest

from tests.unit.reconcile.routes import patched
from tests.unit.reconcile.world import _patch_containers


class FakeCluster:
    """Objects by (kind, namespace, name); `refusals` answers a call once with an error, `forbidden` every time."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.refusals: dict[tuple[str, str], ApiRefusal] = {}
        self.forbidden: dict[tuple[str, str], ApiRefusal | ApiUnreachable] = {}
        self.writable = True
        self._uids = itertools.count(1)

    async def close(self) -> None:
        self.calls.append(("close", "", ""))

    def may_write(self) -> bool:
        return self.writable

    def put(self, manifest: Manifest) -> None:
        """Add an object as a user would."""
        found = copy.deepcopy(manifest)
        found["metadata"].setdefault("uid", f"uid-{next(self._uids)}")
        found["metadata"].setdefault("generation", 1)
        self.objects[self._key(found)] = found

    def names(self, kind: str) -> list[str]:
        """Names of all objects of a kind."""
        return sorted(name for k, _, name in self.objects if k == kind)

    async def get(self, kind: str, namespace: str, name: str, *, bare: bool = False) -> Manifest | None:
        self._refuse("get", kind)
        found = self.objects.get((kind, namespace, name))
        return found and _versioned(found)

    async def list_few(self, kind: str, most: int, *, selector: str = "") -> list[Manifest] | None:
        found = await self.list(kind, selector=selector)
        return found if len(found) <= most else None

    async def list_if_served(self, kind: str, namespace: str, *, selector: str) -> list[Manifest] | None:
        return await self.list(kind, namespace, selector=selector)

    async def list(
        self, kind: str, namespace: str = "", *, selector: str = "", fields: str = "", bare: bool = False
    ) -> list[Manifest]:
        self._refuse("list", kind)
        node = fields.removeprefix("spec.nodeName=").partition(",")[0]
        wanted = dict(part.split("=") for part in selector.split(",")) if selector else {}
        served = {"apiVersion": KINDS[kind][0], "kind": kind}
        return [
            {**({"metadata": _versioned(item)["metadata"]} if bare else _versioned(item)), **served}
            for (k, ns, _), item in self.objects.items()
            if k == kind
            and namespace in ("", ns)
            and wanted.items() <= item["metadata"].get("labels", {}).items()
            and node in ("", item.get("spec", {}).get("nodeName"))
        ]

    async def create(self, manifest: Manifest) -> Manifest | None:
        self._note("create", manifest)
        meta = manifest["metadata"]
        if "generateName" in meta:
            manifest = {**manifest, "metadata": {**meta, "name": f"{meta['generateName']}{next(self._uids)}"}}
        if self._key(manifest) in self.objects:
            return None
        self.put(manifest)
        return _versioned(self.objects[self._key(manifest)])

    async def apply(self, manifest: Manifest) -> Manifest:
        self._note("apply", manifest)
        before = self.objects.get(self._key(manifest), {})
        meta = {**manifest["metadata"]} | {k: v for k, v in before.get("metadata", {}).items() if k == "uid"}
        self.put({**manifest, "metadata": meta, "status": before.get("status", {})})
        return _versioned(self.objects[self._key(manifest)])

    async def apply_status(self, manifest: Manifest) -> Manifest:
        self._note("apply_status", manifest)
        self.objects[self._key(manifest)]["status"] = copy.deepcopy(manifest["status"])
        return self.objects[self._key(manifest)]

    async def patch(self, kind: str, namespace: str, name: str, body: Manifest) -> Manifest:
        self._refuse("patch", kind)
        self.calls.append(("patch", kind, name))
        found = self.objects[kind, namespace, name]
        found["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        found["metadata"]["generation"] += 1
        found["spec"]["replicas"] = body["spec"]["replicas"]
        _patch_containers(found["spec"]["template"], body["spec"]["template"])
        return found

    async def merge(self, manifest: Manifest) -> Manifest:
        """As a JSON merge patch does it to `data`."""
        self._note("merge", manifest)
        before = self.objects.get(self._key(manifest), manifest)
        data = before.get("data", {}) | manifest.get("data", {})
        self.put({**before, "data": {key: value for key, value in data.items() if value is not None}})
        return self.objects[self._key(manifest)]

    async def edit(
        self, kind: str, namespace: str, name: str, change: Callable[[Manifest], Sequence[Manifest]]
    ) -> None:
        """As `Cluster.edit`, with nobody else at work."""
        self._refuse("edit", kind)
        found = self.objects.get((kind, namespace, name))
        patch = [] if found is None else change(copy.deepcopy(found))
        if found is not None and patch:
            self.calls.append(("edit", kind, name))
            self.objects[kind, namespace, name] = patched(found, patch)

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        found = self.objects.get((kind, namespace, name))
        if uid and found is not None and found["metadata"]["uid"] != uid:
            return
        self._refuse("delete", kind)
        self.calls.append(("delete", kind, name))
        gone = self.objects.pop((kind, namespace, name), None)
        if kind == "Deployment" and gone is not None:
            labels = gone["metadata"]["labels"].items()
            pods = [key for key, item in self.objects.items() if key[0] == "Pod"]
            for key in (key for key in pods if labels <= self.objects[key]["metadata"]["labels"].items()):
                del self.objects[key]

    def _note(self, verb: str, manifest: Manifest) -> None:
        self._refuse(verb, manifest["kind"])
        self.calls.append((verb, manifest["kind"], manifest["metadata"].get("name", "")))

    def _refuse(self, verb: str, kind: str) -> None:
        refusal = self.refusals.pop((verb, kind), None) or self.forbidden.get((verb, kind))
        if refusal is not None:
            raise refusal

    @staticmethod
    def _key(manifest: Manifest) -> tuple[str, str, str]:
        meta: dict[str, Any] = manifest["metadata"]
        return manifest["kind"], meta["namespace"], meta["name"]


def _versioned(item: Manifest) -> Manifest:
    """What is remembered by its version has another one whenever anything in it is another, whoever changed it."""
    found = copy.deepcopy(item)
    if found["kind"] in ("ConfigMap", KIND):
        found["metadata"]["resourceVersion"] = str(zlib.crc32(repr(item).encode()))
    return found
