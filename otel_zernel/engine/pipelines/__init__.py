"""The path of batches: from a receiver through the processors of its pipelines into the queues of exporters."""
