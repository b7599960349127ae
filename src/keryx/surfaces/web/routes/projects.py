"""Routes of projects."""

from msgspec import UNSET

from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest

router = ApiRouter()


@router.get("/api/projects", summary="The viewer's projects.")
async def projects(request: ApiRequest) -> schema.Projects:
    return schema.Projects(
        projects=[presenters.project(p) for p in await request.hub.projects.list_all(request.viewer)]
    )


@router.post("/api/projects", summary="Make a project.", status=201)
async def add_project(request: ApiRequest, body: request_schema.AddProjectForm) -> schema.ProjectSchema:
    return presenters.project(await request.hub.projects.add(request.viewer, body.name, colour=body.colour))


@router.patch("/api/projects/{project}", summary="Change the name or colour of a project.")
async def change_project(request: ApiRequest, body: request_schema.ProjectChangeForm) -> schema.ProjectSchema:
    name = None if body.name is UNSET else body.name
    colour = None if body.colour is UNSET else body.colour
    return presenters.project(
        await request.hub.projects.change(
            request.viewer, request.path_param("project"), new_name=name, colour=colour
        )
    )


@router.delete("/api/projects/{project}", summary="Remove a project; its conversations stay.")
async def remove_project(request: ApiRequest) -> None:
    await request.hub.projects.remove(request.viewer, request.path_param("project"))
