"""A journal on a disk: segment files with records, and a log of acknowledgements."""
