"""The extension that serves routes, and how a component finds it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

from otel_zernel.component import Context, Extension
from otel_zernel.errors import CannotStart
from otel_zernel.types import ExtensionId

if TYPE_CHECKING:
    from otel_zernel_libraries.serving.api.routes import Route


class ApiServer(Extension, ABC):
    """Serves the routes of components on one address."""

    url: str = ""
    """Where it serves them: `http://127.0.0.1:9095`. Empty until it is entered."""

    @abstractmethod
    def serve(self, owner: str, routes: "Iterable[Route]") -> AbstractContextManager[None]:
        """Serves the routes while the context is entered. `owner` is the path of the component.

        At the exit, `receive` of the running requests returns the disconnection; after 0.5 s they are cancelled.
        An answer that has begun is then completed as it is, any other one is 503.
        Raises `CannotStart`, at the entry, if another component has one of the paths.
        """


ApiId = Annotated[str, ExtensionId(ApiServer)]
"""The id of an extension that serves the API: a field `api: ApiId = "api"`."""
OptionalApiId = Annotated[str | None, ExtensionId(ApiServer)]
"""The same, or null."""


def api_server(id_: str, context: Context, setting: str) -> ApiServer:
    """The extension with this id. `setting` is the configuration key that names it: `exporters::live::api`.

    Raises `CannotStart` if the extension is not enabled, or serves no routes.
    """
    extension = context.extension(id_)
    if not isinstance(extension, ApiServer):
        raise CannotStart(f"{setting}: extension {id_} serves no API; name an extension of type api")
    return extension
