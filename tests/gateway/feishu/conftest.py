"""The adapter by the long connection, and by encrypted posts."""

from collections.abc import AsyncIterator

import pytest
from tests.fakes.feishu import FakeFeishu
from tests.gateway.feishu.tenant import Tenant

from keryx.surfaces.gateway.feishu import FeishuMode


@pytest.fixture
async def tenant() -> AsyncIterator[Tenant]:
    with FakeFeishu() as feishu:
        tenant = Tenant(feishu)
        yield tenant
        await tenant.adapter.close()
        assert feishu.problems == []


@pytest.fixture
async def posts() -> AsyncIterator[Tenant]:
    with FakeFeishu() as feishu:
        tenant = Tenant(feishu, mode=FeishuMode.WEBHOOK)
        yield tenant
        await tenant.adapter.close()
