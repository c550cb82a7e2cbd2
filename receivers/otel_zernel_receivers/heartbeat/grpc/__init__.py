"""The service `cluster.MasterWorker` over gRPC."""
