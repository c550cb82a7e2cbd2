"""A release: its files with an SBOM and checksums, the version in all files, and the metadata of the package."""
