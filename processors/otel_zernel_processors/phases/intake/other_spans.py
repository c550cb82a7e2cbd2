"""The spans of a batch that phases do not use, so that they can be forwarded."""

from collections.abc import Sequence
from itertools import groupby

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

_Piece = tuple[ResourceSpans, ScopeSpans, Sequence[Span]]


class OtherSpans:
    """Collects spans with their resource and scope. Nothing is copied before `data`."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._count = 0

    def add(self, resource: ResourceSpans, scope: ScopeSpans, spans: Sequence[Span]) -> None:
        """Adds spans of one scope. Calls come in the order of the batch."""
        if spans:
            self._pieces.append((resource, scope, spans))
            self._count += len(spans)

    def __len__(self) -> int:
        return self._count

    def data(self) -> TracesData:
        """The spans as one message."""
        data = TracesData()
        for _, of_resource in groupby(self._pieces, key=lambda piece: id(piece[0])):
            pieces = list(of_resource)
            resource = pieces[0][0]
            into = data.resource_spans.add(resource=resource.resource, schema_url=resource.schema_url)
            for _, of_scope in groupby(pieces, key=lambda piece: id(piece[1])):
                _copy(list(of_scope), into)
        return data


def _copy(pieces: Sequence[_Piece], into: ResourceSpans) -> None:
    scope = pieces[0][1]
    spans = [span for _, _, some in pieces for span in some]
    into.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url, spans=spans)
