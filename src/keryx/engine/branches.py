"""Branches: a fork with something said to it at once, as when an old question is edited and sent again."""

from datetime import datetime

import msgspec

from keryx.core.ports import Inbound, Receipt
from keryx.core.sessions import Session, Viewer
from keryx.engine import revisions, router
from keryx.engine.policy import Policy
from keryx.store import inbox
from keryx.store.database import Transaction


def branch(
    tx: Transaction,
    session: Session,
    inbound: Inbound,
    *,
    viewer: Viewer,
    surface: str,
    through: int | None,
    title: str | None,
    policy: Policy,
    now: datetime,
) -> Receipt:
    """Copy a session up to a message and take an event in there. Nothing before the first message is copied: then a
    new session begins with the settings of the old one. A repeated event makes no second copy."""
    source = inbound.source
    if inbox.seen(tx, platform=source.platform, account=source.account, event=inbound.event):
        return router.receive(tx, inbound, policy=policy, now=now)
    if through == 0:
        said = msgspec.structs.replace(inbound, settings=session.settings, cwd=session.cwd)
    else:
        copy = revisions.fork(
            tx, session, viewer=viewer, surface=surface, through=through, title=title, now=now
        )
        said = msgspec.structs.replace(inbound, session=copy.id)
    return router.receive(tx, said, policy=policy, now=now)
