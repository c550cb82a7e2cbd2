"""The targets of a job: from its configuration, from files, from DNS."""
