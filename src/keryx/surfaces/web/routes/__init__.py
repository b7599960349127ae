"""The HTTP API: one module with handlers for each resource, and the list of all operations."""

from keryx.surfaces.web.operations import Operation
from keryx.surfaces.web.routes import (
    deliveries,
    files,
    installation,
    jobs,
    lanes,
    messages,
    people,
    projects,
    sessions,
    sign_ins,
    turns,
)
from keryx.surfaces.web.stream import endpoint

# In the order of the reference.
_ROUTERS = (
    installation.router,
    endpoint.router,
    sign_ins.router,
    people.router,
    sessions.router,
    messages.router,
    turns.router,
    projects.router,
    lanes.router,
    deliveries.router,
    files.router,
    jobs.router,
)
OPERATIONS: tuple[Operation, ...] = tuple(o for router in _ROUTERS for o in router.operations)
