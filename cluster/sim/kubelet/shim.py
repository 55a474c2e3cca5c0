"""What stands between the kubelet and a container's process; a file for a bare interpreter, standard library only.

    shim.py pause KUBELET_PID HOSTNAME       holds a pod's network, IPC and host name; says "ready"
    shim.py run KUBELET_PID SPEC.json        makes the root file system and runs the command as PID 1 of its namespace
    shim.py exec KUBELET_PID SPEC.json PID   runs a command inside a container whose PID 1 has that number

Everything ends with the kubelet, whatever ends that: the shim asks the kernel to be killed when the kubelet dies, its
child asks the same of the shim, and a PID namespace ends with its first process. Mounts end with their namespace.
The image is the machine's own root file system under a throw-away overlay: a container may write anywhere.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWUTS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_PDEATHSIG, _NO_NEW_PRIVS = 1, 38
_RDONLY, _NOSUID, _REMOUNT, _BIND, _REC, _SLAVE = 1, 2, 32, 4096, 16384, 1 << 19
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_OLD = "/.oldroot"
_START_FAILED = 128


def main() -> None:
    mode, kubelet, *rest = sys.argv[1:]
    _check(_LIBC.prctl(_PDEATHSIG, signal.SIGKILL), "prctl")
    if os.getppid() != int(kubelet):
        sys.exit("the kubelet is gone")
    if mode == "pause":
        pause(rest[0])
    with open(rest[0], encoding="utf-8") as file:  # noqa: PTH123 - a bare interpreter starts twice as fast without pathlib
        spec = json.load(file)
    if mode == "run":
        supervise(spec)
    enter(spec, int(rest[1]))


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def pause(hostname: str) -> None:
    """Hold new namespaces until told to end."""
    _check(_LIBC.unshare(_NEWNET | _NEWIPC | _NEWUTS), "unshare")
    _set_hostname(hostname)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.write(1, b"ready\n")
    while True:
        signal.pause()


def _set_hostname(name: str) -> None:
    encoded = name.encode()
    _check(_LIBC.sethostname(encoded, len(encoded)), "sethostname")


def supervise(spec: dict[str, Any]) -> None:
    """Run a container, pass signals on to it, and end as it ends (128+N for signal N).

    Whether it could be started is told to the kubelet: the number of its first process, or what went wrong.
    """
    report = spec["report"]
    os.set_inheritable(report, False)
    _join(spec["pause"], ("ipc", "uts") if spec["host_network"] else ("ipc", "uts", "net"))
    _check(_LIBC.unshare(_NEWPID), "unshare")
    alive, held = os.pipe()
    errors, failing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        os.close(errors)
        _run_child(spec, failing, alive, contain)
    _pass_signals_to(child)  # before anybody is told that there is somebody to signal
    os.close(failing)
    wrong = os.read(errors, 4096)  # ends when the child has become the command
    os.write(report, wrong or f"pid:{child}".encode())
    os.close(report)
    _wait_for(child)


def enter(spec: dict[str, Any], target: int) -> None:
    """Run a command in the namespaces of another process."""
    alive, held = os.pipe()
    _join_cgroups(spec)
    _join(target, ("ipc", "uts", "net", "pid", "mnt"))
    child = os.fork()
    if child == 0:
        os.close(held)
        _run_child(spec, 2, alive, lambda _: None)
    _pass_signals_to(child)
    _wait_for(child)


def _join(pid: int, kinds: "tuple[str, ...]") -> None:
    opened = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
    for one, kind in zip(opened, kinds, strict=True):
        _check(_LIBC.setns(one, 0), f"setns {kind}")
        os.close(one)


def _pass_signals_to(child: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _: os.kill(child, got))


def _wait_for(child: int) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for own in range(3):  # the log ends when the container's own ends of it are closed
        os.dup2(null, own)
    status = os.waitpid(child, 0)[1]
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _run_child(spec: dict[str, Any], errors: int, alive: int, prepare: Any) -> None:
    """In the child: end with the shim, make what is needed, become the command."""
    try:
        _check(_LIBC.prctl(_PDEATHSIG, signal.SIGKILL), "prctl")
        if select.select([alive], [], [], 0)[0]:  # the shim's end is closed: it died before we asked to die with it
            os._exit(_START_FAILED)
        os.close(alive)
        prepare(spec)
        _become_user(spec)
        os.chdir(spec["workdir"] or "/")
        _become(spec["argv"], spec["env"], errors)
    except BaseException as wrong:  # noqa: BLE001 - a half-made container must never run on
        os.write(errors, f"{type(wrong).__name__}: {wrong}".encode())
    os._exit(_START_FAILED)


def _become(argv: list[str], env: dict[str, str], errors: int) -> None:
    try:
        os.execvpe(argv[0], argv, env)
    except FileNotFoundError:
        why = f"stat {argv[0]}: no such file or directory" if "/" in argv[0] else "executable file not found in $PATH"
        os.write(errors, f'exec: "{argv[0]}": {why}'.encode())
    except PermissionError:
        os.write(errors, f'exec: "{argv[0]}": permission denied'.encode())


def _become_user(spec: dict[str, Any]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    if spec["no_new_privileges"]:
        _check(_LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    if spec["groups"] or spec["uid"] or spec["gid"]:
        os.setgroups(spec["groups"])
    if spec["gid"]:
        os.setgid(spec["gid"])
    if spec["uid"]:
        os.setuid(spec["uid"])


def _join_cgroups(spec: dict[str, Any]) -> None:
    for file_name in spec["cgroups"]:
        with open(file_name, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("0")


def contain(spec: dict[str, Any]) -> None:
    """Build the root file system and move into it."""
    _join_cgroups(spec)
    _check(_LIBC.unshare(_NEWNS), "unshare")  # in the child: the shim must not move its root along
    folder = spec["folder"]
    for name in ("upper", "work", "rootfs"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)  # noqa: PTH103
    _mount(None, "/", flags=_REC | _SLAVE)
    layers = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    _mount("overlay", f"{folder}/rootfs", "overlay", data=layers)
    sources = [os.path.realpath(mount["source"]) for mount in spec["mounts"]]
    os.chdir(f"{folder}/rootfs")
    os.makedirs(_OLD.strip("/"), exist_ok=True)  # noqa: PTH103
    _check(_LIBC.syscall(_PIVOT_ROOT[os.uname().machine], b".", _OLD.strip("/").encode()), "pivot_root")
    os.chdir("/")  # only now: a link such as /var/run must be followed inside the container
    _mount_system()
    for mount, source in zip(spec["mounts"], sources, strict=True):
        target = _target(mount["path"], os.path.isdir(_OLD + source))  # noqa: PTH112
        _mount(_OLD + source, target, flags=_BIND | _REC)
        if mount["read_only"]:
            _mount(None, target, flags=_BIND | _REMOUNT | _RDONLY)
    if spec["workdir"]:
        os.makedirs(spec["workdir"], exist_ok=True)  # noqa: PTH103
    _check(_LIBC.umount2(_OLD.encode(), _DETACH), "umount")
    os.rmdir(_OLD)  # noqa: PTH106
    if spec["read_only_root"]:
        _mount(None, "/", flags=_BIND | _REMOUNT | _RDONLY)


def _mount_system() -> None:
    _mount("proc", _target("/proc", True), "proc", _NOSUID)
    _mount(f"{_OLD}/sys", _target("/sys", True), flags=_BIND | _REC)
    _mount("tmpfs", _target("/dev", True), "tmpfs", _NOSUID, "size=1m,mode=755")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        _mount(f"{_OLD}/dev/{name}", _target(f"/dev/{name}", False), flags=_BIND)
    links = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
    for name, leads_to in links.items():
        os.symlink(leads_to, f"/dev/{name}")  # noqa: PTH211
    _mount("devpts", _target("/dev/pts", True), "devpts", _NOSUID, "newinstance,ptmxmode=0666,mode=620")
    _mount("tmpfs", _target("/dev/shm", True), "tmpfs", 0, "size=64m,mode=1777")
    _mount("tmpfs", _target("/tmp", True), "tmpfs", 0, "mode=1777")


def _mount(source: Any, target: str, kind: Any = None, flags: int = 0, data: Any = None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    result = _LIBC.mount(*words, flags, None if data is None else data.encode())
    _check(result, f"mount {source} on {target}")


def _target(path: str, is_folder: bool) -> str:
    if not os.path.exists(path):  # noqa: PTH110
        os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        if not is_folder:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    return path


if __name__ == "__main__":
    main()
