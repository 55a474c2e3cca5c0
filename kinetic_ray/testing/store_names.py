"""Names for a store: those that it must refuse, those that it must hold, and every method that takes one."""

from __future__ import annotations

from collections.abc import Callable

from kinetic_ray.store import Blob, Store

#: Each could leave the store, or is more than some medium can spell.
HOSTILE_KEYS = (
    "",
    "/",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    ".",
    "a/./b",
    "a//b",
    "a\\b",
    "a\0b",
    "a\nb",
    "a\x7f",
    "\ud800",
    ".tmp/x",
    "x" * 256,
    "é" * 128,
    "/".join(["x" * 200] * 6),
)

#: Unusual, and nothing but names.
ODD_KEYS = (
    "a b/ c ",
    "-rf",
    "é/日本語/😀",
    "100%2e%2e",
    "*?[x]{y}",
    "#frag?query=1&x",
    "a:b/c::d",
    "~/$HOME/`id`",
    "'quoted'/\"double\"",
    "...",
    ".hidden/..x",
    "x" * 255,
    "é" * 127,
    "CON/nul.txt",
)

#: Every method that takes a key, called with one.
BY_KEY: dict[str, Callable[[Store, str], object]] = {
    "create": lambda store, key: store.create(key, b""),
    "put": lambda store, key: store.put(key, b""),
    "get": lambda store, key: store.get(key),
    "find": lambda store, key: store.find(key),
    "exists": lambda store, key: store.exists(key),
    "size": lambda store, key: store.size(key),
    "delete": lambda store, key: store.delete(key),
    "delete_tree": lambda store, key: store.delete_tree(key),
    "write_object": lambda store, key: store.write_object(key, []),
    "verify_object": lambda store, key: store.verify_object(key, Blob("0" * 64, 0)),
    "read_range": lambda store, key: store.read_range(key, 0),
    "append_path": lambda store, key: store.append_path(key),
}


def blob_key(blob: Blob) -> str:
    """Where a blob lies, which is part of the store's format."""
    return f"blobs/{blob.sha256[:2]}/{blob.sha256}"
