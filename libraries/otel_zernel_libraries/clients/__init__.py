"""The pieces of exporters that call a server: addresses, TLS, credentials, and the causes of failures."""
