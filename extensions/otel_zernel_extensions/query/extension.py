"""The query extension."""

from typing import Self

from otel_zernel.component import Context, Extension
from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_libraries.serving.api.server import api_server


class QueryExtension(Extension):
    """Serves the points of a store to programs: pages, aggregates, hosts and GPUs, and a page that describes them."""

    Config = QueryConfig
    stability = "alpha"
    works_alone = True

    def __init__(self, config: QueryConfig, context: Context) -> None:
        super().__init__(config, context)
        self._config = config

    async def __aenter__(self) -> Self:
        # A list of components does without these modules.
        from otel_zernel_extensions.query.open_store import OpenStore, StoreUnavailable
        from otel_zernel_extensions.query.routes import QueryRoutes
        from otel_zernel_extensions.query.swagger.routes import swagger_routes
        from otel_zernel_libraries.store.opening import reader_for

        context, config = self.context, self._config
        server = api_server(config.api, context, f"{context.path}::api")
        reader = reader_for(config, context.path)
        self._stack.push_async_callback(reader.close)
        store = OpenStore(reader, config.max_series, context.clock.monotonic)
        try:
            await store.open()
        except StoreUnavailable as error:
            context.logger.warning("Cannot open the store; trying again: %s", error)
        routes = QueryRoutes(config, store, context.clock.time_ns).routes
        self._stack.enter_context(server.serve(context.path, [*routes, *swagger_routes()]))
        return self
