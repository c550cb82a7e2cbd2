"""The contract of engines, which run tasks, and the engines: a folder each."""
