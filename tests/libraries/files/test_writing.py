"""Files that exist only while they are needed."""

from pathlib import Path

import pytest

from otel_zernel_libraries.files.writing import file_with


def test_the_content_of_a_temporary_file_is_readable_only_inside_the_block() -> None:
    with file_with(b"first") as first, file_with(b"second") as second:
        assert (Path(first).read_bytes(), Path(second).read_bytes()) == (b"first", b"second")
    assert not Path(first).exists()
    assert not Path(second).exists()


def test_the_file_is_gone_after_an_error_in_the_block() -> None:
    with pytest.raises(ZeroDivisionError), file_with(b"secret") as path:
        raise ZeroDivisionError
    assert not Path(path).exists()
