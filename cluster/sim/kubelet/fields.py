"""The downward API: what a pod may be told about itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.sim.kubelet import quantities, shapes
from cluster.sim.kubelet.objects import MissingError
from cluster.sim.kubelet.shapes import Json

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod, and what its kubelet has found out about it.

    Attributes:
        pod: The record.
        address: The pod's own; "" before it has one.
        host_address: Its node's.
        allocatable: What the node has, for limits that aren't set.
    """

    pod: Json
    address: str = ""
    host_address: str = ""
    allocatable: Mapping[str, str] = field(default_factory=dict)

    def field(self, path: str) -> str:
        """The value of a `fieldRef`.

        Raises:
            MissingError: There is no such field.
        """
        found = _SUBSCRIPT.fullmatch(path)
        if found:
            return str((self.pod["metadata"].get(found[1]) or {}).get(found[2], ""))
        if path in ("metadata.labels", "metadata.annotations"):
            pairs = self.pod["metadata"].get(path.split(".")[1]) or {}
            return "\n".join(f'{key}="{_escaped(str(pairs[key]))}"' for key in sorted(pairs))
        plain = self._plain()
        if path not in plain:
            raise MissingError(f"unsupported fieldPath: {path}")
        return plain[path]

    def _plain(self) -> dict[str, str]:
        spec = self.pod["spec"]
        return {
            "metadata.name": shapes.name_of(self.pod),
            "metadata.namespace": shapes.namespace_of(self.pod),
            "metadata.uid": shapes.uid_of(self.pod),
            "spec.nodeName": shapes.node_of(self.pod),
            "spec.serviceAccountName": str(spec.get("serviceAccountName") or "default"),
            "status.podIP": self.address,
            "status.podIPs": self.address,
            "status.hostIP": self.host_address,
            "status.hostIPs": self.host_address,
        }

    def resource(self, ref: Json, container: Json | None = None) -> str:
        """The value of a `resourceFieldRef`: a limit or a request, in units of the divisor.

        Args:
            ref: The reference.
            container: Whose resources are meant where the reference names none.

        Raises:
            MissingError: There is no such container or resource.
        """
        name = ref.get("containerName")
        if name:
            container = next((one for one in shapes.all_containers(self.pod) if one["name"] == name), None)
        if container is None:
            raise MissingError(f"container {name} not found")
        sort, _, resource = str(ref["resource"]).partition(".")
        resources = container.get("resources") or {}
        value = (resources.get(sort) or {}).get(resource)
        if value is None and sort == "limits":
            value = self.allocatable.get(resource)
        return str(quantities.in_units(value or 0, ref.get("divisor") or 1))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
