from gateway.domain.principals import Label, Role
from gateway.store.files import files
from gateway.store.files.files import OWN
from gateway.store.people import principals
from tests.store.world import World


async def test_a_file_is_known_by_its_path_in_its_owners_root(world: World) -> None:
    async with world.database.transaction() as tx:
        other = await principals.add(tx, Role.MEMBER, "Bob", [])
        await files.keep(
            tx, world.principal, "a.md", size=3, mime="text/markdown", sha256="x", label=Label.OWNER, origin=OWN
        )
        found = await files.get(tx, world.principal, "a.md")
        assert await files.get(tx, other, "a.md") is None
    assert found is not None
    assert (found.size, found.mime, found.sha256, found.label, found.origin) == (
        3,
        "text/markdown",
        "x",
        Label.OWNER,
        "agent",
    )
    assert isinstance(found.label, Label)


async def test_a_rewritten_file_has_the_label_of_its_new_content(world: World) -> None:
    async with world.database.transaction() as tx:
        for size, label in ((1, Label.KNOWN), (2, Label.OWNER)):
            await files.keep(
                tx, world.principal, "a.md", size=size, mime="text/plain", sha256="x", label=label, origin=OWN
            )
        found = await files.get(tx, world.principal, "a.md")
    assert found is not None
    assert (found.size, found.label) == (2, Label.OWNER)
