"""What servers of any protocol do with a request: bound it, decompress it, check its credentials, refuse it."""
