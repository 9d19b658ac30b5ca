"""One way to the API server: every call has a time limit, every refusal is an `ApiRefusal`. Decides nothing."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypedDict
from urllib.parse import quote, urlencode
from urllib.request import getproxies

import aiohttp
import msgspec
from kubernetes.aio import config as kubeconfig
from kubernetes.aio.client import ApiClient, Configuration

from shadowrun_operator.manifests import groups
from shadowrun_operator.manifests.names import API_VERSION, KIND, Manifest

FIELD_MANAGER = "shadowrun"
TIMEOUT_S = 10.0
_PAGE = 500
EDITS = 8
"""How often an edit is made anew because somebody else was quicker."""
_EDIT_AGAIN_S = 0.05
"""Two that keep being in each other's way wait up to so much longer after each try, each its own time."""
GATEWAY_API = "gateway.networking.k8s.io/v1"
_JSON = "application/json"
_BARE = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_BARE_LIST = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

KINDS = {
    KIND: (API_VERSION, "shadowruns"),
    "ConfigMap": ("v1", "configmaps"),
    "Deployment": ("apps/v1", "deployments"),
    "Event": ("v1", "events"),
    "Gateway": (GATEWAY_API, "gateways"),
    "GatewayClass": (GATEWAY_API, "gatewayclasses"),
    "HTTPRoute": (GATEWAY_API, "httproutes"),
    groups.KIND: (groups.API_VERSION, "leaderworkersets"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "Node": ("v1", "nodes"),
    "Pod": ("v1", "pods"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "StatefulSet": ("apps/v1", "statefulsets"),
}
"""Every kind the operator touches: its API version and plural."""

_Metadata = TypedDict(
    "_Metadata",
    {
        "name": Any,
        "namespace": Any,
        "uid": Any,
        "resourceVersion": Any,
        "generation": Any,
        "creationTimestamp": Any,
        "deletionTimestamp": Any,
        "labels": Any,
        "annotations": Any,
        "ownerReferences": Any,
        "finalizers": Any,
        "continue": Any,  # of a list
    },
    total=False,
)


class _Answer(TypedDict, total=False):
    """An object or a list of them. Not even read is who wrote which field, often the larger half of an answer."""

    apiVersion: Any
    kind: Any
    metadata: _Metadata
    items: "list[_Answer] | None"
    spec: Any
    status: Any
    type: Any
    data: Any
    binaryData: Any
    gitVersion: Any


_ANSWERS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Answer)


@dataclass(eq=False)  # not frozen: the interpreter writes tracebacks into exceptions
class ApiRefusal(Exception):  # noqa: N818  a refusal is an answer of the server, not an error of ours
    """The API server said no: HTTP `status`, its `reason` and `message`."""

    status: int
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"


class ApiUnreachable(Exception):  # noqa: N818  a state of the network
    """No answer from the API server within the time limit."""


class Cluster:
    """Objects in, objects out. Kinds are those of `KINDS`; objects are plain JSON."""

    def __init__(self, api: ApiClient, may_write: Callable[[], bool] = lambda: True) -> None:
        self._api = api
        self._may_write = may_write

    @classmethod
    async def connect(cls, may_write: Callable[[], bool] = lambda: True) -> Self:
        """In a pod: its service account. Elsewhere: the kubeconfig that `KUBECONFIG` names, or the default one.

        `may_write` is asked before every call that would change something.
        """
        # The environment is asked for proxies at every request, in a thread: only where it names some.
        configuration = Configuration(client_session_kwargs={"trust_env": bool(getproxies())})
        try:
            kubeconfig.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except kubeconfig.ConfigException:
            await kubeconfig.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return cls(ApiClient(configuration=configuration), may_write)

    def may_write(self) -> bool:
        """Whether this process may change anything now."""
        return self._may_write()

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def version(self) -> str:
        """The version of the API server, such as v1.35.1; "" where it says none."""
        return str((await self._call("GET", "/version")).get("gitVersion", ""))

    async def get(self, kind: str, namespace: str, name: str, *, bare: bool = False) -> Manifest | None:
        """The object, or None where there is none. `bare`: its metadata alone."""
        try:
            return await self._call("GET", _path(kind, namespace, name), accept=_BARE if bare else _JSON)
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    async def list_few(self, kind: str, most: int, *, selector: str = "") -> list[Manifest] | None:
        """All objects of a kind that match a label selector, if they are no more than `most`; else None."""
        query = {"limit": str(most + 1)} | ({"labelSelector": selector} if selector else {})
        page = await self._call("GET", _path(kind, ""), query=query)
        found: list[Manifest] = page["items"]
        return None if len(found) > most or page["metadata"].get("continue") else found

    async def list_if_served(self, kind: str, namespace: str, *, selector: str) -> list[Manifest] | None:
        """As `list`; None where the server does not know the kind, whose definition may not be installed."""
        try:
            return await self.list(kind, namespace, selector=selector)
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    async def list(
        self, kind: str, namespace: str = "", *, selector: str = "", fields: str = "", bare: bool = False
    ) -> list[Manifest]:
        """All objects, of one namespace or of all, that match a label selector and a field selector.

        `bare`: their metadata alone.
        """
        found: list[Manifest] = []
        selectors = {"labelSelector": selector, "fieldSelector": fields}
        query = {"limit": str(_PAGE)} | {key: value for key, value in selectors.items() if value}
        while True:
            page = await self._call("GET", _path(kind, namespace), query=query, accept=_BARE_LIST if bare else _JSON)
            version, _ = KINDS[kind]
            listed = page["items"] or ()  # of bare ones null, where there are none
            found += [{**item, "apiVersion": version, "kind": kind} for item in listed]
            following = page["metadata"].get("continue")
            if not following:
                return found
            query = {**query, "continue": following}

    async def create(self, manifest: Manifest) -> Manifest | None:
        """Create; None where an object of that name exists already. A field that the server does not know is refused:
        dropping it could mean something else."""
        meta = manifest["metadata"]
        try:
            return await self._call("POST", _path(manifest["kind"], meta["namespace"]), manifest, query=_STRICT)
        except ApiRefusal as refusal:
            if refusal.reason == "AlreadyExists":
                return None
            raise

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply: creates it, or brings the fields the manifest names to its values."""
        meta = manifest["metadata"]
        path = _path(manifest["kind"], meta["namespace"], meta["name"])
        return await self._call("PATCH", path, manifest, content="application/apply-patch+yaml", query=_OWNERSHIP)

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Server-side apply of the status subresource; `manifest` holds nothing but identity and status."""
        meta = manifest["metadata"]
        path = _path(manifest["kind"], meta["namespace"], meta["name"]) + "/status"
        return await self._call("PATCH", path, manifest, content="application/apply-patch+yaml", query=_OWNERSHIP)

    async def patch(self, kind: str, namespace: str, name: str, body: Manifest) -> Manifest:
        """Strategic-merge patch of an object of ours. A field that the server does not know is refused, not dropped."""
        return await self._call(
            "PATCH",
            _path(kind, namespace, name),
            body,
            content="application/strategic-merge-patch+json",
            query=_STRICT,
        )

    async def merge(self, manifest: Manifest) -> Manifest:
        """JSON merge patch: what the manifest does not name stays, null removes; made where it is not there.

        Raises the refusal of the patch where somebody deletes and makes the object at the same time: try again.
        """
        meta = manifest["metadata"]
        path, query = _path(manifest["kind"], meta["namespace"], meta["name"]), {"fieldManager": FIELD_MANAGER}
        try:
            return await self._call("PATCH", path, manifest, content="application/merge-patch+json", query=query)
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise
            made = await self.create(_without_null(manifest))
            if made is not None:
                return made
        return await self._call("PATCH", path, manifest, content="application/merge-patch+json", query=query)

    async def replace(self, manifest: Manifest) -> Manifest:
        """PUT: the whole object. With a `resourceVersion` only in place of that version, else 409."""
        meta = manifest["metadata"]
        path = _path(manifest["kind"], meta["namespace"], meta["name"])
        return await self._call("PUT", path, manifest, query={"fieldManager": FIELD_MANAGER})

    async def edit(
        self, kind: str, namespace: str, name: str, change: Callable[[Manifest], Sequence[Manifest]]
    ) -> None:
        """JSON patch of an object that is not ours, made by `change` from what is there now; none where it is empty.

        The patch names the version it was made from. Where that is another one by then, all is done anew. A field that
        the server does not know is refused, for dropping it could mean something else.
        """
        path = _path(kind, namespace, name)
        for attempt in range(EDITS):
            found = await self.get(kind, namespace, name)
            patch = [] if found is None else change(found)
            if not patch:
                return
            try:
                await self._call("PATCH", path, patch, content="application/json-patch+json", query=_STRICT)
                return
            except ApiRefusal as refusal:
                if refusal.status != 409 or attempt == EDITS - 1:
                    raise
            await asyncio.sleep(random.uniform(0, _EDIT_AGAIN_S * (attempt + 1)))  # noqa: S311 - spreads tries, no secret

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        """Delete, its dependants in the background; nothing happens where it is gone already.

        With a `uid` only that very object: another of the name stays.
        """
        options: Manifest = {"propagationPolicy": "Background"} | ({"preconditions": {"uid": uid}} if uid else {})
        try:
            await self._call("DELETE", _path(kind, namespace, name), options)
        except ApiRefusal as refusal:
            if refusal.status != 404 and not (uid and refusal.status == 409):
                raise

    async def _call(
        self,
        method: str,
        path: str,
        body: Manifest | Sequence[Manifest] | None = None,
        *,
        content: str = _JSON,
        query: dict[str, str] | None = None,
        accept: str = _JSON,
    ) -> Manifest:
        headers: dict[str, str] = {"Accept": accept, "Content-Type": content}
        if method != "GET" and not self._may_write():
            raise ApiUnreachable(f"{method} {path}: this process may not write, another replica may be acting")
        try:
            # Authentication (and the renewal of a pod's token) is the library's; the rest is too plain to need it.
            _, url, headers, _, _ = await self._api.param_serialize(
                method, path, header_params=headers, auth_settings=["BearerToken"]
            )
            url += "?" + urlencode(query) if query else ""
            answer = await self._api.call_api(method, url, header_params=headers, body=body, _request_timeout=TIMEOUT_S)
            raw = await answer.read()  # type: ignore[no-untyped-call]
        except (TimeoutError, aiohttp.ClientError) as error:
            raise ApiUnreachable(f"{method} {path}: {type(error).__name__}") from error
        if answer.status >= 400:
            raise _refusal(answer.status, raw)
        parsed: Manifest = _ANSWERS.decode(raw) if raw else {}
        return parsed


_OWNERSHIP = {"fieldManager": FIELD_MANAGER, "force": "true"}
_STRICT = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}


def _without_null(value: Any) -> Any:
    """An object as a merge patch would make it of nothing."""
    if not isinstance(value, dict):
        return value
    return {key: _without_null(item) for key, item in value.items() if item is not None}


def _path(kind: str, namespace: str, name: str = "") -> str:
    version, plural = KINDS[kind]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{within}/{plural}" + (f"/{quote(name, safe='')}" if name else "")


def _refusal(status: int, raw: bytes) -> ApiRefusal:
    try:
        answer: Any = json.loads(raw)
    except ValueError:
        return ApiRefusal(status, "Unknown", raw[:200].decode(errors="replace"))
    return ApiRefusal(status, answer.get("reason", "Unknown"), answer.get("message", ""))
