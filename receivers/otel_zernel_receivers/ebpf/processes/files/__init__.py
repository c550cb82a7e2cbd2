"""The files that processes have mapped: where they are, which one each is, and which have functions to probe."""
