"""URLs in settings and messages: what of one may be shown, and which are refused for the password in them. Pure."""

from __future__ import annotations


def has_password(url: str) -> bool:
    """Whether a URL carries credentials: a user with a password before its host.

    Example:
        >>> has_password("s3://ann:secret@bucket/x"), has_password("abfs://container@account/x"), has_password("/a:b@c")
        (True, False, False)
    """
    return ":" in _userinfo(url)


def shown_url(url: str) -> str:
    """A URL as a message may have it: without a user, a password or a query, where tokens stand.

    Example:
        >>> shown_url("s3://ann:secret@bucket/x?token=t"), shown_url("gs://bucket/x"), shown_url("/data/x?y")
        ('s3://***@bucket/x?***', 'gs://bucket/x', '/data/x?y')
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    if info := _userinfo(url):
        rest = "***" + rest[len(info) :]
    place, mark, _ = rest.partition("?")
    return f"{scheme}://{place}{mark}{'***' if mark else ''}"


def _userinfo(url: str) -> str:
    _, separator, rest = url.partition("://")
    authority = rest.partition("/")[0] if separator else ""
    return authority.rpartition("@")[0]
