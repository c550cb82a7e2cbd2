"""The service `cluster.MasterWorker`, by which workers send heartbeats to their master: `cluster.proto`."""
