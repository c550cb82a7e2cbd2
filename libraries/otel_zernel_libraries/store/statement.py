"""The text of a query and its values, apart from each other."""

import json
from collections.abc import Iterable
from typing import Any, Literal

Dialect = Literal["sqlite", "postgresql"]


class SqlStatement:
    """Collects the values of a query. The text has only their numbers, so that no value can be read as SQL."""

    def __init__(self, dialect: Dialect) -> None:
        self.values: list[Any] = []
        self._mark = "?" if dialect == "sqlite" else "$"
        self.is_sqlite = dialect == "sqlite"

    def number(self, value: int) -> str:
        """An integer of 64 bits."""
        self.values.append(value)
        mark = f"{self._mark}{len(self.values)}"
        return mark if self.is_sqlite else f"{mark}::bigint"

    def ids(self, ids: Iterable[int | str]) -> str:
        """A query for the rows `id`."""
        if self.is_sqlite:
            self.values.append(json.dumps([*ids]))
            return f"SELECT value AS id FROM json_each(?{len(self.values)})"  # noqa: S608  # the number of a value
        self.values.append([*ids])
        return f"SELECT unnest(${len(self.values)}::bigint[]) AS id"

    def is_among(self, column: str, ids: Iterable[int | str], type_: Literal["bigint", "text"] = "bigint") -> str:
        """A condition: the column has one of the ids, or of the texts.

        PostgreSQL tests it while it reads an index in order; a subquery would be joined, 100 times as slow.
        """
        if self.is_sqlite:
            return f"{column} IN ({self.ids(ids)})"
        self.values.append([*ids])
        return f"{column} = ANY(${len(self.values)}::{type_}[])"

    def pairs(self, pairs: Iterable[tuple[int, int]]) -> str:
        """A query for the rows `id` and `part`."""
        pairs = [*pairs]
        if self.is_sqlite:
            self.values.append(json.dumps(pairs))
            return (
                "SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS part "  # noqa: S608
                f"FROM json_each(?{len(self.values)})"
            )
        self.values += [[entry for entry, _ in pairs], [part for _, part in pairs]]
        first, second = len(self.values) - 1, len(self.values)
        return f"SELECT unnest(${first}::bigint[]) AS id, unnest(${second}::bigint[]) AS part"
