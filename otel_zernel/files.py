"""Writing to files without a buffer."""

from io import FileIO


def write_whole(file: FileIO, content: bytes) -> None:
    """Writes all of the content: a single `write` may accept only a part.

    Raises `OSError`; a part may then be written.
    """
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) or 0 :]
