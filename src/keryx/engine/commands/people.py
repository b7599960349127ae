"""Commands on people: who asks, and that two chats are the same person's."""

from datetime import timedelta

from keryx.core import codes, identity, ids
from keryx.core.errors import Forbidden, NotFound
from keryx.core.ids import OPERATOR
from keryx.engine import access, kinship, pairing
from keryx.engine.commands.call import Call, Done, Run
from keryx.store import guesses, links, principals

LIFE = timedelta(minutes=10)


def _whoami(call: Call) -> Done:
    asker, profile = call.viewer.principal, call.viewer.profile
    name = principals.name(call.tx, asker)
    rights = " · operator" if call.operates and asker != OPERATOR else ""
    head = f"{name or 'unnamed'} · {asker} · profile {profile}{rights}"
    return Done("\n".join([head, *_known(call)]))


def _link(call: Call) -> Done:
    match call.text.lower():
        case "":
            return _offer(call)
        case "list":
            return Done("\n".join(_known(call)) or "You are known here only.")
        case "cut":
            return _cut(call)
        case _:
            return _join(call)


def _offer(call: Call) -> Done:
    code = codes.new()
    links.put(
        call.tx,
        call.viewer.principal,
        codes.sealed(code),
        profile=call.viewer.profile,
        until=call.now + LIFE,
    )
    return Done(f"Write this in your other chat within ten minutes:\n\n/link {code}")


def _join(call: Call) -> Done:
    asker, profile = call.viewer.principal, call.viewer.profile
    key = f"link:{profile}:{asker}"
    pairing.check(call.tx, key, now=call.now)
    other = links.take(call.tx, call.text, profile=profile, now=call.now)
    if other is None:
        guesses.count(call.tx, key, since=call.now - pairing.LOCKED, now=call.now)
        raise NotFound("this code is wrong or too old: /link in the other chat gives a new one")
    if other == asker:
        return Done("You are the same person in both chats already.")
    kept = kinship.join(call.tx, asker, other, profile=profile, now=call.now)
    session = call.session.id if call.session else None
    return Done(
        "Linked: you are the same person in both chats now. /link list shows it.", session, asker=kept
    )


def _cut(call: Call) -> Done:
    source = call.inbound.source
    person = access.identified(source)
    if call.inbound.principal is not None or not person:
        raise Forbidden("this place cannot be cut off: write /link cut in the chat that is to stand alone")
    handle = identity.handle(source.platform, person, aliases=access.aliases(call.tx, source))
    new = kinship.split(
        call.tx, profile=call.viewer.profile, platform=ids.plain(source.platform), handle=handle, now=call.now
    )
    return Done("Cut: this chat stands alone now. What was begun here stays here.", asker=new)


def _known(call: Call) -> list[str]:
    found = principals.identities(call.tx, call.viewer.principal, profile=call.viewer.profile)
    return [f"{i.platform} {i.person}" + (f" ({i.name})" if i.name else "") for i in found]


RUN: dict[str, Run] = {
    "whoami": _whoami,
    "link": _link,
}
