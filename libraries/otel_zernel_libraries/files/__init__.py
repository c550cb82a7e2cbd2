"""Reading files: finding them by globs, decompressing them, following them while they grow, and keeping positions."""
