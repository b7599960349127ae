"""Routes of projects."""

from msgspec import UNSET

from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest


async def projects(ask: ApiRequest) -> schema.Projects:
    return schema.Projects(
        projects=[presenters.project(p) for p in await ask.hub.projects.list_all(ask.viewer)]
    )


async def add_project(ask: ApiRequest) -> schema.Project:
    form = ask.body(request_schema.AddProject)
    return presenters.project(await ask.hub.projects.add(ask.viewer, form.name, colour=form.colour))


async def change_project(ask: ApiRequest) -> schema.Project:
    form = ask.body(request_schema.ProjectChange)
    name = None if form.name is UNSET else form.name
    colour = None if form.colour is UNSET else form.colour
    return presenters.project(
        await ask.hub.projects.change(ask.viewer, ask.path_param("project"), new_name=name, colour=colour)
    )


async def remove_project(ask: ApiRequest) -> None:
    await ask.hub.projects.remove(ask.viewer, ask.path_param("project"))
