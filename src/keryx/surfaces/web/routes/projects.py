"""Routes of projects and tags."""

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


@router.get("/api/tags", summary="The viewer's tags.")
async def tags(request: ApiRequest) -> schema.Tags:
    return schema.Tags(tags=[presenters.tag(t) for t in await request.hub.tags.list_all(request.viewer)])


@router.post("/api/tags", summary="Make a tag. Without a colour, its name leads to one.", status=201)
async def add_tag(request: ApiRequest, body: request_schema.AddTagForm) -> schema.TagSchema:
    return presenters.tag(await request.hub.tags.add(request.viewer, body.name, colour=body.colour))


@router.patch("/api/tags/{tag}", summary="Change the name or colour of a tag.")
async def change_tag(request: ApiRequest, body: request_schema.TagChangeForm) -> schema.TagSchema:
    name = None if body.name is UNSET else body.name
    colour = None if body.colour is UNSET else body.colour
    return presenters.tag(
        await request.hub.tags.change(request.viewer, request.path_param("tag"), new_name=name, colour=colour)
    )


@router.delete("/api/tags/{tag}", summary="Remove a tag; the conversations stay.")
async def remove_tag(request: ApiRequest) -> None:
    await request.hub.tags.remove(request.viewer, request.path_param("tag"))
