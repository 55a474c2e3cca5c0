"""Calls of an actor's method, again and again with one piece of bytes or none: what Ray works out is worked out once.

`handle.method.remote(data)` builds the method, binds its signature and looks at a dozen options each time, which takes
as long as all the rest of a call. Ray's version is pinned, so what it does then may be done here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Sends a call, with these bytes if any; gives its ref.
Post = Callable[..., Any]


def poster(agent: Any, method: str, name: str) -> Post:
    """The quickest way to call a method that takes one piece of bytes, or nothing.

    Args:
        agent: The actor's handle, or what stands in for it.
        method: Has Ray's usual options and gives one value.
        name: What Ray shows for the calls.
    """
    from ray.actor import ActorHandle

    usual: Post = getattr(agent, method).options(name=name).remote
    return _direct(agent, method, name) if type(agent) is ActorHandle else usual


def _direct(agent: Any, method: str, name: str) -> Post:
    from ray._common.signature import DUMMY_TYPE
    from ray._private.worker import global_worker as worker

    language, actor, cpus = agent._ray_actor_language, agent._ray_actor_id, agent._ray_actor_method_cpus  # noqa: SLF001
    function = agent._ray_function_descriptor[method]  # noqa: SLF001
    # Results, retries, which errors are retried; group, back-pressure, objects per yield, events, transport, labels.
    before, after = (name, 1, 0, False, None, cpus), (b"", -1, 1, True, None, None)

    def post(*data: bytes, _handle: Any = agent) -> Any:  # the handle keeps the actor known to this process
        core = worker.core_worker  # missing once Ray was shut down
        told = [DUMMY_TYPE, *data] if data else []
        return core.submit_actor_task(language, actor, function, told, *before, *after)[0]

    return post
