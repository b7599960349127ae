"""Commands on a person: whoami, link of two chats of one person, and their time zone."""

from datetime import timedelta

from keryx.core import access, clock, ids
from keryx.core import source as sources
from keryx.core.errors import Forbidden, NotFound
from keryx.core.ids import OPERATOR
from keryx.core.texts import Phrase
from keryx.engine.commands.call import CommandCall, CommandResult
from keryx.engine.units import access as access_units
from keryx.engine.units import identities
from keryx.store import access as access_store
from keryx.store import people, viewer_state

LINK_LIFETIME = timedelta(minutes=10)


def show_identity(call: CommandCall) -> CommandResult:
    asker, profile = call.viewer.principal, call.viewer.profile
    name = people.get_name(call.tx, asker)
    name = name or call.say("person.unnamed")
    known = (
        call.say("person.known_operator", name=name, id=asker, profile=profile)
        if call.is_operator and asker != OPERATOR
        else call.say("person.known", name=name, id=asker, profile=profile)
    )
    return CommandResult("\n".join([known, *_list_identities(call)]))


def link(call: CommandCall) -> CommandResult:
    match call.text.lower():
        case "":
            code = access.generate_code()
            people.save_link_code(
                call.tx,
                call.viewer.principal,
                access.hash_code(code),
                profile=call.viewer.profile,
                until=call.now + LINK_LIFETIME,
            )
            return CommandResult(
                call.say("person.link_code", code=code, minutes=LINK_LIFETIME // timedelta(minutes=1))
            )
        case "list":
            return CommandResult("\n".join(_list_identities(call)) or call.say("person.known_here"))
        case "cut":
            source = call.inbound.source
            person = access_units.identify(source)
            if call.inbound.principal is not None or not person:
                raise Forbidden(Phrase("person.cut_here"))
            handle = sources.build_handle(
                source.platform, person, aliases=access_units.find_aliases(call.tx, source)
            )
            new = identities.split(
                call.tx,
                profile=call.viewer.profile,
                platform=ids.escape(source.platform),
                handle=handle,
            )
            return CommandResult(call.say("person.cut"), asker=new)
        case _:
            asker, profile = call.viewer.principal, call.viewer.profile
            key = f"link:{profile}:{asker}"
            access_units.check_wrong_codes(call.tx, key)
            other = people.redeem_link_code(call.tx, call.text, profile=profile)
            if other is None:
                access_store.add_failed_attempt(call.tx, key, since=call.now - access_units.LOCKOUT)
                raise NotFound(Phrase("person.link_wrong"))
            if other == asker:
                return CommandResult(call.say("person.link_same"))
            merged = identities.merge(call.tx, asker, other, profile=profile)
            return CommandResult(call.say("person.linked"), call.session_id, asker=merged)


def set_zone(call: CommandCall) -> CommandResult:
    if call.text:
        zone = "" if call.text == "default" else clock.find_zone(call.text[:80]).key
        viewer_state.set_zone(call.tx, call.viewer, zone)
    own = viewer_state.get_zone(call.tx, call.viewer)
    zone = own or call.policy.zone
    now = f"{clock.to_wall_time(call.now, clock.find_zone(zone)):%Y-%m-%d %H:%M}"
    return CommandResult(call.say("person.zone" if own else "person.zone_default", zone=zone, now=now))


def _list_identities(call: CommandCall) -> list[str]:
    listed = people.list_identities(call.tx, call.viewer.principal, profile=call.viewer.profile)
    return [f"{i.platform} {i.person}" + (f" ({i.name})" if i.name else "") for i in listed]
