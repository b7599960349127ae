"""Addresses of clients: which proxies are trusted to name them, and which addresses count as one client."""

import ipaddress
from collections.abc import Iterable, Sequence

_IPv4 = ipaddress.IPv4Address
_IPv6 = ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_IPV6_PREFIX = 64
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def parse_network(text: str) -> _Network:
    """Return the network of an address such as 10.0.0.0/8 or ::1. Raise `ValueError` if it is none."""
    return ipaddress.ip_network(text, strict=False)


def group_address(address: str) -> str:
    """Return the key under which an address is counted. An IPv6 client has a whole /64, so that counts as one."""
    parsed = _parse(address)
    if isinstance(parsed, _IPv6):
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return address if parsed is None else str(parsed)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address or host name."""
    parsed = _parse(host)
    return host == "localhost" if parsed is None else parsed.is_loopback


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, and no address of this machine or a network of its own."""
    parsed = _parse(address)
    if isinstance(parsed, _IPv6):
        # An address that a gateway turns into one of IPv4 leads to that one.
        inner = _IPv4(int(parsed) & 0xFFFFFFFF) if parsed in _NAT64 else parsed.sixtofour or parsed.teredo
        if isinstance(inner, tuple):
            return False
        parsed = inner or parsed
    return parsed is not None and parsed.is_global and not parsed.is_multicast


class TrustedProxies:
    """The proxies whose header X-Forwarded-For is believed."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [parse_network(n) for n in networks]

    def trusts(self, address: str) -> bool:
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def find_client(self, peer: str, forwarded: Sequence[str]) -> str:
        """Return the address of the client. `forwarded` are the values of X-Forwarded-For.

        They are read from the right, each only while the one who added it is trusted: a client can write anything to the
        left of that. Text that is no address ends the search at the proxy that passed it on."""
        client = peer
        for value in reversed([v for header in forwarded for v in header.split(",")]):
            if not self.trusts(client):
                break
            named = _parse(value)
            if named is None:
                break
            client = str(named)
        return client


def _parse(text: str) -> _IPv4 | _IPv6 | None:
    """Return an address, without a port, brackets and zone. An IPv4 address inside an IPv6 one is returned as IPv4."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, _IPv6) else None
    return mapped or address
