"""The environment and the command of a container, from all that Kubernetes draws them from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cluster.sim.kubelet import objects, shapes
from cluster.sim.kubelet.fields import PodFacts
from cluster.sim.kubelet.objects import Objects, Reference
from cluster.sim.kubelet.shapes import Json

_REFERENCE = re.compile(r"\$(\$|\(([^()$]*)\))")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def references(container: Json) -> tuple[Reference, ...]:
    """The objects that a container's environment is drawn from."""

    def each() -> Iterator[Reference]:
        for source in container.get("envFrom") or []:
            if "configMapRef" in source:
                yield objects.config_map(source["configMapRef"])
            if "secretRef" in source:
                yield objects.secret(source["secretRef"])
        for one in container.get("env") or []:
            source = one.get("valueFrom") or {}
            if "configMapKeyRef" in source:
                yield objects.config_map(source["configMapKeyRef"])
            if "secretKeyRef" in source:
                yield objects.secret(source["secretKeyRef"])

    return objects.distinct(each())


def expand(text: str, env: Mapping[str, str]) -> str:
    """Put values for `$(NAME)`; a name that nobody has set stays as it is, and `$$` is a plain dollar."""

    def put(found: re.Match[str]) -> str:
        return "$" if found[1] == "$" else env.get(found[2], found[0])

    return _REFERENCE.sub(put, text)


def resolve(
    container: Json, facts: PodFacts, found: Objects, services: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """A container's environment.

    Args:
        container: Its spec.
        facts: Its pod.
        found: The objects that it refers to.
        services: What `service_variables` gave.
        given: What the image and the device plugins set; all else beats it.

    Raises:
        objects.MissingError: Something that it needs isn't there.
    """
    env = {"PATH": _DEFAULT_PATH, "HOME": "/root", "HOSTNAME": hostname(facts.pod), **given, **services}
    for source in container.get("envFrom") or []:
        ref = objects.config_map(source["configMapRef"]) if "configMapRef" in source else None
        data = found.data(ref or objects.secret(source["secretRef"]))
        prefix = source.get("prefix") or ""
        env |= {prefix + key: value.decode(errors="replace") for key, value in data.items()}
    for one in container.get("env") or []:
        value = _value(one, container, facts, found, env)
        if value is not None:
            env[one["name"]] = value
    return env


def _value(one: Json, container: Json, facts: PodFacts, found: Objects, env: Mapping[str, str]) -> str | None:
    source = one.get("valueFrom")
    if not source:
        return expand(str(one.get("value") or ""), env)
    if "fieldRef" in source:
        return facts.field(source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return facts.resource(source["resourceFieldRef"], container)
    if "configMapKeyRef" in source:
        ref = source["configMapKeyRef"]
        return found.value(objects.config_map(ref), ref["key"])
    ref = source["secretKeyRef"]
    return found.value(objects.secret(ref), ref["key"])


def command(container: Json, entrypoint: Sequence[str], cmd: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """What a container runs: `command` stands for the image's both halves, `args` for the second."""
    first: Iterable[str] = container.get("command") or ()
    second: Iterable[str] = container.get("args") or ()
    if not first:
        first, second = entrypoint, second or cmd
    return tuple(expand(str(word), env) for word in (*first, *second))


def hostname(pod: Json) -> str:
    """A pod's host name: as it asks, else its name, which may be longer than Linux allows."""
    return str(pod["spec"].get("hostname") or shapes.name_of(pod)[:63].rstrip("-."))


def service_variables(pod: Json, services: Iterable[Json]) -> dict[str, str]:
    """The variables by which a pod may find the services of its namespace, and the API server."""
    env: dict[str, str] = {}
    linked = pod["spec"].get("enableServiceLinks") is not False
    for service in services:
        place = (shapes.namespace_of(service), shapes.name_of(service))
        is_api = place == ("default", "kubernetes")
        if service["spec"].get("clusterIP") in (None, "", "None") or not service["spec"].get("ports"):
            continue
        if is_api or (linked and place[0] == shapes.namespace_of(pod)):
            env |= _of_service(service)
    return env


def _of_service(service: Json) -> dict[str, str]:
    name = shapes.name_of(service).upper().replace("-", "_").replace(".", "_")
    host, ports = service["spec"]["clusterIP"], service["spec"]["ports"]
    env = {f"{name}_SERVICE_HOST": host, f"{name}_SERVICE_PORT": str(ports[0]["port"])}
    for index, port in enumerate(ports):
        number, protocol = port["port"], str(port.get("protocol") or "TCP")
        address = f"{protocol.lower()}://{host}:{number}"
        if port.get("name"):
            env[f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(number)
        if index == 0:
            env[f"{name}_PORT"] = address
        stem = f"{name}_PORT_{number}_{protocol.upper()}"
        env |= {stem: address, f"{stem}_PROTO": protocol.lower(), f"{stem}_PORT": str(number), f"{stem}_ADDR": host}
    return env
