"""The HTTP interface of tasks: requests, answers, logs."""
