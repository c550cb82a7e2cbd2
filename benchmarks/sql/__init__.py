"""The sql exporter's stores beside their drivers."""
