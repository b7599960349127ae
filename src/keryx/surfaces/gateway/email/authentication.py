"""Whether the author of a mail is who the mail says: the result that our own server has recorded (RFC 8601)."""

import re

from keryx.surfaces.gateway.email.mail_headers import MailHeaders, MailPerson

# Believes every mail. It must be written out.
ANY_SERVER = "*"
# Stands for results without the name of a server, as Microsoft 365 records them.
NAMELESS_SERVER = "-"
_LONGEST_VALUE = 8_000
_COMMENT = re.compile(r"\([^()]*\)")
_MOST_COMMENT_LEVELS = 5
_RESULT = re.compile(r"\s*([a-z0-9-]{1,20})(?:/\d+)?\s*=\s*([a-z]{1,20})\b", re.IGNORECASE)
_PROPERTY = re.compile(r"\b([a-z]{1,20}\.[a-z0-9-]{1,20})\s*=\s*\"?([^\s\";]{1,300})\"?", re.IGNORECASE)


def find_doubt(headers: MailHeaders, author: MailPerson, trusted: frozenset[str]) -> str:
    """Return why the author cannot be believed, as the end of a sentence about the mail; empty if they can.

    Only the topmost result counts, and only if a server in `trusted` recorded it: anybody can write others below it."""
    if ANY_SERVER in trusted:
        return ""
    name = find_server(headers)
    if not name:
        return "has no result of a check of its sender (Authentication-Results)"
    if name not in trusted:
        return f"was checked by {name[:80]!r}, which is not in `authserv`"
    results: dict[str, list[tuple[str, dict[str, str]]]] = {}
    value = _read_value(headers)
    for item in (value if name == NAMELESS_SERVER else value.partition(";")[2]).split(";"):
        if found := _RESULT.match(item):
            properties = {key.lower(): text.lower() for key, text in _PROPERTY.findall(item)}
            results.setdefault(found[1].lower(), []).append((found[2].lower(), properties))
    for verdict, properties in results.get("dmarc", []):
        if verdict == "pass":
            return (
                ""
                if _get_domain(properties.get("header.from", "")) == author.domain
                else ("passed DMARC for another domain than that of its author")
            )
        if verdict not in ("none", "bestguesspass"):
            return f"did not pass DMARC ({verdict})"
    for method, keys in (("dkim", ("header.d", "header.i")), ("spf", ("smtp.mailfrom",))):
        for verdict, properties in results.get(method, []):
            domains = (_get_domain(properties[key]) for key in keys if key in properties)
            # The domain of the author, or one above it.
            if verdict == "pass" and any(
                domain == author.domain or ("." in domain and author.domain.endswith(f".{domain}"))
                for domain in domains
            ):
                return ""
    return "passed neither DMARC, nor DKIM or SPF for the domain of its author"


def find_server(headers: MailHeaders) -> str:
    """Return the name of the server that recorded the topmost result; empty if there is none."""
    server, _, _ = _read_value(headers).partition(";")
    # A version may follow the name.
    name = (server.split() or [""])[0].lower()
    return NAMELESS_SERVER if "=" in name else name


def _read_value(headers: MailHeaders) -> str:
    """Return the value without its comments."""
    value = headers.get("authentication-results")[:_LONGEST_VALUE]
    for _ in range(_MOST_COMMENT_LEVELS):
        value, count = _COMMENT.subn(" ", value)
        if not count:
            break
    return value


def _get_domain(value: str) -> str:
    return value.rpartition("@")[2].rstrip(".")
