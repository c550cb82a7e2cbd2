"""The processes of the fleet's benchmark: the master, and many workers with clients of gRPC."""
