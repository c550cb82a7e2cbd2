"""A storage extension in memory, which outlives the receivers of a test."""

from otel_zernel.component import ComponentConfig
from otel_zernel.storage import Journal, KeyValues, Storage, StorageFailed
from otel_zernel.testing import make_context


class MemoryValues(KeyValues):
    """The values of one component. `fails` makes every `set` fail."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.fails = False

    async def get(self, key: str) -> bytes | None:
        return self.stored.get(key)

    async def set(self, key: str, value: bytes | None) -> None:
        if self.fails:
            raise StorageFailed("the disk is full")
        if value is None:
            self.stored.pop(key, None)
        else:
            self.stored[key] = value

    async def keys(self) -> list[str]:
        return sorted(self.stored)


class MemoryStorage(Storage):
    """Keeps values by component."""

    def __init__(self) -> None:
        super().__init__(ComponentConfig(), make_context("extensions", "file_storage"))
        self.values: dict[str, MemoryValues] = {}

    async def journal(self, component: str) -> Journal:
        raise NotImplementedError

    async def key_values(self, component: str) -> MemoryValues:
        return self.values.setdefault(component, MemoryValues())
